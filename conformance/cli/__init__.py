"""The command line: it parses arguments, calls the other packages and prints; it contains no decisions of its own."""

import os

# Set before NumPy is imported: on many small matrices, a second thread costs up to fifty times what it saves.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from conformance.cli.main import main

__all__ = ["main"]
