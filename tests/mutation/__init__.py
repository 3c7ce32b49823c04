"""Mutation testing of this tool (docs/mutation.md)."""
