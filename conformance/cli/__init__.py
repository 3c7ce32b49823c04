"""The command line: parse, call, print. Everything that is decided is decided elsewhere."""

import os

# Before NumPy is imported: on many small matrices a second thread costs up to fifty times what it saves.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from conformance.cli.main import main

__all__ = ["main"]
