"""
The pytest plug-in: one test for each case that a function is put to (docs/pytest.md).

pytest imports this module whenever it starts, so it imports nothing but pytest until a test asks for it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.checking.check_report import Outcome

MARKER = "conformance"
FIXTURE = "conformance_case"
# The test, beside those of cases, that fails where too few of them were judged.
SHARE = "judged share"
MIN_JUDGED = 0.5
# Of the report of a test that fails: its finding in one line. pytest writes it into its own JUnit XML.
PROPERTY = "conformance"

_NOT_BOTH = (
    f"{{0}}: the marker {MARKER}(function=...) and the argument {FIXTURE} go together: "
    f"@pytest.mark.{MARKER}(function=attention) above def {{0}}({FIXTURE})"
)
_IN_THE_TEST = (
    "{} is defined in the test file itself, which the process that judges it would import, tests and all: "
    "move it to a module of its own"
)


def cases(function: Callable[..., Any], *, min_judged: float = MIN_JUDGED, **options: Any) -> Callable[..., None]:
    """
    Make a test function of an attention function: `test_attention = conformance.pytest.cases(attention)`.

    min_judged: the share of the cases, from 0 to 1, that has to be judged. options: those of `conformance.check`, but
    for `out`. What is wrong with them is told when the test is collected.
    """

    @pytest.mark.conformance(function=function, min_judged=min_judged, **options)
    def judged(conformance_case: Outcome) -> None:
        """Nothing is left to do: the plug-in fails what is not accepted."""

    caller = inspect.stack(0)[1]  # pytest tells where a test stands: there, and not in this file
    judged.__code__ = judged.__code__.replace(co_filename=caller.filename, co_firstlineno=caller.lineno)
    return judged


@dataclass(frozen=True)
class _Asked:
    """What a marker asks for: a function, the least share, options of `conformance.check`, and the cases."""

    function: Callable[..., Any]
    min_judged: float
    options: Mapping[str, Any]
    ids: tuple[str, ...]


_ASKED = pytest.StashKey[dict[str, _Asked]]()
# What is asked of each test function, and what became of its cases, by its node id.
_FOUND = pytest.StashKey[dict[str, "Mapping[str, Outcome]"]]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.stash[_ASKED], config.stash[_FOUND] = {}, {}
    told = f"judge an attention function, one test per case; {FIXTURE} is the case, options are of conformance.check"
    config.addinivalue_line("markers", f"{MARKER}(function, min_judged={MIN_JUDGED}, **options): {told}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Make one test for each case of a marked function, and one for their share.

    Raises:
        CollectError: what is asked for cannot be checked.
    """
    test = metafunc.definition
    marker = test.get_closest_marker(MARKER)
    marked = marker is not None and "function" in marker.kwargs
    if marker is None or not marked or FIXTURE not in metafunc.fixturenames:
        if marked or FIXTURE in metafunc.fixturenames:
            raise pytest.Collector.CollectError(_NOT_BOTH.format(test.name))
        return
    asked = _read(test, **marker.kwargs)
    test.config.stash[_ASKED][_test_of(test)] = asked
    metafunc.parametrize(FIXTURE, [*asked.ids, SHARE], indirect=True)


def _read(
    test: pytest.Function, function: Callable[..., Any], min_judged: float = MIN_JUDGED, **options: Any
) -> _Asked:
    """What a marker asks for, checked as far as it can be without calling the function."""
    from conformance.checking.api import cases_of, check  # noqa: PLC0415 - heavy, and only here is it used
    from conformance.checking.target import CheckError, target_of  # noqa: PLC0415

    known = {*inspect.signature(check).parameters} - {"function", "out"}
    if unknown := [name for name in options if name not in known]:
        raise pytest.Collector.CollectError(
            f"{test.name}: there is no option {unknown[0]}, only {', '.join(sorted(known))}"
        )
    if not 0 <= min_judged <= 1:
        raise pytest.Collector.CollectError(f"{test.name}: min_judged is a share from 0 to 1, not {min_judged}")
    of_cases = {name: value for name, value in options.items() if name in inspect.signature(cases_of).parameters}
    try:
        ids = cases_of(function, **of_cases)
    except CheckError as error:
        raise pytest.Collector.CollectError(f"{test.name}: {error}") from None
    if target_of(function).path == test.path:
        raise pytest.Collector.CollectError(f"{test.name}: {_IN_THE_TEST.format(_name(function))}")
    return _Asked(function, min_judged, options, ids)


@pytest.fixture
def conformance_case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """
    What became of the case that this test is about: `verdict`, `accepted`, `text`.

    A case that the function does not take is skipped with the reason; one that is not accepted fails before the test
    function is called.
    """
    from conformance.checking.check_report import DECLINED, judged_share  # noqa: PLC0415 - heavy, and only here is it used

    test = _test_of(request.node)
    asked, found = request.config.stash[_ASKED][test], _found(request.node, tmp_path_factory)
    if request.param == SHARE:
        return judged_share(_name(asked.function), found, asked.min_judged)
    outcome = found[request.param]
    if outcome.verdict == DECLINED:
        pytest.skip(f"{DECLINED}: {outcome.text}")
    return outcome


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Fail a case that is not accepted, with its cause, whatever the test function does."""
    outcome: Any = pyfuncitem.funcargs.get(FIXTURE)
    if outcome is not None and _test_of(pyfuncitem) in pyfuncitem.config.stash[_ASKED] and not outcome.accepted:
        first, *rest = outcome.text.splitlines()
        finding = "; ".join([first, *(line for line in rest if line.startswith("fix: "))])
        pyfuncitem.user_properties.append((PROPERTY, finding))
        pytest.fail(outcome.text, pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell at the end how many tests each finding fails, those that ran in workers of pytest-xdist, too."""
    reports = terminalreporter.stats.get("failed", [])
    found = Counter(value for each in reports for name, value in each.user_properties if name == PROPERTY)
    if found:
        terminalreporter.section("attention conformance")
    for finding, count in found.most_common():
        terminalreporter.line(f"{count} failed: {finding}")


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _test_of(item: pytest.Function) -> str:
    """The node id of the test function, without the case."""
    return f"{item.parent.nodeid if item.parent else ''}::{item.originalname}"


def _found(item: pytest.Function, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """What became of the cases that this session selected: judged where first asked for, all of them together."""
    from conformance.checking.api import judged_once  # noqa: PLC0415 - heavy, and only here is it used

    test = _test_of(item)
    known = item.config.stash[_FOUND]
    if test not in known:
        asked = item.config.stash[_ASKED][test]
        options = {name: value for name, value in asked.options.items() if name != "cases"}
        folder = _folder(item.config, tmp_path_factory)
        known[test] = judged_once(folder, test, asked.function, _selected(item, asked), options)
    return known[test]


def _selected(item: pytest.Function, asked: _Asked) -> tuple[str, ...]:
    """The cases that -k, --lf and the like have left; all of them where their share is asked for."""
    test = _test_of(item)
    functions = (each for each in item.session.items if isinstance(each, pytest.Function))
    left = {each.callspec.params[FIXTURE] for each in functions if _test_of(each) == test}
    return asked.ids if SHARE in left else tuple(case for case in asked.ids if case in left)


def _folder(config: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this session, which the workers of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(config, "workerinput") else own
