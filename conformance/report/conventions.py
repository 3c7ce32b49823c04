"""How an entry point wants arrays and parameters, in the words of its adapter file."""

import ast
from pathlib import Path

TOPICS = ("arrays", "weights")
"""How the points begin that somebody needs who writes the call; the others are about masks, which SLOTS hold, or us."""


def conventions(path: Path) -> tuple[str, ...]:
    """The points about arrays and weights from the docstring of an adapter file, each on one line; () without any."""
    text = ast.get_docstring(ast.parse(path.read_bytes(), str(path))) or ""
    points: list[str] = []
    for line in text.splitlines():
        if line.startswith("* "):
            points.append(line.removeprefix("* ").strip())
        elif points and line.startswith("  "):
            points[-1] += f" {line.strip()}"
    return tuple(point for point in points if point.startswith(TOPICS))
