"""What is right: float64 attention in named steps, variations and dialects of it, and derived bounds."""
