"""What `check` cannot do, and why."""


class CheckError(Exception):
    """What was asked for cannot be checked as it is written; the text says what to do."""
