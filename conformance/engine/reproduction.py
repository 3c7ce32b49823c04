"""Writes a cell as a folder that runs without the harness: arrays, facts, a script, the adapter and the bridge."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bridge.loading import sources
from conformance.bridge.messages import Request, request_message
from conformance.bridge.profile import Profile
from conformance.bridge.reproducing import CALL, EXPECTED, TOLERANCE, VARIANCE
from conformance.bridge.strict_json import plain_data
from conformance.engine.cells import Cell
from conformance.engine.process import copy_bridge
from conformance.spec.problem import Array
from conformance.spec.texts import printable
from conformance.verdicts.compare import RMS_LIMIT, averages, counted_variance, has_rms_gate
from conformance.verdicts.expectation import Expectation

SCRIPT = '''\
"""
CASE
on SUBJECT

The call is stored in call.npz and facts.json; ADAPTER makes it. Run this script with the interpreter of the subject: it
needs NumPy, the framework and the files of this folder.
"""

import json
import os
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent
facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
os.environ.update(facts["environment"])  # threads, backend and so on as in the run, before NumPy is loaded

from conformance.bridge.reproducing import reproduce

lines, code = reproduce(folder, facts)
for line in lines:
    print(line)
sys.exit(code)
'''


def write_reproduction(
    folder: Path, cell: Cell, declared: tuple[Expectation, Profile] | None, about: Mapping[str, Any]
) -> None:
    """
    Write the folder of a cell.

    declared: the expected reply and the arithmetic profile; None if nothing was declared. about: versions, environment,
    recorded and rerun, which the script uses and prints.

    Raises:
        FileExistsError: the folder exists.
    """
    folder.mkdir(parents=True)
    copy_bridge(folder)
    (folder / "adapter").mkdir()
    for file in sources(cell.subject.adapter.path):
        shutil.copy(file, folder / "adapter")
    adapter = f"adapter/{cell.subject.adapter.path.name}"
    message = request_message(Request(1, cell.call, cell.case.requirements(), cell.reply_limit))
    arrays = {f"{CALL}.{name}": np.array(tensor.bits, order="C") for name, tensor in message.tensors.items()}
    facts = {
        "case": cell.case.id,
        "subject": cell.subject.name,
        "adapter": adapter,
        "call": message.fields,
        "tensors": {name: tensor.dtype for name, tensor in message.tensors.items()},
        "outputs": {},
        "mistake": cell.case.mistake,
        **about,
    }
    if declared is not None:
        expectation, profile = declared
        arrays |= _expected(expectation)
        facts["outputs"] = {
            name: {"dtype": each.dtype, "rms_limit": _rms_limit(name, expectation.bounds[name], profile)}
            for name, each in expectation.reply.items()
        }
    np.savez_compressed(folder / "call.npz", **arrays)  # type: ignore[arg-type]  # names of arrays, none is allow_pickle
    (folder / "facts.json").write_text(
        json.dumps(plain_data(facts), indent=2, allow_nan=False) + "\n", encoding="utf-8"
    )
    names = {"CASE": cell.case.id, "SUBJECT": cell.subject.name, "ADAPTER": adapter}
    script = re.sub("|".join(names), lambda word: _in_docstring(names[word[0]]), SCRIPT)
    (folder / "repro.py").write_text(script, encoding="utf-8")


def _in_docstring(text: str) -> str:
    """A name that is safe in a docstring: it neither ends the docstring nor begins an escape."""
    return re.sub(r'[\\"]', "_", printable(text))


def _expected(expectation: Expectation) -> dict[str, Array]:
    found = {}
    for name, each in expectation.reply.items():
        bound = expectation.bounds[name]
        found[f"{EXPECTED}.{name}"] = each.values
        found[f"{TOLERANCE}.{name}"] = bound.tolerance
        found[f"{VARIANCE}.{name}"] = counted_variance(bound)
    return found


def _rms_limit(name: str, bound: Bound, profile: Profile) -> float | None:
    """The limit of the root mean square; None if the second gate does not apply (docs/tolerance.md section 1)."""
    return RMS_LIMIT if has_rms_gate(profile) and averages(name, bound.sigma.size) else None
