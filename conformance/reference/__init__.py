"""The reference: float64 attention in named steps, and its gradients."""
