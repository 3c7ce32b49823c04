"""Why replies are wrong: measured facts, candidates, their cost in bits, and the causes that explain the failures."""
