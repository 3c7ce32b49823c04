"""Decides whether a reply is right: comparison with the oracle, verdicts, and relations between two replies."""
