"""Two sides from pins: which one is base, which versions both share, and the message for a wrong pin."""

from pathlib import Path

import pytest

from conformance.engine.package_pins import (
    Locked,
    PinError,
    Sides,
    parse_pin,
    read_constraints,
    read_pins,
    recipes,
    unmet,
    without_version,
)

HERE = Locked({"keras": "3.12.0", "numpy": "2.4.6", "torch": "2.13.0+cpu"})


def test_the_first_of_a_name_is_base_and_the_second_candidate() -> None:
    found = read_pins(["Keras==3.14.1", "keras==3.15.0", "jax==0.5.0", "jax==0.4.35"], ["numpy==2.0.2"], HERE)
    assert found.base == {"keras": "3.14.1", "jax": "0.5.0"}
    assert found.candidate == {"keras": "3.15.0", "jax": "0.4.35"}
    assert found.both == {"numpy": "2.0.2"}
    assert str(found) == "keras 3.14.1 -> 3.15.0, jax 0.5.0 -> 0.4.35"


def test_a_name_alone_is_the_candidate_against_what_is_installed() -> None:
    assert read_pins(["keras==3.15.0"], [], HERE).base == {"keras": "3.12.0"}
    assert read_pins(["torch==2.12.0"], [], HERE).base == {"torch": "2.13.0"}, "a local version is not on an index"


@pytest.mark.parametrize(
    ("given", "both", "message"),
    [
        (["keras>=3"], [], "'keras>=3': expected NAME==VERSION, such as keras==3.15.0"),
        (["keras"], [], "expected NAME==VERSION"),
        (["keras==3.x"], [], "expected NAME==VERSION"),
        (["keras[jax]==3.15.0"], [], "expected NAME==VERSION"),
        (["jax==0.5.0"], [], "jax==0.5.0 has no base version: jax is not installed here; give both: jax==OLD jax==NEW"),
        (["keras==1", "keras==2", "keras==3"], [], "keras is given 3 times: give it at most twice"),
        (["keras==3.15", "keras==3.15.0"], [], "keras is 3.15 on both sides: there is nothing to compare"),
        (["keras==3.12.0"], [], "keras is 3.12.0 on both sides: there is nothing to compare"),
        (["keras==1", "keras==2"], ["keras==2"], "keras is given twice, as an upgrade and with --both"),
    ],
)
def test_pins_that_make_no_two_sides(given: list[str], both: list[str], message: str) -> None:
    with pytest.raises(PinError) as error:
        read_pins(given, both, HERE)
    assert message in str(error.value)


def test_a_pin_has_a_canonical_name() -> None:
    assert parse_pin("Onnx_Runtime==1.31.1") == ("onnx-runtime", "1.31.1")


def test_both_sides_stand_on_the_same_versions() -> None:
    requires = [("keras>=3", "keras-nightly"), ("torch",), ("tensorflow", "tensorflow-cpu"), ("numpy",)]
    base, candidate = recipes("python", requires, Sides({"keras": "3.14.1"}, {"keras": "3.15.0"}, {}), HERE)
    assert base.requirements == ("keras==3.14.1",)
    assert candidate.requirements == ("keras==3.15.0",)
    assert base.over is not None
    assert base.over == candidate.over
    assert base.over.requirements == ("numpy==2.4.6", "tensorflow", "torch==2.13.0")
    assert base.digest != candidate.digest
    assert base.constraints == ("torch==2.13.0",), "what keras needs may move, torch may not"


def test_a_choice_is_what_is_pinned_then_what_is_locked_then_the_first() -> None:
    requires = [("keras>=3", "keras-nightly"), ("tensorflow", "tensorflow-cpu")]
    sides = Sides({"keras-nightly": "1"}, {"keras-nightly": "2"}, {"tensorflow-cpu": "2.20.0"})
    base, _ = recipes("python", requires, sides, HERE)
    assert base.requirements == ("keras-nightly==1", "tensorflow-cpu==2.20.0")
    assert base.over is not None
    assert base.over.requirements == ("numpy==2.4.6", "tensorflow-cpu==2.20.0")


def test_numpy_itself_may_be_what_changes() -> None:
    base, candidate = recipes("python", [("numpy",)], Sides({"numpy": "2.0.2"}, {"numpy": "2.4.6"}, {}), HERE)
    assert (base.requirements, candidate.requirements) == (("numpy==2.0.2",), ("numpy==2.4.6",))
    assert base.over is not None
    assert base.over.requirements == ()


def test_without_anything_locked_numpy_is_one_that_workers_take() -> None:
    base, _ = recipes("python", [("jax",)], Sides({"jax": "1"}, {"jax": "2"}, {}), Locked({}))
    assert base.over is not None
    assert base.over.requirements == ("numpy>=1.26",)


def test_torch_is_never_installed_without_a_version() -> None:
    sides = Sides({"keras": "3.14.1"}, {"keras": "3.15.0"}, {})
    requires = [("keras",), ("torch",), ("jax",)]
    assert without_version(requires, sides, Locked({})) == ["torch"]
    assert without_version(requires, sides, HERE) == []
    assert without_version(requires, Sides(sides.base, sides.candidate, {"torch": "2.13.0"}), Locked({})) == []


@pytest.mark.parametrize(
    ("requirement", "sentence"),
    [
        ("keras>=3.14", None),
        ("keras>=3.15", "it needs keras>=3.15, and base has 3.14.1"),
        ("keras<3.15", "it needs keras<3.15, and candidate has 3.15.0rc1"),
        ("torch>=2.14", "it needs torch>=2.14, and --both has 2.13.0"),
        ("jax>=99", None),
    ],
)
def test_a_requirement_must_hold_on_both_sides(requirement: str, sentence: str | None) -> None:
    sides = Sides({"keras": "3.14.1"}, {"keras": "3.15.0rc1"}, {"torch": "2.13.0"})
    assert unmet([("numpy",), (requirement,)], sides, Locked({})) == sentence


LOCK = """\
# a lock
--index-url https://example.org/simple
keras==3.12.0 \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
jax>=0.5  # no version, but a condition
numpy == 2.0.2 ; python_version >= "3.8"
torch==2.13.0 ; python_version < "3"
"""


def test_a_lock_file_gives_versions_and_constraints(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text(LOCK, encoding="utf-8")
    found = read_constraints(tmp_path / "lock.txt")
    assert found.versions == {"keras": "3.12.0", "numpy": "2.0.2"}
    assert found.constraints == ("keras==3.12.0", "jax>=0.5", 'numpy == 2.0.2 ; python_version >= "3.8"')
    base, candidate = recipes("python", [("keras",), ("jax",)], read_pins(["keras==3.15.0"], [], found), found)
    assert base.requirements == ("keras==3.12.0",)
    assert candidate.constraints == (), "a pin may change what it needs"
    assert candidate.over is not None
    assert candidate.over.constraints == ("jax>=0.5", 'numpy == 2.0.2 ; python_version >= "3.8"'), "keras is free"
    with pytest.raises(PinError, match=r"onnx==1 has no base version: onnx is not locked in .*lock.txt"):
        read_pins(["onnx==1"], [], found)


@pytest.mark.parametrize(
    ("text", "message"), [("keras=3\n", "lock.txt:1: 'keras=3' is not a requirement"), (None, "cannot be read")]
)
def test_a_lock_file_that_is_none(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "lock.txt").write_text(text, encoding="utf-8")
    with pytest.raises(PinError, match=message):
        read_constraints(tmp_path / "lock.txt")
