"""The engine on the cores of this machine."""
