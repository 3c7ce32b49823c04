"""Each workflow command is one line, escaped so that no text can end it or start another."""

from pathlib import Path

import pytest

from conformance.report import load_run
from conformance.report.annotations import command, comparison_annotations, run_annotations


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cases" / "masks").mkdir(parents=True)
    (tmp_path / "cases" / "masks" / "key_padding.yaml").write_text("format: 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_command_points_at_the_line_of_the_case(checkout: Path) -> None:
    said = command("error", "10 % off", "torch.sdpa[math]", "cases/masks/key_padding.yaml:6", checkout)
    assert said == "::error file=cases/masks/key_padding.yaml,line=6,title=torch.sdpa[math]::10 %25 off"


def test_a_root_below_the_working_folder_is_part_of_the_path(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout.parent)
    said = command("error", "x", "t", "cases/masks/key_padding.yaml:6", checkout)
    assert said == f"::error file={checkout.name}/cases/masks/key_padding.yaml,line=6,title=t::x"


@pytest.mark.parametrize("source", ["", "cases/absent.yaml:3", "cases/masks/key_padding.yaml", "/etc/passwd:1"])
def test_a_file_that_is_not_in_the_checkout_is_not_named(checkout: Path, source: str) -> None:
    assert command("error", "x", "t", source, checkout) == "::error title=t::x"


def test_no_text_can_end_a_command_or_begin_another(checkout: Path) -> None:
    said = command("error", "a\r\n::error::b", "t,file=x::y\n", "", checkout)
    assert said == "::error title=t%2Cfile=x%3A%3Ay%0A::a%0D%0A::error::b"


def test_a_run_has_one_for_each_finding_with_the_rerun_command(demonstration: Path, checkout: Path) -> None:
    found = list(run_annotations(load_run(demonstration), checkout))
    polarity = next(line for line in found if "reads True in attn_mask as ignore" in line)
    assert polarity.startswith("::error file=cases/masks/key_padding.yaml,line=6,title=torch.sdpa[math]::")
    assert "::10 verdicts: it reads True in attn_mask as ignore, only with a mask" in polarity
    assert "Workaround: pass ~attn_mask.%0Aconformance run -a 'torch.sdpa[math]' -k " in polarity
    assert any("(fail: " in line and "; no cause found): " in line for line in found)
    assert len(found) < 20


def test_a_hostile_run_stays_within_its_lines(hostile_run: Path) -> None:
    found = list(run_annotations(load_run(hostile_run), Path()))
    assert found
    for line in found:
        assert line.startswith("::error title=")
        assert not {"\n", "\r"} & set(line)


def test_a_comparison_has_errors_for_what_is_rejected_and_notices_for_the_rest(checkout: Path) -> None:
    cell = {"case": "a", "subject": "s", "source": "cases/masks/key_padding.yaml:6", "candidate": {"rerun": "again"}}
    group = {"kind": "regressed", "rejected": True, "sentence": "it does, too: 1 case", "cells": [cell]}
    fixed = {"kind": "fixed", "rejected": False, "sentence": "well", "cells": [{"case": "b", "subject": "s"}]}
    record = {"incomplete": ["cut"], "groups": [group, fixed]}
    assert list(comparison_annotations(record, checkout)) == [
        "::error title=incomplete::cut",
        "::error file=cases/masks/key_padding.yaml,line=6,title=regressed::it does, too: 1 case%0Aagain",
        "::notice title=fixed::well",
    ]
