"""What a run is asked for besides its summary: its slowest calls, and its page in a browser."""

import sys
import webbrowser
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.spec.counting import counted


def print_slowest(records: Iterable[Mapping[str, Any]], number: int | None) -> None:
    """Print the calls that took longest: all of them where the number is 0, nothing where it is None."""
    if number is None:
        return
    took = [(record["seconds"]["call"], record) for record in records if "call" in record.get("seconds", {})]
    took.sort(key=lambda each: each[0], reverse=True)
    shown = took[: number or None]
    print(f"The slowest {counted(len(shown), 'call')} of {len(took):,}:")
    for seconds, record in shown:
        print(f"{seconds:9.3f} s  {record['case']} on {record['subject']}")


def open_page(folder: Path) -> None:
    """Open the page of a run folder in the browser; say so where there is none."""
    page = (folder / "index.html").absolute()
    if not webbrowser.open(page.as_uri()):
        print(f"conformance: no browser was found here: open {page} in one", file=sys.stderr)
