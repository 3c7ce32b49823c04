"""How far the reply to a problem may be from the oracle: derived bounds of every output (docs/tolerance.md)."""
