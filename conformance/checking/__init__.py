"""Checking a function of the user, without an adapter written by hand (docs/check.md)."""
