"""Deviations: what an implementation may do otherwise, as values that change a problem, its steps or its reply."""
