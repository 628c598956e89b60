"""specbench: benchmark draft/target pairs for speculative decoding."""

from specbench.version import VERSION as __version__

__all__ = ["__version__"]
