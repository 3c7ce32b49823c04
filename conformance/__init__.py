"""
Decide whether two attention implementations mean the same thing.

Importing this package imports no framework and no adapter.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
