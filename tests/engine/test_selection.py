"""An exact name takes precedence, only `*` and `?` are special, and a pattern that selects nothing is an error."""

from pathlib import Path

import pytest

from conformance.engine.adapters import (
    Adapter,
    SelectionError,
    Subject,
    adapter_file,
    read_adapter,
    select,
    subjects_of,
)

FACTS = """
NAME = "{name}"
OPERATORS = ["sdpa"]
REQUIRES = []
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = []
SLOTS = {{"causal": {{"role": "causal"}}}}
VARIANTS = {variants}
declare = sdpa = print
"""


@pytest.fixture
def subjects(tmp_path: Path) -> list[Subject]:
    def adapter(name: str, variants: str) -> Adapter:
        path = tmp_path / f"{name}.py"
        path.write_text(FACTS.format(name=name, variants=variants), encoding="utf-8")
        return read_adapter(path)

    torch = adapter("torch.sdpa", "{'math': {}, 'flash': {}}")
    plain = adapter("numpy.sdpa", "{'plain': {}}")
    return [*subjects_of([torch, plain]), *subjects_of([torch], "cpu", ["old"])]


MATH = ["torch.sdpa[math]", "torch.sdpa[math,dense]"]
FLASH = ["torch.sdpa[flash]", "torch.sdpa[flash,dense]"]
OLD = [f"{name}@cpu:old" for name in MATH + FLASH]
NUMPY = ["numpy.sdpa[plain]", "numpy.sdpa[plain,dense]"]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], MATH + FLASH + NUMPY + OLD),
        (["torch.sdpa[math]"], MATH[:1]),
        (["torch.sdpa[math]@cpu:old"], OLD[:1]),
        (["torch.sdpa[math]@cpu:default"], MATH[:1]),
        (["torch.sdpa"], MATH + FLASH + OLD),
        (["torch.*"], MATH + FLASH + OLD),
        (["*dense]"], [*MATH[1:], *FLASH[1:], *NUMPY[1:], OLD[1], OLD[3]]),
        (["*:old"], OLD),
        (["numpy.sdp?"], NUMPY),
        (["numpy.sdpa[plain]", "torch.sdpa[flash]"], [NUMPY[0], FLASH[0]]),
        (["torch.sdpa[flash]", "torch.*"], FLASH[:1] + MATH + FLASH[1:] + OLD),
        (["*[math]@cpu:default"], MATH[:1]),
    ],
)
def test_patterns(subjects: list[Subject], patterns: list[str], names: list[str]) -> None:
    assert [subject.name for subject in select(subjects, patterns)] == names


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("torch.sdpa[mat]", "'torch.sdpa[math]'"),
        ("torch.sdpa[math", "'torch.sdpa[math]'"),
        ("[nt]umpy.sdpa", "'numpy.sdpa'"),
    ],
)
def test_what_selects_nothing_is_told_with_the_nearest_name(subjects: list[Subject], pattern: str, hint: str) -> None:
    with pytest.raises(SelectionError) as caught:
        select(subjects, ["torch.*", pattern])
    assert str(caught.value) == f"no subject matches {pattern!r}; the nearest name is {hint}"


def test_where_there_is_nothing_nothing_matches() -> None:
    with pytest.raises(SelectionError, match="no subject matches '\\*'"):
        select([], ["*"])


def test_paths_to_adapter_files_are_told_from_names() -> None:
    assert adapter_file("mine/adapter.py") == (Path("mine/adapter.py"), "")
    assert adapter_file("mine/adapter.py[fast]@cpu:old") == (Path("mine/adapter.py"), "[fast]@cpu:old")
    assert adapter_file("torch.*") is None
    assert adapter_file("torch.python[math]") is None


def test_an_adapter_file_selects_its_subjects(subjects: list[Subject]) -> None:
    file = str(subjects[0].adapter.path)
    assert [subject.name for subject in select(subjects, [file])] == MATH + FLASH + OLD
    assert [subject.name for subject in select(subjects, [f"{file}[math]"])] == MATH[:1]
    with pytest.raises(SelectionError, match=r"no subject matches 'torch\.sdpa\[fast\]'"):
        select(subjects, [f"{file}[fast]"])
    with pytest.raises(SelectionError, match=r"the adapter file other\.py has no subject here"):
        select(subjects, ["other.py"])
