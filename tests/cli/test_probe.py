"""`conformance probe` and `conformance port` as a user runs them, with fake subjects that lie and real frameworks."""

import html
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from ..running import conformance as run

FAKES = Path(__file__).parents[1] / "fakes"
VARIED = str(FAKES / "varied.py")
LIES = ("inverted_mask", "uniform_fully_masked_row", "zero_against_declared_uniform")

Record = dict[str, Any]


@dataclass(frozen=True)
class Done:
    """A finished command, with the JSON that it wrote."""

    code: int
    stdout: str
    stderr: str
    found: Record
    folder: Path

    @cached_property
    def decisions(self) -> Mapping[str, Mapping[str, Record]]:
        """Subject -> decision -> what was found."""
        return {
            subject["subject"]: {each["decision"]: each for each in subject["decisions"]}
            for subject in self.found["subjects"]
        }

    def observed(self, subject: str, decision: str) -> dict[str, str]:
        """Circumstance -> the first observed choice."""
        seen = self.decisions[subject][decision]["observations"]
        return {each["circumstance"]: each["observed"][0] for each in seen}

    def statuses(self, subject: str) -> dict[str, str]:
        """Decision -> status, for decisions that were reached and do not agree with the declaration."""
        quiet = ("agrees", "not reached")
        return {name: each["status"] for name, each in self.decisions[subject].items() if each["status"] not in quiet}


def conformance(folder: Path, *words: str) -> Done:
    done = run(*words, "--out", str(folder / "out"), "--json", "found.json", cwd=folder)
    file = folder / "found.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return Done(done.returncode, done.stdout, done.stderr, found, folder / "out")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return conformance(tmp_path_factory.mktemp("probe"), "probe", "-a", f"{VARIED}[honest]")


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Done:
    subjects = (word for lie in LIES for word in ("-a", f"{VARIED}[{lie}]"))
    return conformance(tmp_path_factory.mktemp("probe"), "probe", *subjects)


@pytest.mark.parametrize("command", ["probe", "port"])
def test_help_has_an_example(command: str) -> None:
    done = run(command, "--help")
    assert f"example: conformance {command} " in done.stdout


def test_an_honest_subject_conforms(honest: Done) -> None:
    assert honest.code == 0, honest.stderr
    assert honest.statuses("fake.varied[honest]") == {}
    assert honest.observed("fake.varied[honest]", "polarity[attn_mask]") == {"": "attend"}
    assert honest.observed("fake.varied[honest]", "fully_masked_row") == {"": "zero"}


def test_the_page_and_the_terminal_say_the_same(honest: Done) -> None:
    assert honest.stdout.startswith("fake.varied[honest]: ")
    page = (honest.folder / "probe.md").read_text(encoding="utf-8")
    for decision in ("polarity[attn_mask]", "causal_alignment", "fully_masked_row"):
        (told,) = [line for line in honest.stdout.splitlines() if line.startswith(decision)]
        (shown,) = [line for line in page.splitlines() if line.startswith(f"| `{decision}`")]
        declared = [cell.strip().replace("\\", "") for cell in shown.split("|")][2]
        assert declared in told
    assert "\x1b" not in honest.stdout


def test_the_run_folder_is_one_that_reports_are_made_of(honest: Done) -> None:
    names = {path.name for path in honest.folder.iterdir()}
    assert names >= {"run.jsonl", "verdict.json", "index.html", "summary.md", "probe.md", "probe.json"}
    assert json.loads((honest.folder / "probe.json").read_text(encoding="utf-8")) == honest.found
    page = (honest.folder / "index.html").read_text(encoding="utf-8")
    assert page.index(honest.found["subjects"][0]["conclusion"]) < page.index("Conforms: ")
    assert ">Declared and observed: <span" in page[: page.index("Conforms: ")]


def test_a_contradiction_fails_and_only_its_decision_is_named(lying: Done) -> None:
    assert lying.code == 1, lying.stderr
    assert {lie: lying.statuses(f"fake.varied[{lie}]") for lie in LIES} == {
        "inverted_mask": {"polarity[attn_mask]": "contradicted"},
        "uniform_fully_masked_row": {"fully_masked_row": "contradicted"},
        "zero_against_declared_uniform": {"fully_masked_row": "contradicted"},
    }


