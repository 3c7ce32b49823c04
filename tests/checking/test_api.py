"""conformance.check in a user's own test suite."""

import asyncio
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

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


@pytest.mark.parametrize("given", ["shapes/cross*", ("shapes/cross*",), iter(["shapes/cross*"])])
def test_a_string_is_one_glob_and_not_one_for_each_letter(plain: ModuleType, given: Iterable[str]) -> None:
    found = cases_of(plain.right, cases=given)
    assert found
    assert all(case.startswith("shapes/cross") for case in found)


def test_a_string_is_one_dtype(plain: ModuleType) -> None:
    assert cases_of(plain.right, dtypes="float64") == cases_of(plain.right, dtypes=["float64"])


NO_PATH: dict[str, Any] = {"out": 5}
WRONG_OPTIONS: dict[str, tuple[dict[str, object], str]] = {
    "a_list_of_numbers": ({"cases": [1]}, "cases is a list of globs, such as ['masks/*'], not [1]"),
    "no_list": ({"dtypes": 5}, "dtypes is a list of dtypes, such as ['float32'], not 5"),
    "an_unknown_dtype": (
        {"dtypes": ["float8"]},
        "there is no dtype 'float8', only float64, float32, float16, bfloat16",
    ),
    "a_declared_string": (
        {"declare": "fully_masked_row=zero"},
        "declare is a dict of strings, such as {'fully_masked_row': 'zero'}, not 'fully_masked_row=zero'",
    ),
    "a_mapped_string": (
        {"mapping": "mask=bias"},
        "mapping is a dict of strings, such as {'allowed': 'mask'}, not 'mask=bias'",
    ),
    "an_excluded_number": ({"exclusive": 5}, "exclusive is a list of arguments, such as ['is_causal'], not 5"),
    "an_exclusive_argument": ({"exclusive": "mask"}, "--exclusive mask: expected two or more arguments"),
    "a_negative_time": ({"timeout": -1}, "timeout: -1 is not a positive number of seconds"),
    "a_time_in_words": ({"timeout": "5"}, "timeout is a number, not '5'"),
    "a_percentage": ({"min_judged": 50}, "min_judged is a share from 0 to 1, not 50"),
    "a_case_path_that_is_a_number": (
        {"case_paths": 5},
        "case_paths is a list of case files or folders, such as ['cases'], not 5",
    ),
    "a_case_path_that_is_missing": ({"case_paths": "won"}, "case_paths: there is no case file or folder won"),
    "a_head_dim_of_zero": ({"head_dims": 0}, "--head-dim 0: expected a positive number"),
    "a_head_dim_in_words": ({"head_dims": ["64"]}, "head_dims: expected an integer, not '64'"),
    "a_negative_multiple": ({"seq_len_multiple": -3}, "--seq-len-multiple -3: expected a positive number"),
    "a_broken_multiple": ({"seq_len_multiple": 2.5}, "seq_len_multiple: expected an integer, not 2.5"),
    "a_text_of_every_exception": ({"declines": " "}, "--declines: expected a part of an exception's text"),
    "an_unknown_operator": ({"operator": "sdap"}, "--operator sdap: expected one of sdpa, mha"),
    "a_function_to_replace": ({"like": len}, "like is a string, not <built-in function len>"),
    "options_of_the_subject": (
        {"like": "torch.sdpa", "layout": "bshd"},
        "--operator, --framework, --layout, --device, --map, --exclusive, --head-dim and",
    ),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
@pytest.mark.parametrize("asked", [conformance.check, cases_of])
def test_a_wrong_option_is_told_before_anything_is_run(
    plain: ModuleType, asked: Callable[..., object], name: str
) -> None:
    options, said = WRONG_OPTIONS[name]
    with pytest.raises(CheckError, match=re.escape(said)):
        asked(plain.right, **options)


def test_a_wrong_declaration_is_told_with_the_cases(plain: ModuleType) -> None:
    with pytest.raises(CheckError, match="there is no decision 'dead_row'"):
        cases_of(plain.right, declare={"dead_row": "nan"})


OWN_CASES = """\
format: 1
suite: mine
summary: The shapes of a model.
defaults: {operator: sdpa, batch: 2, num_heads: 3, seq_len_q: 5, seq_len_k: 7, head_dim: 11}
cases:
  - name: masked
    masks: [{kind: attention, pattern: holes}]
"""


def test_own_cases_are_judged_instead_of_the_packaged_ones(plain: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(OWN_CASES, encoding="utf-8")
    result = conformance.check(plain.inverted_mask, case_paths=[path], out=tmp_path / "out")
    assert list(result.outcomes) == ["mine/masked"]
    assert not result.conforms
    assert f"--cases {path}" in result.text
    assert cases_of(plain.right, case_paths=str(path)) == ("mine/masked",)
    path.write_text(OWN_CASES.replace("holes", "hoels"), encoding="utf-8")
    with pytest.raises(CheckError, match=r"mine.yaml:7:40: pattern: 'hoels' is not valid; did you mean 'holes'"):
        cases_of(plain.right, case_paths=path)


def test_the_run_folder_may_be_given_as_a_string(plain: ModuleType, tmp_path: Path) -> None:
    result = conformance.check(plain.right, cases="shapes/cross*", out=str(tmp_path / "out"))
    assert result.folder == tmp_path / "out"
    assert (tmp_path / "out" / "index.html").is_file()


def test_a_run_folder_that_cannot_be_written_is_told_in_a_sentence(plain: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckError, match=r"file/out cannot be written: .*; nothing was run: choose another --out"):
        conformance.check(plain.right, out=tmp_path / "file" / "out")
    with pytest.raises(CheckError, match="out is the path of a folder, not 5"):
        conformance.check(plain.right, **NO_PATH)


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
