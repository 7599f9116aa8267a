"""Fits on more than one machine, by Dask: answers stay where they are, and little travels.

The answers are cut into blocks by the ids of the larger side, by a hash, so that neither the order of the
answers nor the number of workers decides which block an id belongs to. The states of that side lie with
their answers and never move. The states of the other side are sent to whoever has a block, and what the
blocks say of that side (natural parameters) is added up in a fixed order. So a fit gives the same bits on
any number of workers.

What is lost with a worker is computed again, by Dask, from files in a folder that all of them see.
"""
