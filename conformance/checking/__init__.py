"""The five-minute door: a function of the user's own, judged without an adapter written by hand (docs/check.md)."""
