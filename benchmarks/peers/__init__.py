"""onebit beside other libraries: accuracy, log-loss, time and memory on the same splits.

``make bench-peers`` runs it; ``python -m benchmarks.peers --help`` lists the options.
"""
