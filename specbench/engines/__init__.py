"""Engines: who runs the cycles. `torch` is our own loop, in this process."""
