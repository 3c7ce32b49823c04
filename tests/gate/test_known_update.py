"""Edits of a list that a run suggests: it removes fixed entries, narrows too wide ones, and keeps those not reached."""

from typing import Any

import pytest

from conformance.engine.logged_cell import LoggedCell, LoggedMask
from conformance.gate.known_file import KnownFile
from conformance.gate.known_update import additions, appended, narrowing, propose
from conformance.spec import yaml_syntax

LIST = """\
format: 1
deviations:
  # ---- the first
  - subject: "a.sdpa[*"
    when: {fully_masked_row: true}
    delta: {decisions: {fully_masked_row: nan}}
    reason: A reason that is long enough.
    link: https://example.org/1

  # ---- the second
  - subject: "b.sdpa[*"
    delta: {decisions: {scale: none}}
    reason: A reason that is long enough.
    link: https://example.org/2
  - subject: c.sdpa
    delta: {decisions: {scale: none}}
    reason: A reason that is long enough.
    link: https://example.org/3
"""
LINES = [4, 11, 15]
CASES = {name: {"operator": "sdpa", "dtype": dtype} for name, dtype in (("x/1", "float32"), ("x/2", "float16"))}


def cell(case: str, subject: str, line: int, outcome: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "cell",
        "case": case,
        "subject": subject,
        "verdict": "pass" if outcome == "conforms" else "fail",
        "covered_by": {f"known.yaml:{line}": outcome},
        **more,
    }


def of_masks(*masks: LoggedMask) -> LoggedCell:
    return LoggedCell(case="x/1", subject="s", verdict="fail", route=masks)


def run(*cells: dict[str, Any], dead: tuple[int, ...] = (), rejected: tuple[list[str], ...] = ()) -> list[Any]:
    told = [f"known.yaml:{line} (a.sdpa): A reason that is long enough." for line in dead]
    worker = {"type": "worker", "status": "ready", "subjects": ["a.sdpa[x]"], "versions": {"a": "2.1+cpu"}}
    footer = {"type": "footer", "gate": {"known": {"dead": told}, "rejected": list(rejected)}}
    cases = [{"type": "case", "case": name, **about} for name, about in CASES.items()]
    return [{"type": "header", "case_records": len(cases)}, *cases, worker, *cells, footer]


def edited(*cells: dict[str, Any], **more: Any) -> tuple[list[str], tuple[str, ...]]:
    """Return the lines that an edit removes, marked -, and adds, marked +; and the remarks."""
    found = propose(LIST, "known.yaml", LINES, run(*cells, **more))
    KnownFile.model_validate(yaml_syntax.read(found.text, "known.yaml").data)
    before, after = LIST.splitlines(), found.text.splitlines()
    changed = [f"-{row}" for row in before if row not in after] + [f"+{row}" for row in after if row not in before]
    return changed, found.remarks


def test_an_entry_that_the_gate_calls_dead_is_taken_out_and_the_comment_of_the_next_stays() -> None:
    changed, remarks = edited(cell("x/1", "a.sdpa[x]", 4, "conforms"), dead=(4,))
    assert changed == [
        '-  - subject: "a.sdpa[*"',
        "-    when: {fully_masked_row: true}",
        "-    delta: {decisions: {fully_masked_row: nan}}",
        "-    link: https://example.org/1",
    ]
    assert remarks == ()


def test_what_a_run_did_not_see_stays() -> None:
    assert edited(cell("x/1", "c.sdpa", 15, "matched")) == ([], ())
    assert edited() == ([], ())


def test_a_partial_run_takes_nothing_out() -> None:
    changed, remarks = edited(cell("x/1", "a.sdpa[x]", 4, "conforms"))
    assert changed == []
    assert remarks == (
        (
            "known.yaml:4: 1 cell conforms without it, first x/1 on a.sdpa[x], and no cell of this run needs it: "
            "remove it if a complete run confirms this"
        ),
    )


