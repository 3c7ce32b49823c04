"""What one adapter declines before its framework call, with its framework installed: `python -m ... torch.mha`."""

import json
import sys

import conformance.bridge
from conformance.bridge.contract import Unsupported
from conformance.bridge.loading import load

from .declining import Reached, stopping
from .pairs import adapters, cells


def main(name: str) -> None:
    """Print the number of calls, and which of them the adapter declines."""
    conformance.bridge.framework_call = stopping
    adapter = load(adapters()[name].path)
    found = []
    for cell in cells(name):
        try:
            getattr(adapter, cell.call.facts.operator)(cell.call)
        except Unsupported:
            found.append(" on ".join(cell.key))
        except Reached:
            continue
    print(json.dumps({"asked": len(cells(name)), "declined": sorted(found)}))


if __name__ == "__main__":
    main(sys.argv[1])
