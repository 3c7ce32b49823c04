"""The answer to a problem under a dialect, and derived bounds of how far a reply may be from it."""