def test_an_entry_that_is_too_wide_is_narrowed_by_one_condition() -> None:
    wide = [cell("x/1", "a.sdpa[x]", 4, "matched"), cell("x/2", "a.sdpa[x]", 4, "conforms")]
    assert edited(*wide)[0] == [
        "-    when: {fully_masked_row: true}",
        "+    when: {fully_masked_row: true, dtype: [float32]}",
    ]
    wide = [cell("x/1", "b.sdpa[x]", 11, "matched"), cell("x/2", "b.sdpa[x]", 11, "conforms")]
    assert edited(*wide)[0] == ["+    when: {dtype: [float32]}"]
    wide = [cell("x/1", "b.sdpa[x]", 11, "matched"), cell("x/1", "b.sdpa[y]", 11, "conforms")]
    assert edited(*wide)[0] == ['-  - subject: "b.sdpa[*"', '+  - subject: "b.sdpa[x]"']


def routed(case: str, outcome: str, *slots: tuple[str, str]) -> dict[str, Any]:
    route = [{"slot": slot, "kinds": ["attention"], "element": element} for slot, element in slots]
    return cell(case, "a.sdpa[x]", 4, outcome, route=route)


@pytest.mark.parametrize(
    ("when", "others", "narrowed"),
    [
        ("{slots: [bias]}", ["bias"], "{slots: [bias, mask]}"),
        ("{slots: [bias]}  # so far", ["bias"], "{slots: [bias, mask]}  # so far"),
        (
            "{without_slots: [other], fully_masked_row: true}",
            ["bias"],
            "{without_slots: [other], fully_masked_row: true, slots: [mask]}",
        ),
        (
            "{elements: {bias: float}, masks: true}",
            ["bias", "mask"],
            "{elements: {bias: float, mask: bool}, masks: true}",
        ),
        ("{}", ["bias"], "{slots: [mask]}"),
    ],
)
def test_a_condition_that_is_there_gets_what_is_new(when: str, others: list[str], narrowed: str) -> None:
    cells = (
        routed("x/1", "matched", ("bias", "float"), ("mask", "bool")),
        routed("x/1", "conforms", *((slot, "float") for slot in others)),
    )
    text = LIST.replace("when: {fully_masked_row: true}", f"when: {when}")
    found = propose(text, "known.yaml", LINES, run(*cells))
    KnownFile.model_validate(yaml_syntax.read(found.text, "known.yaml").data)
    assert f"    when: {narrowed}\n" in found.text


def test_dtypes_of_which_some_matched_are_left() -> None:
    text = LIST.replace("when: {fully_masked_row: true}", "when: {dtype: [float32, float16], fully_masked_row: true}")
    wide = [cell("x/1", "a.sdpa[x]", 4, "matched"), cell("x/2", "a.sdpa[x]", 4, "conforms")]
    found = propose(text, "known.yaml", LINES, run(*wide))
    assert "    when: {dtype: [float32], fully_masked_row: true}\n" in found.text


def test_a_when_in_several_lines_is_left_to_people() -> None:
    text = LIST.replace("    when: {fully_masked_row: true}", "    when:\n      fully_masked_row: true")
    wide = [cell("x/1", "a.sdpa[x]", 4, "matched"), cell("x/2", "a.sdpa[x]", 4, "conforms")]
    found = propose(text, "known.yaml", [4, 12, 16], run(*wide))
    assert found.text == text
    assert "put {dtype: [float32]} into its `when` by hand" in found.remarks[0]


def test_where_nothing_tells_them_apart_it_says_so() -> None:
    twice = [cell("x/1", "a.sdpa[x]", 4, outcome) for outcome in ("matched", "conforms")]
    changed, remarks = edited(*twice)
    assert changed == []
    assert "no single condition distinguishes them: narrow `cases` or `versions` by hand" in remarks[0]


@pytest.mark.parametrize(
    ("mine", "others", "found"),
    [
        ([["mask"]], [["bias"]], {"slots": ["mask"]}),
        ([["mask"]], [["mask", "bias"]], {"without_slots": ["bias"]}),
        ([["mask"], ["mask", "bias"]], [["mask"]], {}),
    ],
)
def test_arguments_can_tell(mine: list[list[str]], others: list[list[str]], found: dict[str, Any]) -> None:
    def cells(slots: list[list[str]]) -> list[LoggedCell]:
        masks = [[LoggedMask(slot=slot, kinds=("attention",), element="bool") for slot in each] for each in slots]
        return [of_masks(*each) for each in masks]

    assert narrowing(cells(mine), cells(others), CASES) == found


