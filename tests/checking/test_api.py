"""conformance.check in a user's own test suite."""

import asyncio
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import conformance
from conformance.checking.api import cases_of
from conformance.checking.target import CheckError


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    path = Path(__file__).parent / "checked_sdpa.py"
    specification = importlib.util.spec_from_file_location("plain_sdpa_of_the_test", path)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_a_right_function_conforms_and_leaves_nothing_behind(plain: ModuleType) -> None:
    result = conformance.check(plain.right, cases=["shapes/*"])
    assert result.conforms
    assert result.exit_code == 0
    assert result.folder is None
    assert result.findings == ()
    result.assert_conforms()


def test_a_wrong_one_fails_the_assertion_with_its_cause(plain: ModuleType, tmp_path: Path) -> None:
    result = conformance.check(plain.no_scale, cases=["shapes/cross*"], out=tmp_path / "out")
    assert not result.conforms
    assert result.findings[0].sentence == "does not scale the logits"
    assert result.folder == tmp_path / "out"
    assert (tmp_path / "out" / "index.html").is_file()
    with pytest.raises(
        AssertionError, match=r"(?s)it does not scale the logits.*workaround: multiply the query.*Report: "
    ):
        result.assert_conforms()


def test_decisions_can_be_declared(plain: ModuleType) -> None:
    conformance.check(
        plain.nan_in_fully_masked_rows, declare={"fully_masked_row": "nan"}, cases=["degenerate/*"]
    ).assert_conforms()


def test_it_works_where_an_event_loop_runs(plain: ModuleType) -> None:
    async def notebook() -> bool:
        return conformance.check(plain.right, cases=["shapes/cross*"]).conforms

    assert asyncio.run(notebook())


@pytest.mark.frameworks
def test_the_cases_of_a_layer_are_found_where_an_event_loop_runs() -> None:
    """Its constructor has to be called for this, in a process of its own."""

    async def notebook() -> tuple[str, ...]:
        layer = importlib.import_module("tests.checking.doors.torch_modules").MultiHeadAttention
        return cases_of(layer, cases=["shapes/*"])

    assert asyncio.run(notebook())


def test_a_local_function_is_refused_with_a_reason() -> None:
    def local(query: object, key: object, value: object) -> object:
        return (query, key, value)

    with pytest.raises(CheckError, match="must be defined with def at the top level of a file"):
        conformance.check(local)


def test_there_is_no_other_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'conformance' has no attribute 'chekc'"):
        _ = conformance.chekc


CHECKING_ITSELF = """\
import numpy as np
from conformance import Result, check


def attend(query, key, value):
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def checked() -> Result:
    return check(attend, cases=["shapes/cross*"])


{call}
"""


def ran(folder: Path, call: str) -> subprocess.CompletedProcess[str]:
    """Run a file that checks a function of its own."""
    file = folder / "mine.py"
    file.write_text(CHECKING_ITSELF.format(call=call), encoding="utf-8")
    return subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=300, check=False)


def test_a_file_can_check_its_own_function(tmp_path: Path) -> None:
    done = ran(tmp_path, 'if __name__ == "__main__":\n    print(checked().conforms)')
    assert done.stdout == "True\n", done.stderr


def test_a_file_that_checks_its_function_while_it_is_loaded_is_told_what_to_do(tmp_path: Path) -> None:
    done = ran(tmp_path, "checked()")
    assert done.returncode != 0
    assert (
        "RuntimeError: conformance.check was called while a worker loaded this file to judge it: call it in a test, or "
        'under `if __name__ == "__main__":`'
    ) in done.stderr
