"""Other ways: what an implementation may do instead, as values that change a problem, its steps or its reply."""