def test_declared_stands_beside_observed(lying: Done) -> None:
    def seen(lie: str, decision: str) -> list[tuple[str, str]]:
        found = lying.decisions[f"fake.varied[{lie}]"][decision]["observations"]
        return [(each["declared"][0], each["observed"][0]) for each in found]

    assert seen("inverted_mask", "polarity[attn_mask]") == [("attend", "ignore")]
    assert seen("uniform_fully_masked_row", "fully_masked_row") == [("zero", "uniform")]
    assert seen("zero_against_declared_uniform", "fully_masked_row") == [("uniform", "zero")]


def test_a_contradiction_comes_with_the_command_that_shows_it(lying: Done, tmp_path: Path) -> None:
    found = lying.decisions["fake.varied[uniform_fully_masked_row]"]["fully_masked_row"]
    assert f"fully_masked_row: {found['rerun']}" in lying.stdout
    tool, *command = shlex.split(found["rerun"])
    assert tool == "conformance"
    done = run(*command, "--out", str(tmp_path / "again"), cwd=lying.folder.parent)
    assert done.returncode == 1
    assert "returns the mean of V over all keys for a fully masked row" in done.stdout


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("port")
    return conformance(folder, "port", f"{VARIED}[honest]", f"{VARIED}[inverted_mask]")


def test_port_says_what_to_change_and_shows_it_by_one_case(ported: Done) -> None:
    assert ported.code == 0, ported.stderr
    (difference,) = ported.found["differences"]
    assert difference["decision"] == {"from": "polarity[attn_mask]", "to": "polarity[attn_mask]"}
    assert difference["observed"] == {"from": "attend", "to": "ignore"}
    assert difference["changes"] == ["pass ~attn_mask as attn_mask"]
    assert difference["case"].startswith("verbatim/attention/")
    assert "change: pass ~attn_mask" in ported.stdout


def test_the_command_that_shows_a_difference_runs_an_adapter_of_the_users(ported: Done, tmp_path: Path) -> None:
    (line, *_) = (line.strip() for line in ported.stdout.splitlines() if line.startswith("    see: "))
    tool, *command = shlex.split(line.removeprefix("see: "))
    assert tool == "conformance"
    done = run(*command, "--out", str(tmp_path / "again"), cwd=ported.folder.parent)
    assert done.returncode == 1, done.stderr
    assert "fake.varied[inverted_mask]" in done.stdout


def test_what_port_found_is_printed_again_from_the_run_folder_and_stands_on_its_page(ported: Done) -> None:
    done = run("port", "--run", str(ported.folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert ported.stdout.startswith(done.stdout)
    assert ported.stdout.removeprefix(done.stdout) == f"Report: {ported.folder / 'index.html'}\n"
    page = (ported.folder / "index.html").read_text(encoding="utf-8")
    index = json.loads(page.split('<script type="application/json" id="index">')[1].split("</script>")[0])
    assert index["port"] == {side: ported.found[side] for side in ("from", "to")}
    for each in ported.found["differences"]:
        assert html.escape(each["sentences"]["to"], quote=False) in page[: page.index('class="verdicts-title"')]
    assert "Declared and observed</h2>" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give FROM and TO, such as torch.mha 'keras.mha[jax]', or --run DIR"),
        (["torch.mha"], "give FROM and TO"),
        (["--run", "nowhere"], "there is no nowhere/port.json: conformance port FROM TO --out nowhere writes it"),
        (["torch.mha", "keras.mha", "--run", "nowhere"], "leave FROM and TO out"),
    ],
)
def test_port_needs_two_subjects_or_a_run(words: list[str], said: str, tmp_path: Path) -> None:
    done = run("port", *words, cwd=tmp_path)
    assert done.returncode == 4
    assert said in done.stderr


def test_port_refuses_what_is_one_subject(tmp_path: Path) -> None:
    done = conformance(tmp_path, "port", f"{VARIED}[honest]", f"{VARIED}[honest]")
    assert done.code == 4
    assert "are both fake.varied[honest]" in done.stderr


