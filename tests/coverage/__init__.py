"""What entry points offer, and which parts of it the cases use."""
