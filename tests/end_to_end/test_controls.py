"""
No run is green without a judged call: a subject that never replies is reported first, and the run is incomplete.

A refusal counts only if the valid call has a reply.
"""

import json
from pathlib import Path

from ..running import cells as cells_of
from ..running import conformance

FAKE = str(Path(__file__).parents[1] / "fakes" / "broken.py")
PLAIN = "shapes/self_attention/three_tensors[operator=sdpa]"
MASKED = "shapes/mistakes/valid_mask[operator=sdpa]"
PADDED = "shapes/mistakes/valid_padding[operator=sdpa]"
SHORT = "shapes/mistakes/inputs[operator=sdpa,mistake=value_positions]"
SAID = "fake.broken[always] does not work here: every one of its "


def test_a_subject_without_any_reply_is_told_first_and_the_run_is_incomplete(tmp_path: Path) -> None:
    words = ["-k", PLAIN, "-k", MASKED, "--out", str(tmp_path / "out")]
    done = conformance("run", "-a", f"{FAKE}[always]", "-a", f"{FAKE}[honest]", *words)
    assert done.returncode == 7
    conclusion = next(line for line in done.stdout.splitlines() if line.startswith("Incomplete: "))
    assert conclusion.startswith(f"Incomplete: {SAID}")
    assert " calls failed: RuntimeError: node " in conclusion
    assert "Unrecognized attribute: causal for operator Attention; 2 of 4 judged calls are rejected." in conclusion
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["exit_code"] == 7
    assert list(verdict["gate"]["not_working"]) == ["fake.broken[always]"]


def test_where_plain_calls_work_what_raises_is_a_failure_with_its_condition(tmp_path: Path) -> None:
    words = ["-a", f"{FAKE}[with_a_mask]", "-k", MASKED, "-k", PADDED, "--out", str(tmp_path / "out")]
    done = conformance("run", *words)
    assert done.returncode == 1
    assert "does not work here" not in done.stdout
    done = conformance("run", *words[:-1], str(tmp_path / "more"), "-k", PLAIN)
    first, fact = done.stdout.partition("2 verdicts of ")[2].splitlines()[:2]
    assert first.startswith("fake.broken[with_a_mask] (error): RuntimeError: node ")
    assert fact == "  it fails only with a mask"


def test_a_refusal_says_nothing_where_the_valid_call_is_refused_too(tmp_path: Path) -> None:
    words = ["-a", f"{FAKE}[always]", "-a", f"{FAKE}[honest]", "-k", SHORT, "--out", str(tmp_path / "out")]
    assert conformance("run", *words).returncode == 7
    found = cells_of(tmp_path / "out")
    doubtful = found[SHORT, "fake.broken[always]"]
    assert doubtful["verdict"] == "inconclusive"
    assert doubtful["reason"].startswith(
        "refused, but the valid call, without the mistake, has no reply either: RuntimeError: node "
    )
    assert found[SHORT, "fake.broken[honest]"]["verdict"] == "pass"


def test_what_does_not_work_on_either_side_is_not_compared(tmp_path: Path) -> None:
    for side, variant in (("works", "honest"), ("broken", "always")):
        text = Path(FAKE).read_text(encoding="utf-8").replace('variant == "always"', f'"{variant}" == "always"')
        adapter = tmp_path / side / "broken.py"
        adapter.parent.mkdir()
        adapter.write_text(text, encoding="utf-8")
        (adapter.parent / "_honest.py").write_text(
            (Path(FAKE).parent / "_honest.py").read_text(encoding="utf-8"), encoding="utf-8"
        )
        words = ["-a", f"{adapter}[always]", "-k", PLAIN, "-k", MASKED, "--out", str(tmp_path / side / "out")]
        conformance("run", *words)
    works, broken = (str(tmp_path / side / "out") for side in ("works", "broken"))
    for base, candidate in ((works, broken), (broken, works), (broken, broken)):
        done = conformance("compare", base, candidate)
        assert done.returncode == 7
        assert done.stdout.splitlines()[0].startswith(f"Incomplete: {broken}: {SAID}")
        assert "fixed" not in done.stdout.casefold()
    assert conformance("compare", works, works).stdout.splitlines()[0] == (
        "Unchanged: 2 verdicts on 1 subject, judged on both sides"
    )
