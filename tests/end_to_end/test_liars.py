"""
Each planted bug fails in a named case, honest subjects pass, and a process that misbehaves costs one verdict.

The tests take the whole path: case files, routing, worker processes, judging, gate, run folder.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..running import conformance, records

FAKES = Path(__file__).parents[1] / "fakes"
Record = dict[str, Any]

MUST_CATCH = {
    "inverted_mask": ("masks/attention_2d/holes[operator=sdpa]", "polarity[attn_mask]=ignore"),
    "inverted_padding": ("masks/key_padding/trailing[operator=mha]", "polarity[key_padding_mask]=ignore"),
    "ignored_padding": ("masks/key_padding/trailing[operator=sdpa]", "use[key_padding_mask]=ignored"),
    "transposed_mask": ("masks/attention_2d/square_holes[operator=sdpa]", "mask_axes[attn_mask]=transposed"),
    "bottom_right": (
        "causal/rectangular/more_keys[operator=sdpa,masks.0.offset=start]",
        "causal_alignment=bottom_right",
    ),
    "missing_scale": ("shapes/cross_attention/three_tensors[operator=sdpa]", "scale=none"),
    "softmax_over_queries": ("shapes/cross_attention/three_tensors[operator=mha]", "softmax_axis=queries"),
    "interleaved_heads": ("shapes/self_attention/one_tensor[operator=mha]", "head_split=interleaved"),
    "fill_minus_1e4": ("masks/key_padding/trailing[operator=sdpa]", "mask_fill=minus_1e4"),
    "uniform_fully_masked_row": ("degenerate/fully_masked_row/boolean[operator=sdpa]", "fully_masked_row=uniform"),
    "zero_against_declared_uniform": ("degenerate/fully_masked_row/boolean[operator=sdpa]", "fully_masked_row=zero"),
    "swapped_value": ("shapes/cross_attention/three_tensors[operator=sdpa]", "value_path=reversed"),
    "averaged_weights": ("shapes/cross_attention/with_weights[operator=mha]", "returned_weights=averaged"),
    "result_in_float64": ("shapes/cross_attention/three_tensors[operator=sdpa]", "result_dtype=float64"),
}


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    code: int
    stdout: str
    stderr: str
    folder: Path
    records: list[Record]

    @property
    def cells(self) -> dict[tuple[str, str], Record]:
        return {(r["case"], r["subject"]): r for r in self.records if r["type"] == "cell"}


@pytest.fixture(scope="module")
def conformance_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Finished]:
    def run(*arguments: str) -> Finished:
        folder = tmp_path_factory.mktemp("run") / "out"
        done = conformance("run", "--out", str(folder), *arguments)
        log = records(folder) if (folder / "run.jsonl").is_file() else []
        return Finished(done.returncode, done.stdout, done.stderr, folder, log)

    return run


@pytest.fixture(scope="module")
def varied(conformance_run: Callable[..., Finished]) -> Finished:
    liars = [word for lie in MUST_CATCH for word in ("-a", f"{FAKES / 'varied.py'}[{lie}]")]
    cases = sorted({case for case, _ in MUST_CATCH.values()})
    return conformance_run(*liars, *(word for case in cases for word in ("-k", case)))


@pytest.mark.parametrize("lie", sorted(MUST_CATCH))
def test_every_planted_bug_is_caught_by_its_case_and_named(varied: Finished, lie: str) -> None:
    case, cause = MUST_CATCH[lie]
    record = varied.cells[case, f"fake.varied[{lie}]"]
    assert (record["verdict"], record["class"]) == ("fail", "semantic")
    found = record["explanation"]
    assert cause in {f"{found['decision']}={found['name']}", *record["ties"]}


def test_a_run_with_planted_bugs_is_rejected_and_says_how_to_rerun_a_cell(varied: Finished) -> None:
    assert varied.code == 1
    verdict = json.loads((varied.folder / "verdict.json").read_text(encoding="utf-8"))
    assert (verdict["exit_code"], verdict["conforms"]) == (1, False)
    case, _ = MUST_CATCH["missing_scale"]
    rerun = varied.cells[case, "fake.varied[missing_scale]"]["rerun"]
    assert rerun.startswith("conformance run -a ")
    assert rerun.endswith(f"-k '{case}'")


# The sentence that explains all verdicts of each liar; nothing explains the last one.
DIAGNOSES: dict[str, str] = {
    "inverted_mask": "reads True in attn_mask as: ignore this key; workaround: pass ~attn_mask",
    "ignored_padding_unless_square": (
        "ignores key_padding_mask, only with seq_len_q != seq_len_k; "
        "workaround: pass this mask in another mask argument, if there is one"
    ),
    "missing_scale_for_one_item": (
        "does not scale the logits, only with batch = 1; "
        "workaround: multiply the query (in a layer: wq and bq) by the scale"
    ),
    "reversed_values_with_a_mask": (
        "applies the weights to the values in reverse key order, only with a mask; "
        "fix: in the function, apply the weights to the values in the order of the keys"
    ),
    "next_head_in_float16": (
        "applies the weights to the values of the next head, only in float16; "
        "fix: in the function, apply the weights to the values of the same head"
    ),
    "tf32": (
        "rounds like code that rounds the operands of matrix products to tf32: coarser than its arithmetic profile; "
        "workaround: if this rounding is not intended, set the precision of matrix products to 'highest'"
    ),
    "unheard_of": "",
}

TWO_MISTAKES = "missing_scale_and_reversed_values"
# Its diagnosis: one sentence for each mistake.
SENTENCES = (
    "does not scale the logits; workaround: multiply the query (in a layer: wq and bq) by the scale",
    (
        "applies the weights to the values in reverse key order; "
        "fix: in the function, apply the weights to the values in the order of the keys"
    ),
)


@pytest.fixture(scope="module")
def diagnosed(conformance_run: Callable[..., Finished]) -> Finished:
    masks = ("masks/attention_2d/*", "masks/key_padding/*")
    chosen = (*masks, "shapes/self*", "shapes/cross*", "shapes/lengths/*", "numerics/half*")
    liars = [word for lie in (*DIAGNOSES, TWO_MISTAKES) for word in ("-a", f"{FAKES / 'varied.py'}[{lie}]")]
    return conformance_run(*liars, *(word for glob in chosen for word in ("-k", glob)))


@pytest.mark.parametrize("lie", sorted(DIAGNOSES))
def test_one_sentence_explains_all_verdicts_of_a_liar(diagnosed: Finished, lie: str) -> None:
    name = f"fake.varied[{lie}]"
    failing = sum(cell["verdict"] == "fail" for (_, subject), cell in diagnosed.cells.items() if subject == name)
    (record,) = (each for each in diagnosed.records if each["type"] == "diagnosis" and each["subject"] == name)
    assert failing == record["failures"] >= 5
    if not DIAGNOSES[lie]:
        assert (record["causes"], len(record["unexplained"])) == ([], failing)
        return
    said = f"1 cause explains {failing} verdicts of {name}: it {DIAGNOSES[lie]}"
    summary = (diagnosed.folder / "summary.md").read_text(encoding="utf-8")
    assert said in diagnosed.stdout.splitlines()
    assert said in (diagnosed.folder / "junit.xml").read_text(encoding="utf-8").replace("&gt;", ">")
    assert f"1 cause explains {failing} verdicts of `{name}`: " in summary


def test_each_mistake_of_a_liar_has_a_sentence_and_together_they_explain_all_verdicts(diagnosed: Finished) -> None:
    name = f"fake.varied[{TWO_MISTAKES}]"
    failing = {
        case for (case, subject), cell in diagnosed.cells.items() if (subject, cell["verdict"]) == (name, "fail")
    }
    (record,) = (each for each in diagnosed.records if each["type"] == "diagnosis" and each["subject"] == name)
    assert failing == {case for cause in record["separated"] for case in cause["cells"]}
    assert len(failing) >= 10
    told = [line for line in diagnosed.stdout.splitlines() if f" of {name}: it " in line]
    assert {line.partition(": it ")[2] for line in told} == {*SENTENCES}
    junit = (diagnosed.folder / "junit.xml").read_text(encoding="utf-8")
    assert all(f": it {sentence}" in junit for sentence in SENTENCES)


def test_the_honest_one_passes_every_case_in_every_dtype(conformance_run: Callable[..., Finished]) -> None:
    done = conformance_run("-a", f"{FAKES / 'varied.py'}[honest]")
    passed = [record for record in done.cells.values() if record["verdict"] == "pass"]
    declined = [record["reason"] for record in done.cells.values() if record["verdict"] == "unsupported"]
    assert done.code == 0, done.stdout
    assert len(passed) > 300
    assert len(passed) + len(declined) == len(done.cells)
    honest = ("does not support: ", "returns no gradients", "no tensor carries an attached mask")
    assert all(why.startswith(honest) or why.endswith("the mistake cannot be made") for why in declined), declined


SUITE = """\
format: 1
suite: small
summary: Honest but for one call.
defaults: {operator: sdpa, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7}
cases:
  - name: plain
    matrix: {batch: [1, 2, 13, 3, 4]}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "cases"
    folder.mkdir()
    (folder / "small.yaml").write_text(SUITE, encoding="utf-8")
    return folder


