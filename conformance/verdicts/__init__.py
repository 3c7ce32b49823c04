"""Whether one reply is right: comparison with the oracle, verdicts, and what holds between two replies."""
