"""The engine on an NVIDIA GPU: the same coordinate loop over other kernels (``pip install onebit[gpu]``).

Only ``onebit.engine.gpu.device`` may be imported without torch and Triton.
"""
