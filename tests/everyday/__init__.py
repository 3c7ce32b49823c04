"""Everyday mistakes: each is written in several signatures that can express it, and `check` has to name it."""
