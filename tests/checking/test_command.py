"""`conformance check` as a user runs it."""

import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ..running import conformance

HERE = Path(__file__).parent


EXAMPLES = {
    "sdpa": ("conformance check my_attention.py:attention", "reads True in mask as: ignore this key"),
    "mha": (
        "conformance check my_multi_head_attention.py:multi_head_attention",
        "assigns columns h, h + num_heads, ... of the projections to head h",
    ),
}


def told(text: str) -> str:
    """Return the text without the parts that change with the number of cases."""
    return re.sub(r"(?:\d+|\.\.\.) (?=calls|verdicts)|(?<=-k ).*", "# ", text)


Ended = tuple[Path, CompletedProcess[str], CompletedProcess[str]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ended]:
    """Operator -> the folder in which its example was written and checked, and the results of both commands."""

    @cache
    def run(operator: str) -> Ended:
        folder = tmp_path_factory.mktemp(operator)
        written = conformance("check", "--example", operator, cwd=folder)
        return folder, written, conformance(*shlex.split(EXAMPLES[operator][0])[1:], cwd=folder)

    return run


def test_the_page_shows_what_is_said(tmp_path: Path, ended: Callable[[str], Ended]) -> None:
    folder, _, checked = ended("sdpa")
    page = (HERE.parents[1] / "docs" / "check.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    said = ""
    for command in re.findall(r"^\$ conformance (.*)$", shown, re.MULTILINE):
        same = f"conformance {command}" == EXAMPLES["sdpa"][0]
        done = checked if same else conformance(*shlex.split(command), cwd=tmp_path)
        said += f"$ conformance {command}\n{done.stdout.partition(chr(10) * 2)[0].rstrip()}\n"
    assert told(said) == told(shown)
    assert (tmp_path / "my_attention.py").read_bytes() == (folder / "my_attention.py").read_bytes()


@pytest.mark.parametrize("operator", sorted(EXAMPLES))
def test_the_example_is_written_once_and_its_mistake_is_named(ended: Callable[[str], Ended], operator: str) -> None:
    command, cause = EXAMPLES[operator]
    folder, written, done = ended(operator)
    assert written.returncode == 0
    assert written.stdout.splitlines()[-1] == command
    assert done.returncode == 1
    first, cause_line, fix, intended, again, *_ = done.stdout.splitlines()
    declared = {"sdpa": "'polarity[mask]=ignore'", "mha": "head_split=interleaved"}[operator]
    assert intended == f"   if intended: --declare {declared}"
    assert first.startswith(f"{shlex.split(command)[-1]} does not conform: 1 cause in ")
    assert cause_line.startswith(f"1. it {cause} (")
    assert fix.startswith("   workaround: ")
    assert again.startswith(f"   rerun: {command} -k ")
    assert done.stdout.count(cause) == 1
    assert (folder / "reports" / "latest" / "index.html").is_file()
    assert done.stdout.splitlines()[-1].startswith("Report: reports/")
    second = conformance("check", "--example", operator, cwd=folder)
    assert second.returncode == 4
    assert "exists already and was not changed" in second.stderr


SUITE = """\
format: 1
suite: mine
summary: The shapes of a model.
defaults: {operator: sdpa, batch: 2, num_heads: 3, seq_len_q: 5, seq_len_k: 7, head_dim: 11}
cases:
  - name: plain
  - name: masked
    masks: [{kind: attention, pattern: holes}]
"""


def test_cases_of_ones_own_are_judged_instead_of_the_packaged_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((HERE / "checked_sdpa.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.yaml").write_text(SUITE, encoding="utf-8")
    command = ("check", "mine.py:inverted_mask", "--cases", "own")
    done = conformance(*command, "--out", "run", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "does not conform: 1 cause in 2 calls judged." in done.stdout
    assert f"rerun: conformance {' '.join(command)} -k mine/masked" in done.stdout
    again = conformance("repro", "run", "mine/masked", "mine.inverted_mask", "--out", "script", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert conformance(*command, "-k", "mine/plain", cwd=tmp_path).returncode == 0
    for words, said in (
        (["--cases", "won"], "there is no case file or folder won; did you mean own?"),
        (["--cases", "own", "--dtype", "float16"], "no case is in float16"),
        (["--cases", "own", "-k", "mien/*"], "no sdpa case matches mien/*; did you mean 'mine/*'?"),
    ):
        wrong = conformance("check", "mine.py:inverted_mask", *words, cwd=tmp_path)
        assert (wrong.returncode, said in wrong.stderr) == (4, True), wrong.stderr
    (tmp_path / "layer.py").write_text((HERE / "checked_mha.py").read_text(encoding="utf-8"), encoding="utf-8")
    other = conformance("check", "layer.py:right", "--cases", "own", cwd=tmp_path)
    assert (other.returncode, other.stderr.splitlines()[-1]) == (
        4,
        "conformance: own has no case of the operator mha",
    )


def test_a_module_is_checked_as_it_is_imported(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("from .layers import *\n", encoding="utf-8")
    (package / "layers.py").write_text("from .layers_of import inverted_mask\n", encoding="utf-8")
    (package / "layers_of.py").write_text((HERE / "checked_sdpa.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = conformance("check", "mine:inverted_mask", "-k", "masks/attention_2d/holes*", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "1. it reads True in mask as: ignore this key" in done.stdout
    assert "rerun: conformance check mine:inverted_mask -k 'masks/attention_2d/holes" in done.stdout
    missing = conformance("check", "mine:no_such_thing", cwd=tmp_path)
    assert missing.returncode == 4
    assert "module 'mine' has no attribute 'no_such_thing'" in missing.stderr
    (package / "fast.py").write_text("compiled = max\n", encoding="utf-8")
    compiled = conformance("check", "mine.fast:compiled", cwd=tmp_path)
    assert compiled.returncode == 4
    assert "<built-in function max> cannot be read, because it is compiled: write a function with" in compiled.stderr


def test_it_tells_as_much_as_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((HERE / "checked_sdpa.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = ("check", "mine.py:inverted_mask", "-k", "masks/key_padding/holes*", "--durations", "2")
    brief, full = (conformance(*command, level, cwd=tmp_path) for level in ("-q", "-v"))
    assert brief.stderr == ""
    assert "fail: masks/key_padding/holes[operator=sdpa] on mine.inverted_mask, 0.0" in full.stderr
    assert "mine.inverted_mask  judged" in full.stdout
    assert "mine.inverted_mask  judged" not in brief.stdout
    assert "reads True in mask as: ignore this key" in brief.stdout
    shown = brief.stdout.partition("The slowest 2 calls of ")[2].splitlines()[1:3]
    assert all(re.fullmatch(r" +\d+\.\d{3} s  \S+ on mine\.inverted_mask(\[dense\])?", line) for line in shown)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no function given: expected FILE:FUNCTION, such as mine.py:attention, or --example"),
        (["nowhere.py:f"], "there is no file nowhere.py"),
        (["nowhere.py:f", "--example"], "--example writes its own function: leave FILE:FUNCTION out"),
        (["checked_sdpa.py:rihgt"], "did you mean right?"),
        (["checked_sdpa.py:right", "--declare", "dead=nan"], "there is no decision 'dead'"),
        (["checked_sdpa.py:right", "--operator", "sdap"], "invalid choice: 'sdap'"),
        (
            ["checked_sdpa.py:right", "--out", "checked_sdpa.py/out"],
            "the folder checked_sdpa.py/out cannot be written: Not a directory; nothing was run: choose another --out",
        ),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_leaves_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "checked_sdpa.py").write_bytes((HERE / "checked_sdpa.py").read_bytes())
    done = conformance("check", *arguments, cwd=tmp_path)
    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("reports/*"))


def test_a_run_folder_is_not_written_over(tmp_path: Path) -> None:
    again = ("check", str(HERE / "checked_sdpa.py:right"), "-k", "shapes/cross*", "--out", "out")
    assert conformance(*again, cwd=tmp_path).returncode == 0
    done = conformance(*again, cwd=tmp_path)
    assert (done.returncode, "out has a run already: choose another --out" in done.stderr) == (4, True)


def test_a_baseline_tells_what_changed_since(tmp_path: Path) -> None:
    conformance("check", "--example", cwd=tmp_path)
    path = tmp_path / "my_attention.py"
    wrong = path.read_text(encoding="utf-8")
    command = ("check", "my_attention.py:attention", "-k", "masks/key_padding*", "--baseline", "baseline.json")
    absent = conformance(*command, cwd=tmp_path)
    assert (
        absent.returncode,
        "there is no baseline baseline.json: write it with --update-baseline" in absent.stderr,
    ) == (4, True)

    path.write_text(wrong.replace("np.where(mask, -np.inf, logits)", "np.where(mask, logits, -np.inf)"), "utf-8")
    written = conformance(*command, "--update-baseline", cwd=tmp_path)
    assert (written.returncode, written.stdout.splitlines()[-1]) == (0, "Baseline: baseline.json")
    same = conformance(*command, cwd=tmp_path)
    assert (same.returncode, "\nAgainst baseline.json:\nUnchanged: " in same.stdout) == (0, True)

    path.write_text(wrong, encoding="utf-8")
    changed = conformance(*command, "--exit-zero", "--out", "changed", cwd=tmp_path)
    assert changed.returncode == 0
    assert "problem: against baseline.json: regressed: " in changed.stdout
    assert "note: the function my_attention.attention (or the way it is called) differs" in changed.stdout

    path.rename(tmp_path / "mine.py")
    renamed = conformance("check", "mine.py:attention", *command[2:], cwd=tmp_path)
    assert renamed.returncode == 1  # its mistake counts more

    damaged = tmp_path / "baseline.json"
    damaged.write_text(damaged.read_text(encoding="utf-8")[:99], encoding="utf-8")
    refused = conformance("check", "mine.py:attention", *command[2:], cwd=tmp_path)
    again = "write it again with conformance check mine.py:attention --baseline baseline.json --update-baseline"
    assert (refused.returncode, again in refused.stderr) == (4, True)


def test_a_right_function_with_a_new_name_does_not_pass_without_a_comparison(tmp_path: Path) -> None:
    (tmp_path / "checked_sdpa.py").write_bytes((HERE / "checked_sdpa.py").read_bytes())
    options = ("-k", "shapes/cross*", "--baseline", "baseline.json")
    conformance("check", "checked_sdpa.py:right", *options, "--update-baseline", cwd=tmp_path)
    (tmp_path / "checked_sdpa.py").rename(tmp_path / "renamed.py")
    done = conformance("check", "renamed.py:right", *options, cwd=tmp_path)
    assert done.returncode == 5
    assert done.stdout.startswith("renamed.py:right is not accepted: ")
    assert (
        "against baseline.json: nothing was compared: the file has checked_sdpa.right, not renamed.right: if this is a "
        "new name, write the baseline again with --update-baseline" in done.stdout
    )
    updated = conformance("check", "renamed.py:right", *options, "--update-baseline", cwd=tmp_path)
    assert updated.returncode == 0
