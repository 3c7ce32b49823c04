"""Decides whether a run is accepted: known deviations, baselines, comparisons, exit codes."""
