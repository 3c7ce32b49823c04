"""The command line: parse, call, print. Everything that is decided is decided elsewhere."""

from conformance.cli.main import main

__all__ = ["main"]
