"""Attention with bugs, as people write them."""
