"""For a mistyped word: what is wrong, the nearest match, exit code 4. Without any word: what to type first."""

from pathlib import Path

import pytest

from conformance.cli.main import main
from conformance.deviations.catalogue import find


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a wrong command, assert the exit code for wrong usage, and return the last line of stderr."""
    try:
        code = main(words)
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 4
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rnu", "conformance: argument COMMAND: invalid choice: 'rnu'; did you mean 'run'?; see conformance --help"),
        ("--verison", "conformance: there is no option --verison; did you mean --version?; see conformance --help"),
        ("run --jbos 3", "there is no option --jbos; did you mean --jobs?; see conformance run --help"),
        ("run --jbos=3", "there is no option --jbos; did you mean --jobs?"),
        ("bisect --pakage keras", "there is no option --pakage; did you mean --package?"),
        ("schema -z", "there is no option -z; the options are -h, --help; see conformance schema --help"),
        ("list", "the following arguments are required: cases|adapters"),
        ("list adaptors", "invalid choice: 'adaptors'; choose from cases, adapters; see conformance list --help"),
        ("run --device gpu", "argument --device: invalid choice: 'gpu'; choose from cpu, cuda"),
        ("schema verdct", "invalid choice: 'verdct'; choose from cases, verdict, comparison, baseline"),
        ("run -j x", "argument -j/--jobs: 'x' is not a whole number: give a number of at least 1, such as 2"),
        ("run -j -1", "argument -j/--jobs: -1 is less than 1"),
        ("compare a b --skip-budget x", "'x' is not a whole number: give a number of at least 0, such as 2"),
        ("run --timeout x", "argument --timeout: x is not a positive number of seconds"),
        ("check a.py:f --min-judged 150", "argument --min-judged: 150 is not a percentage from 0 to 100"),
        ("check a.py:f --min-judged 0.5", "0.5 is less than one per cent: write 50 for 50%, or 0.5% if you mean"),
        ("run cases -x more", "unexpected argument 'more': write positional arguments together, not between options"),
        ("run --resume -a numpy.sdpa", "--resume needs the folder of the interrupted run, such as --out "),
        ("list cases -k mask/*", "no case matches mask/*; did you mean 'masks/*'? conformance list cases prints"),
        ("list cases -k masks/* -k zzz", "no case matches zzz; conformance list cases prints all ids"),
        ("run -a trch.*", "no subject matches 'trch.*'; the nearest name is 'torch.*'"),
        ("port zzz numpy.mha", "no subject matches 'zzz'; conformance list adapters prints all names"),
        ("report reports/lates", "there is no run folder reports/lates; did you mean reports/latest?"),
        ("repro reports/lates a b", "there is no run folder reports/lates; did you mean reports/latest?"),
        ("known update --from reports/lates", "there is no run folder reports/lates; did you mean reports/latest?"),
        ("compare reports/latest reports/lates", "reports/latest has no run.jsonl: give a folder"),
        (
            "compare reports/lates reports/latest",
            "there is no run folder or baseline reports/lates; did you mean reports/latest?",
        ),
        ("report reports/latest", "there is no run log here; expected a folder that `conformance run` wrote"),
        ("validate casse", "there is no case file or folder casse; did you mean cases?"),
        ("run --known konwn.yaml -a numpy.sdpa", "there is no file konwn.yaml; did you mean known.yaml?"),
        ("run --known cases -a numpy.sdpa", "cases is not a file"),
    ],
)
def test_a_mistyped_word_is_told_with_the_nearest(
    words: str, expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "known.yaml").touch()
    (tmp_path / "reports" / "latest").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert expected in said(capsys, *words.split())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cases", "known.yaml", "reports"]


def test_nothing_typed_prints_what_to_type_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 12
    assert "conformance --help lists every command" in lines[-1]


@pytest.mark.parametrize(
    ("decision", "name", "hint"),
    [
        ("polarity", "ignore", "needs the name of a mask argument in brackets, such as polarity[mask]="),
        ("scale[mask]", "none", "this decision takes no argument in brackets: write scale=none"),
        ("fully_maskd_row", "nan", "there is no decision 'fully_maskd_row'; did you mean fully_masked_row?"),
        ("polarty[mask]", "ignore", "there is no decision 'polarty'; did you mean polarity?"),
        ("zzz", "nan", "there is no decision 'zzz'"),
    ],
)
def test_a_mistyped_decision_is_told_with_the_nearest(decision: str, name: str, hint: str) -> None:
    with pytest.raises(KeyError) as caught:
        find(decision, name)
    assert hint in caught.value.args[0]
