"""Running: adapters' facts, routing calls into their arguments, workers, and the run log."""
