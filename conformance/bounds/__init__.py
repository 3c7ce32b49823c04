"""Bounds: how far each output of a reply may be from the oracle (docs/tolerance.md)."""
