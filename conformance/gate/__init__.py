"""Deciding: known deviations, and what a run means for the exit code."""
