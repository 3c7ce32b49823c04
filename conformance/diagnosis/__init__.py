"""Explains why replies are wrong: measured facts, candidate causes, their cost in bits, and the causes that remain."""
