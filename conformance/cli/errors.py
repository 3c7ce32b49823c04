"""What the command line cannot do, and why."""


class UsageError(Exception):
    """Something that the user asked for cannot be; the text says what to do."""
