"""What `run`, `smoke` and `probe` print during a run and after it, and how to rerun only what was rejected."""

import io
import time
import webbrowser
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.cli.argument_parser import QUIET, VERBOSE
from conformance.cli.main import main
from conformance.cli.progress import Progress
from conformance.engine.logged_cell import LoggedCell
from conformance.verdicts.verdict import Verdict

from ..running import cells, with_suite

LIAR = str(Path(__file__).parents[1] / "fakes" / "liar.py")
SUITE = """\
format: 1
suite: small
summary: A few calls.
defaults: {operator: sdpa, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7}
cases:
  - name: plain
    tags: [smoke]
    matrix: {batch: [1, 2, 13]}
  - {name: half, batch: 2, dtype: float16}
"""
WRONG = ("run", "cases", "-a", f"{LIAR}[wrong_dtype]", "-a", f"{LIAR}[honest]")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(with_suite(tmp_path, SUITE))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[list[str], list[str]]:
    """Run a command, assert its exit code, and return the lines of its stdout and stderr."""
    found = main(words)
    out, err = capsys.readouterr()
    assert found == code, out + err
    return out.splitlines(), err.splitlines()


def test_a_run_begins_with_how_much_there_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = told(capsys, "run", "cases", "-a", f"{LIAR}[honest]", "--out", "out")
    assert err[0] == "4 verdicts expected"
    assert len(cells(project / "out")) == 4


@pytest.mark.usefixtures("project")
def test_quiet_tells_the_conclusion_alone(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = told(capsys, "run", "cases", "-q", "-a", f"{LIAR}[honest]")
    assert err == []
    assert [line.partition(" ")[0] for line in out] == ["Conforms:", "Report:"]


@pytest.mark.usefixtures("project")
def test_verbose_names_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = told(capsys, "run", "cases", "-v", "-a", f"{LIAR}[honest]")
    named = [line.partition(": ") for line in err if " on fake.liar[honest]" in line]
    assert sorted(verdict for verdict, *_ in named) == ["pass", "pass", "pass", "unsupported"]
    assert all(line.endswith(" s") for verdict, _, line in named if verdict == "pass")


@pytest.mark.usefixtures("project")
def test_the_slowest_calls_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, "smoke", "cases", "-a", f"{LIAR}[honest]", "--durations", "2")
    assert out[0] == "The slowest 2 calls of 3:"
    assert all(" s  small/plain[batch=" in line for line in out[1:3])
    everything, _ = told(capsys, "smoke", "cases", "-a", f"{LIAR}[honest]", "--durations", "0")
    assert everything[0] == "The slowest 3 calls of 3:"


def test_collecting_starts_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.cli.command_run.Pool", None)
    out, err = told(capsys, "run", "cases", "-a", f"{LIAR}[honest]", "--collect-only")
    assert err == []
    assert out == [
        "fake.liar[honest]      3 to call      1 declined",
        "3 calls, and 1 declined without a call, for 4 cases on 1 subject; nothing was started",
    ]
    assert not (project / "reports").exists()
    out, _ = told(capsys, "run", "cases", "-a", f"{LIAR}[honest]", "--collect-only", "-v", "-k", "*half*")
    assert out[0].startswith("small/half on fake.liar[honest]: declined: does not support float16, only ")


@pytest.mark.usefixtures("project")
def test_collecting_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(LIAR).parent / "elsewhere.py").read_text(encoding="utf-8")
    (tmp_path / "absent.py").write_text(text.replace("REQUIRES = [", 'REQUIRES = ["nowhere-to-be-found", '))
    out, _ = told(capsys, "run", "cases", "-a", "absent.py", "--collect-only", code=7)
    assert any(line.startswith("incomplete: ") and "nowhere-to-be-found" in line for line in out)


def test_probe_collects_its_own_cases(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, "probe", "-a", "numpy.sdpa", "--collect-only")
    assert out[0].startswith("numpy.sdpa ")
    assert out[-1].endswith("on 1 subject; nothing was started")


def test_what_was_rejected_is_asked_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, *WRONG, code=1)
    told(capsys, *WRONG, "--last-failed", "--out", "again", code=1)
    assert list(cells(project / "again")) == [("small/plain[batch=13]", "fake.liar[wrong_dtype]")]


