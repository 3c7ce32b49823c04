"""What entry points offer, and which of it the cases ask."""
