"""What is found out about a function before anything is judged: a process of its own loads it and calls it once."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance import places
from conformance.checking.signature import FRAMEWORKS, LAYOUTS, MaskForm, Signature
from conformance.checking.target import CheckError, Target
from conformance.disk import scratch

# Seconds that importing the file and a few plain calls may take, beside what one call may.
PATIENCE = 120.0


@dataclass(frozen=True)
class Calling:
    """What the user says about how the function is called; None is found out. mapping: argument -> role."""

    operator: str | None = None
    framework: str | None = None
    layout: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """
        Refuse what is none of the words.

        Raises:
            CheckError: there is no such framework or layout.
        """
        for option, value, known in (("framework", self.framework, FRAMEWORKS), ("layout", self.layout, LAYOUTS)):
            if value is not None and value not in known:
                raise CheckError(f"--{option} {value}: expected one of {', '.join(known)}")


def parse_mapping(words: list[str]) -> dict[str, str]:
    """
    Split ARGUMENT=ROLE.

    Raises:
        CheckError: there is no = in a word, or an argument stands twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, role = word.partition("=")
        if not equals or not name or not role:
            raise CheckError(f"--map {word}: expected ARGUMENT=ROLE, such as allowed=mask")
        if name in found:
            raise CheckError(f"--map {name} stands twice")
        found[name] = role
    return found


def preflight(target: Target, calling: Calling, timeout: float) -> Signature:
    """
    Load the function, read what it takes, and make one plain call.

    Raises:
        CheckError: it cannot be loaded or called, and why.
    """
    folder, module = target.package
    request = {
        "path": str(target.path),
        "folder": str(folder),
        "module": module,
        "function": target.function,
        "operator": calling.operator,
        "framework": calling.framework,
        "layout": calling.layout,
        "mapping": dict(calling.mapping),
    }
    answer = _asked(request, timeout)
    if "error" in answer:
        raise CheckError(answer["error"])
    return _signature(answer["signature"])


def _asked(request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    with scratch() as folder:
        path = Path(folder) / "answer.json"
        command = [sys.executable, "-c", _START.format(root=str(places.package())), str(path)]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(request),
                text=True,
                capture_output=True,
                timeout=PATIENCE + timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CheckError(
                f"{request['function']} did not answer a plain call within {PATIENCE + timeout:.0f} s"
            ) from None
        if not path.is_file():
            said = " ".join(done.stderr.split())[-300:]
            raise CheckError(f"the process that called {request['function']} ended with {done.returncode}: {said}")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


_START = "import sys; sys.path.append({root!r}); from conformance.checking.inspection import main; main()"


def _signature(record: dict[str, Any]) -> Signature:
    form = record.pop("form")
    lists = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
    return Signature(
        **{**record, **lists}, form=MaskForm(tuple(form["axes"]), boolean=form["boolean"], added=form["added"])
    )
