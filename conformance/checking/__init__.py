"""Check a function of the user without a hand-written adapter (docs/check.md)."""
