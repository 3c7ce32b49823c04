"""Numbers with their noun in the right form."""


def counted(number: int, noun: str) -> str:
    """Say 1 verdict, 2,000 verdicts."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def are(number: int, noun: str) -> str:
    """Say 1 verdict is, 2,000 verdicts are."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"
