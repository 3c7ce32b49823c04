"""Mutation testing of ourselves (docs/mutation.md)."""
