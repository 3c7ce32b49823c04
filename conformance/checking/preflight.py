"""The inspection of a function before it is judged: a separate process loads it and makes plain calls."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance import places
from conformance.checking.signature import DEVICES, FRAMEWORKS, LAYOUTS, MaskForm, Signature
from conformance.checking.target import CheckError, Target
from conformance.disk import scratch

# Time limit for importing the file and a few plain calls, in seconds, in addition to the limit of one call.
PATIENCE = 120.0


@dataclass(frozen=True)
class Calling:
    """What the user states about how the function is called; None is detected. mapping: argument -> role."""

    operator: str | None = None
    framework: str | None = None
    layout: str | None = None
    device: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """
        Check the names.

        Raises:
            CheckError: there is no such framework, layout or device.
        """
        for option, value, known in (
            ("framework", self.framework, FRAMEWORKS),
            ("layout", self.layout, LAYOUTS),
            ("device", self.device, DEVICES),
        ):
            if value is not None and value not in known:
                raise CheckError(f"--{option} {value}: expected one of {', '.join(known)}")


def parse_mapping(words: list[str]) -> dict[str, str]:
    """
    Split words of the form ARGUMENT=ROLE.

    Raises:
        CheckError: a word has another form, or an argument is given twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, role = word.partition("=")
        if not equals or not name or not role:
            raise CheckError(f"--map {word}: expected ARGUMENT=ROLE, such as allowed=mask")
        if name in found:
            raise CheckError(f"--map {name} is given twice")
        found[name] = role
    return found


def preflight(target: Target, calling: Calling, timeout: float) -> Signature:
    """
    Load the function in a separate process, read its parameters, and find a plain call that works.

    Raises:
        CheckError: the function cannot be loaded or called; the message says why.
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
        "device": calling.device,
        "mapping": dict(calling.mapping),
    }
    answer = _inspected(request, timeout)
    if "error" in answer:
        raise CheckError(answer["error"])
    return _signature(answer["signature"])


def _inspected(request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
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
                f"{request['function']} did not return from a plain call within {PATIENCE + timeout:.0f} s"
            ) from None
        if not path.is_file():
            output = " ".join(done.stderr.split())[-300:]
            raise CheckError(f"the process that called {request['function']} ended with {done.returncode}: {output}")
        answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return answer


_START = "import sys; sys.path.append({root!r}); from conformance.checking.inspection import main; main()"


def _signature(record: dict[str, Any]) -> Signature:
    form = record.pop("form")
    lists = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
    return Signature(
        **{**record, **lists}, form=MaskForm(tuple(form["axes"]), boolean=form["boolean"], added=form["added"])
    )
