"""Fixtures that make cases for tests, from a file or from fields."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.spec.case import Case
from conformance.spec.entry import read_entry
from conformance.spec.loader import load
from conformance.spec.mistakes import CaseFileErrors, Mistake

PLAIN: dict[str, Any] = {
    "name": "plain",
    "operator": "sdpa",
    "batch": 2,
    "num_heads": 3,
    "seq_len_q": 5,
    "seq_len_k": 7,
    "head_dim": 4,
}

# Marks the place in a suite's text where a mistake is expected to be reported.
MARK = "«"


@pytest.fixture(scope="session")
def make() -> Callable[..., Case]:
    """Make a case from PLAIN with some fields replaced or added; without a file."""

    def case(**fields: Any) -> Case:
        made, faults = read_entry(PLAIN | fields, Path("cases/t.yaml"), Path("cases"))
        assert made is not None, faults
        assert not faults
        return made

    return case


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write suite files, {name: text}, into a case folder and return the folder."""

    def files(texts: dict[str, str]) -> Path:
        for name, text in texts.items():
            path = tmp_path / "cases" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(MARK, ""), encoding="utf-8")
        return tmp_path / "cases"

    return files


@pytest.fixture
def cases(write: Callable[..., Path]) -> Callable[[str], tuple[Case, ...]]:
    """Load one suite, cases/t.yaml, with this text."""

    def loaded(text: str) -> tuple[Case, ...]:
        root = write({"t.yaml": text})
        return load([root], root)

    return loaded


@pytest.fixture
def mistakes(write: Callable[..., Path]) -> Callable[..., tuple[Mistake, ...]]:
    """Load suites that must be refused, and return their mistakes."""

    def refused(texts: str | dict[str, str]) -> tuple[Mistake, ...]:
        root = write({"t.yaml": texts} if isinstance(texts, str) else texts)
        with pytest.raises(CaseFileErrors) as caught:
            load([root], root)
        return caught.value.mistakes

    return refused