def test_element_types_can_tell() -> None:
    def cells(element: str) -> list[LoggedCell]:
        return [of_masks(LoggedMask(slot="mask", kinds=(), element=element))]

    assert narrowing(cells("bool"), cells("float"), CASES) == {"elements": {"mask": "bool"}}


def test_a_run_that_knew_another_list_is_refused() -> None:
    with pytest.raises(ValueError, match=r"known.yaml:7 is not an entry any more: the list has changed since the run"):
        propose(LIST, "known.yaml", LINES, run(cell("x/1", "a.sdpa[x]", 7, "matched")))


def test_what_is_rejected_is_put_up_without_a_reason_and_does_not_load() -> None:
    cause = {"decision": "use[mask]", "name": "ignored", "sentence": "ignores mask"}
    cells = [cell(case, "a.sdpa[x]", 4, "other", explanation=cause, covered_by={}) for case in CASES]
    text = additions(run(*cells, rejected=(["x/1", "a.sdpa[x]"], ["x/2", "a.sdpa[x]"])))
    assert text == (
        '  - subject: "a.sdpa[x]"\n'
        '    cases: "x/*"\n'
        '    versions: {a: ">=2.1"}\n'
        '    delta: {decisions: {"use[mask]": ignored}}\n'
        '    reason: ""  # 2 cells: explain why, so that a reader understands it\n'
        '    link: ""\n'
    )
    with pytest.raises(ValueError, match="reason"):
        KnownFile.model_validate(yaml_syntax.read(LIST + text, "known.yaml").data)
    filled = (LIST + text).replace('reason: ""', "reason: It ignores masks.").replace('""', "https://example.org/4")
    assert len(KnownFile.model_validate(yaml_syntax.read(filled, "known.yaml").data).deviations) == 4


def test_an_entry_names_the_folders_of_its_cases() -> None:
    causes = {"explanation": {"decision": "use[mask]", "name": "ignored", "sentence": "ignores mask"}, "covered_by": {}}
    ids = ("causal/square", "cross/tail[dtype=float16]", "causal/wide")
    cells = [cell(case, "a.sdpa[x]", 4, "other", **causes) for case in ids]
    text = additions(run(*cells, rejected=tuple([case, "a.sdpa[x]"] for case in ids)))
    assert '    cases: ["causal/*", "cross/tail[dtype=float16]"]\n' in text


def test_what_explains_a_call_alone_is_not_put_up_if_the_diagnosis_rules_it_out() -> None:
    cause = {"decision": "use[mask]", "name": "ignored", "sentence": "ignores mask"}
    cells = [cell(case, "a.sdpa[x]", 4, "other", explanation=cause, covered_by={}) for case in CASES]
    *records, footer = run(*cells, rejected=(["x/1", "a.sdpa[x]"], ["x/2", "a.sdpa[x]"]))
    diagnosis = {"type": "diagnosis", "subject": "a.sdpa[x]", "causes": [], "unexplained": ["x/1"]}
    text = additions([*records, diagnosis, footer])
    assert 'cases: "x/2"' in text
    assert "# 1 cell: explain" in text


def test_an_empty_list_takes_entries() -> None:
    text = appended("format: 1\ndeviations: []\n", "  - subject: a\n")
    assert text == "format: 1\ndeviations:\n  - subject: a\n"
    assert appended("x: 1", "  - subject: a\n") == "x: 1\n  - subject: a\n"
    assert appended("x: 1", "") == "x: 1"


def test_an_exception_is_put_up_by_its_message() -> None:
    failing = cell("x/1", "a.sdpa[x]", 4, "other", reason="ValueError: shape (3, 5)\nmore") | {"verdict": "error"}
    text = additions(run(failing, rejected=(["x/1", "a.sdpa[x]"],)))
    assert 'cases: "x/1"' in text
    assert r'accept: {verdict: error, message: "ValueError:\\ shape\\ \\(3,\\ 5\\)"}' in text
