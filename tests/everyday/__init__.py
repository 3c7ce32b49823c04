"""Everyday mistakes: each written in every signature that can express it, and what `check` has to say of it."""
