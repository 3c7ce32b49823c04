"""How far, and why: comparison with the oracle, verdicts, and the decision that explains a failure."""