BREAKS = {
    "segfault": "crash",
    "abort": "crash",
    "exit": "crash",
    "exit_zero": "crash",
    "hang": "timeout",
    "flood_stdout": "pass",
    "flood_stderr": "pass",
    "raise_inside": "error",
    "raise_outside": "error",
    "too_large": "error",
    "memory": "error",
    "wrong_dtype": "fail",
    "decline": "unsupported",
}


def test_a_process_that_misbehaves_costs_exactly_one_verdict(
    conformance_run: Callable[..., Finished], small: Path
) -> None:
    chosen = [word for lie in BREAKS for word in ("-a", f"{FAKES / 'liar.py'}[{lie}]")]
    done = conformance_run(str(small), "--timeout", "2", *chosen)
    verdicts = {
        lie: {case: record["verdict"] for (case, subject), record in done.cells.items() if subject.endswith(f"[{lie}]")}
        for lie in BREAKS
    }
    expected = {
        lie: {f"small/plain[batch={n}]": verdict if n == 13 else "pass" for n in (1, 2, 13, 3, 4)}
        for lie, verdict in BREAKS.items()
    }
    assert verdicts == expected
    assert done.code == 1


def test_the_report_of_a_crash_has_what_stderr_said_and_the_command_that_reruns_it(
    conformance_run: Callable[..., Finished], small: Path
) -> None:
    liar = f"{FAKES / 'liar.py'}[segfault]"
    done = conformance_run(str(small), "-a", liar, "-k", "small/plain[batch=13]")
    (record,) = done.cells.values()
    assert record["verdict"] == "crash"
    assert "SIGSEGV" in record["reason"]
    assert liar in record["rerun"]
    assert (done.folder / "index.html").is_file()


def test_a_tie_names_the_case_that_was_not_asked_and_would_tell(conformance_run: Callable[..., Finished]) -> None:
    """With one query, is_causal aligned to the last key masks nothing, so it looks like an ignored causal mask."""
    liar = f"{FAKES / 'varied.py'}[bottom_right]"
    asked = "causal/rectangular/one_query[operator=sdpa,masks.0.offset=start]"
    (diagnosis,) = (r for r in conformance_run("-a", liar, "-k", asked).records if r["type"] == "diagnosis")
    (cause,) = diagnosis["causes"]
    ignored, at_the_end = {"causal_mask": "ignored"}, {"causal_alignment": "bottom_right"}
    assert cause["decisions"] == ignored
    tie = next(each for each in cause["ties"] if each["decisions"] == at_the_end)
    both = conformance_run("-a", liar, "-k", asked, "-k", tie["separated_by"])
    (diagnosis,) = (r for r in both.records if r["type"] == "diagnosis")
    (cause,) = diagnosis["causes"]
    assert cause["decisions"] == at_the_end
    assert ignored not in [each["decisions"] for each in cause["ties"]]