def test_port_refuses_subjects_of_different_operators(tmp_path: Path) -> None:
    done = conformance(tmp_path, "port", "numpy.sdpa", "numpy.mha")
    assert done.code == 4
    assert (
        "numpy.sdpa computes attention without projections (sdpa) and numpy.mha computes multi-head attention"
        in done.stderr
    )
    assert "calls can move only between subjects of one operator" in done.stderr


def test_port_says_how_many_cases_both_answered_and_nothing_where_there_is_none(ported: Done, tmp_path: Path) -> None:
    assert ported.found["shared"] > 10
    assert f"Where they differ (1; {ported.found['shared']} probe cases were judged on both sides):" in ported.stdout
    done = conformance(tmp_path, "port", f"{VARIED}[honest]", str(FAKES / "import_dies.py"))
    assert done.code == 7
    assert "No probe case was judged on both sides: the differences are unknown." in done.stdout
    assert "alike" not in done.stdout


# ---- real frameworks ---------------------------------------------------------------------------------------------

BY_ELEMENT = {"bool mask": "uniform", "float mask": "nan"}
LEAKS = {"nonfinite_key": {"": "leaks"}, "nonfinite_value": {"": "leaks"}}
ADDED_KEYS_LEAK = {"nonfinite_key": {"": "leaks_where_added"}, "nonfinite_value": {"": "leaks"}}
# The behaviour of frameworks in float32, measured by throw-away scripts that share no code with this harness.
MEASURED: dict[str, dict[str, dict[str, str]]] = {
    "torch.mha[eval]": {
        "polarity[attn_mask]": {"": "ignore"},
        "polarity[key_padding_mask]": {"": "ignore"},
        "float_mask[attn_mask]": {"": "added"},
        "fully_masked_row": {
            "without weights, three tensors": "zero",
            "with weights, three tensors; without weights, one tensor": "nan",
        },
    },
    "torch.mha[train]": {
        "polarity[attn_mask]": {"": "ignore"},
        "fully_masked_row": {"without weights": "zero", "with weights": "nan"},
        "nonfinite_key": {"bool mask": "leaks", "bool mask and flag": "isolated", "float mask": "leaks"},
        "nonfinite_value": {"": "leaks"},
    },
    "torch.sdpa[math]": {
        "polarity[attn_mask]": {"": "attend"},
        "float_mask[attn_mask]": {"": "added"},
        "causal_alignment": {"": "top_left"},
        "fully_masked_row": {"": "zero"},
        **LEAKS,
    },
    "torch.sdpa[flash]": {"causal_alignment": {"": "top_left"}, "fully_masked_row": {"": "zero"}},
    "keras.sdpa[torch]": {
        "polarity[mask]": {"": "attend"},
        "float_mask[mask]": {"": "cast_to_bool"},
        "causal_alignment": {"": "top_left"},
        "fully_masked_row": {"bool mask": "uniform", "float mask": "zero"},
        "nonfinite_key": {"bool mask": "leaks", "flag": "isolated", "float mask": "leaks"},
        "nonfinite_value": {"": "leaks"},
    },
    "jax.sdpa[jit]": {
        "polarity[mask]": {"": "attend"},
        "float_mask[bias]": {"": "added"},
        "causal_alignment": {"": "top_left"},
        "fully_masked_row": BY_ELEMENT,
        **ADDED_KEYS_LEAK,
    },
}


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("torch.mha[eval]", "keras.sdpa[torch]"), id="two"),
        pytest.param(tuple(MEASURED), id="all", marks=pytest.mark.measurement),
    ],
)
def test_real_frameworks_are_read_as_they_were_measured(tmp_path: Path, names: tuple[str, ...]) -> None:
    words = [word for name in names for word in ("-a", name)]
    done = conformance(tmp_path, "probe", *words)
    assert done.code == 0, done.stdout
    measured = {name: MEASURED[name] for name in names}
    assert {name: {d: done.observed(name, d) for d in found} for name, found in measured.items()} == measured
