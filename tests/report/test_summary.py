"""summary.md is readable in a CI system, and no text of the run becomes markup in it."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from conformance.report import load_run
from conformance.report.summary import block, code, summary, words, write_summary

from .build_run import RunBuilder


@pytest.fixture(scope="module")
def text(demonstration: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("summary") / "summary.md"
    write_summary(load_run(demonstration), path)
    return path.read_text(encoding="utf-8")


def test_the_first_line_says_whether_the_run_conforms(text: str) -> None:
    assert text.splitlines()[0].startswith("# ❌ Does not conform: 18 of 332 judged calls are rejected")


def test_findings_subjects_known_deviations_and_not_offered_are_told(text: str) -> None:
    cause = "**it reads True in attn\\_mask as ignore, only with a mask**; workaround: pass \\~attn\\_mask"
    assert f"- 1 cause explains 10 verdicts of `torch.sdpa[math]`: {cause}\n  - equally possible: it ignores" in text
    assert "  - rerun the simplest call: `conformance run -a 'torch.sdpa[math]' -k " in text
    assert "| `torch.sdpa[math]` | 18 |" in text
    assert (
        "- 4 verdicts of `torch.mha`: A fully masked row is NaN in the fast path of torch.nn.MultiheadAttention, <https"
        in text
    )
    assert "- `tensorflow.mha` needs tensorflow: `python -m pip install tensorflow`" in text


def test_rejected_cells_come_with_their_command(text: str) -> None:
    assert "## Rejected: 18 of 18" in text
    assert (
        "```sh\nconformance run -a 'torch.sdpa[math]' -k 'masks/key_padding/sdpa_trailing[dtype=float32]'\n```" in text
    )


def test_every_row_of_the_table_has_the_same_columns(text: str) -> None:
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_only_the_first_twenty_rejected_cells_are_listed(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = builder.subject("torch.mha")
    for number in range(25):
        builder.cell(builder.case(f"shapes/{number}"), subject, "fail", rejected=True, class_="precision")
    lines = list(summary(load_run(builder.write())))
    assert "## Rejected: the first 20 of 25" in lines
    assert sum(line.startswith("```sh") for line in lines) == 20


def test_a_conforming_run_is_told_in_green(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    builder.cell(builder.case("a/b"), builder.subject("torch.mha"))
    lines = list(summary(load_run(builder.write())))
    assert lines[0].startswith("# ✅ Conforms")
    assert not any("Rejected" in line for line in lines)


def test_hostile_text_is_escaped(hostile_run: Path, tmp_path: Path) -> None:
    write_summary(load_run(hostile_run), tmp_path / "summary.md")
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    html = MarkdownIt("commonmark").enable(["table"]).render(text)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;]]&gt;" in html
    assert "<a " not in html
    assert "<h1>" in html
    assert html.count("<td") == 2 * 6
    assert not any(character in text for character in "\x00\x1b\u2028")


def test_markup_is_escaped() -> None:
    assert words("a*b_[c](d) <e> |f\ng") == "a\\*b\\_\\[c\\](d) \\<e\\> \\|f g"
    assert len(words("x" * 1000)) == 300


def test_code_spans_and_blocks_outlast_their_text() -> None:
    assert code("a`b") == "``a`b``"
    assert code("`a") == "`` `a ``"
    assert code("a|b") == "`a\\|b`"
    assert block("a ```` b") == "`````sh\na ```` b\n`````"