@pytest.mark.usefixtures("project")
def test_asking_again_needs_something_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = told(capsys, *WRONG, "--last-failed", code=4)
    assert "--last-failed needs the run in reports/latest: reports/latest/run.jsonl: there is no run log" in err[-1]
    told(capsys, "run", "cases", "-a", f"{LIAR}[honest]")
    _, err = told(capsys, *WRONG, "--last-failed", code=4)
    assert err[-1] == "conformance: --last-failed: reports/latest rejected nothing: leave the option out"
    told(capsys, *WRONG, code=1)
    _, err = told(capsys, "run", "cases", "-a", f"{LIAR}[honest]", "--last-failed", code=4)
    assert "rejected fake.liar[wrong_dtype], but -a chooses none of these" in err[-1]
    _, err = told(capsys, *WRONG, "-k", "*half*", "--last-failed", code=4)
    assert "rejected 1 case (the first is small/plain[batch=13]), but none of them is chosen here" in err[-1]


@pytest.mark.parametrize("there", [True, False])
def test_the_page_is_opened(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    opened: list[str] = []

    def browser(page: str) -> bool:
        opened.append(page)
        return there

    monkeypatch.setattr(webbrowser, "open", browser)
    _, err = told(capsys, "run", "cases", "-q", "-a", f"{LIAR}[honest]", "--out", "out", "--open")
    assert opened == [(project / "out" / "index.html").as_uri()]
    page = project / "out" / "index.html"
    assert err == ([] if there else [f"conformance: no browser was found; open {page} yourself"])


def judged(verdict: Verdict) -> LoggedCell:
    return LoggedCell(case="a/b", subject="x.y", verdict=verdict, seconds={"call": 0.25})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until a test sets it."""
    now = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now.now)
    return now


def test_the_time_left_counts_from_the_first_call(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.plan(300, done=200)
        assert progress.left == ""
        clock.now = 29.0  # the workers start
        progress.cell(judged("unsupported"))
        progress.cell(judged("pass"))
        assert progress.left == ""
        clock.now = 50.0
        progress.cell(judged("pass"))
    assert progress.left == "about 11 min left"
    assert stream.getvalue().splitlines() == [
        "300 verdicts expected, 200 of them done before",
        "201 of 300 cells judged, 0 rejected, 29 s",
        "203 of 300 cells judged, 0 rejected, 50 s, about 11 min left",
    ]


def test_the_time_left_follows_a_rate_that_falls(clock: SimpleNamespace) -> None:
    with Progress(io.StringIO()) as progress:
        progress.plan(1000)
        for second in range(90):  # ten cells each second
            clock.now = float(second)
            for _ in range(10):
                progress.cell(judged("pass"))
        assert progress.left == "about 10 s left"
        for second in range(90, 150, 2):  # one cell each two seconds
            clock.now = float(second)
            progress.cell(judged("pass"))
    assert progress.left == "about 2 min left"  # 70 cells of 2 s, and not of the mean, 0.16 s


def test_expensive_calls_at_the_start_hardly_count(clock: SimpleNamespace) -> None:
    with Progress(io.StringIO()) as progress:
        progress.plan(1000)
        for second in range(10):  # ten cells each second
            clock.now = float(second)
            for _ in range(10):
                progress.cell(judged("pass"))
        for second in range(10, 60, 5):  # one cell each five seconds
            clock.now = float(second)
            progress.cell(judged("pass"))
    assert progress.left == "about 9 min left"  # 890 cells of 0.6 s, and not of 5 s


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("level", "lines"), [(QUIET, 0), (VERBOSE, 3)])
def test_a_level_says_how_much_is_told(level: int, lines: int) -> None:
    stream = io.StringIO()
    with Progress(stream, level=level) as progress:
        progress.plan(2)
        progress.cell(judged("pass"))
        progress.cell(judged("fail"))
    assert len(stream.getvalue().splitlines()) == lines


def test_without_a_plan_cells_are_counted(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    with Progress(stream, name_red=False) as progress:
        clock.now = 60.0
        progress.cell(judged("fail"))
    assert stream.getvalue() == "1 cell judged, 1 rejected, 60 s\n"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("project")
def test_whose_causes_are_searched_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: list[str] = []
    monkeypatch.setattr(Progress, "search", lambda _, name: names.append(name))
    told(capsys, *WRONG, "--out", "out", code=1)
    assert names == ["fake.liar[wrong_dtype]"]


def test_a_search_for_causes_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress(stream) as progress:
        progress.plan(2)
        progress.search("x.y")
    assert "searching causes of x.y" in stream.getvalue()
