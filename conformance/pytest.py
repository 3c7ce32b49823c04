"""
The pytest plug-in: it makes one test for each case of an attention function (docs/pytest.md).

pytest imports this module at every start, so it imports nothing but pytest until a test uses it.
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
    from conformance.checking.check_report import CaseOutcome

MARKER = "conformance"
FIXTURE = "conformance_case"
# The name of the additional test that fails if too few cases were judged.
SHARE = "judged share"
MIN_JUDGED = 0.5
# The property of a failed test that has its finding in one line; pytest writes it into its JUnit XML.
PROPERTY = "conformance"

_NOT_BOTH = (
    f"{{0}}: the marker {MARKER}(function=...) and the argument {FIXTURE} must be used together: "
    f"@pytest.mark.{MARKER}(function=attention) above def {{0}}({FIXTURE})"
)
_IN_THE_TEST = (
    "{} is defined in the test file, so the process that judges it would import the tests too: "
    "move it to a separate module"
)


def cases(function: Callable[..., Any], *, min_judged: float = MIN_JUDGED, **options: Any) -> Callable[..., None]:
    """
    Make a test function of an attention function: `test_attention = conformance.pytest.cases(attention)`.

    min_judged: the minimum share of the cases that must be judged, from 0 to 1. options: those of `conformance.check`,
    except `out`; wrong options are reported when the test is collected.
    """

    @pytest.mark.conformance(function=function, min_judged=min_judged, **options)
    def judged(conformance_case: CaseOutcome) -> None:
        """Do nothing: the plug-in fails the cases that are not accepted."""

    caller = inspect.stack(0)[1]  # so that pytest reports the location in the caller's file
    judged.__code__ = judged.__code__.replace(co_filename=caller.filename, co_firstlineno=caller.lineno)
    return judged


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a marker: a function, the minimum share, options of `conformance.check`; and the case ids."""

    function: Callable[..., Any]
    min_judged: float
    options: Mapping[str, Any]
    ids: tuple[str, ...]


_ARGUMENTS = pytest.StashKey[dict[str, _Arguments]]()
# Node id of a test function -> the outcomes of its cases.
_OUTCOMES = pytest.StashKey[dict[str, "Mapping[str, CaseOutcome]"]]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.stash[_ARGUMENTS], config.stash[_OUTCOMES] = {}, {}
    description = f"judge an attention function, one test per case ({FIXTURE}); options: those of conformance.check"
    config.addinivalue_line("markers", f"{MARKER}(function, min_judged={MIN_JUDGED}, **options): {description}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Make one test for each case of a marked function, and one for the share of judged cases.

    Raises:
        CollectError: the function cannot be checked, or the marker is wrong.
    """
    test = metafunc.definition
    marker = test.get_closest_marker(MARKER)
    marked = marker is not None and "function" in marker.kwargs
    if marker is None or not marked or FIXTURE not in metafunc.fixturenames:
        if marked or FIXTURE in metafunc.fixturenames:
            raise pytest.Collector.CollectError(_NOT_BOTH.format(test.name))
        return
    arguments = _read_arguments(test, **marker.kwargs)
    test.config.stash[_ARGUMENTS][_test_of(test)] = arguments
    metafunc.parametrize(FIXTURE, [*arguments.ids, SHARE], indirect=True)


def _read_arguments(
    test: pytest.Function, function: Callable[..., Any], min_judged: float = MIN_JUDGED, **options: Any
) -> _Arguments:
    """
    Read the arguments of a marker, and check them without calling the function.

    Raises:
        CollectError: an argument is wrong, or the function cannot be checked.
    """
    from conformance.checking.api import cases_of, check  # noqa: PLC0415 - heavy, and only here is it used
    from conformance.checking.target import CheckError, target_of  # noqa: PLC0415 - as above

    known = {*inspect.signature(check).parameters} - {"function", "out"}
    if unknown := [name for name in options if name not in known]:
        raise pytest.Collector.CollectError(
            f"{test.name}: there is no option {unknown[0]}, only {', '.join(sorted(known))}"
        )
    try:
        ids = cases_of(function, min_judged=min_judged, **options)
    except CheckError as error:
        raise pytest.Collector.CollectError(f"{test.name}: {error}") from None
    if target_of(function).path == test.path:
        raise pytest.Collector.CollectError(f"{test.name}: {_IN_THE_TEST.format(_name(function))}")
    return _Arguments(function, min_judged, options, ids)


@pytest.fixture
def conformance_case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CaseOutcome:
    """
    Return the outcome of the case of this test: `verdict`, `accepted`, `text`.

    A case that the function does not support is skipped with the reason. A case that is not accepted fails before the
    test function is called.
    """
    from conformance.checking.check_report import DECLINED, judged_share  # noqa: PLC0415 - heavy, and only here is it used

    test = _test_of(request.node)
    arguments, found = request.config.stash[_ARGUMENTS][test], _outcomes(request.node, tmp_path_factory)
    if request.param == SHARE:
        return judged_share(_name(arguments.function), found, arguments.min_judged)
    outcome = found[request.param]
    if outcome.verdict == DECLINED:
        pytest.skip(f"{DECLINED}: {outcome.text}")
    return outcome


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Fail a case that is not accepted with its cause, before the test function is called."""
    outcome: Any = pyfuncitem.funcargs.get(FIXTURE)
    if outcome is not None and _test_of(pyfuncitem) in pyfuncitem.config.stash[_ARGUMENTS] and not outcome.accepted:
        first, *rest = outcome.text.splitlines()
        finding = "; ".join([first, *(line for line in rest if line.startswith(("fix: ", "workaround: ")))])
        pyfuncitem.user_properties.append((PROPERTY, finding))
        pytest.fail(outcome.text, pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print for each finding how many tests fail because of it, also in workers of pytest-xdist."""
    reports = terminalreporter.stats.get("failed", [])
    found = Counter(value for each in reports for name, value in each.user_properties if name == PROPERTY)
    if found:
        terminalreporter.section("attention conformance")
    for finding, count in found.most_common():
        terminalreporter.line(f"{count} failed: {finding}")


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _test_of(item: pytest.Function) -> str:
    """Return the node id of the test function, without the case."""
    return f"{item.parent.nodeid if item.parent else ''}::{item.originalname}"


def _outcomes(item: pytest.Function, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, CaseOutcome]:
    """Return the outcomes of the cases that this session selected; the first request judges all of them."""
    from conformance.checking.api import judged_once  # noqa: PLC0415 - heavy, and only here is it used

    test = _test_of(item)
    known = item.config.stash[_OUTCOMES]
    if test not in known:
        arguments = item.config.stash[_ARGUMENTS][test]
        options = {name: value for name, value in arguments.options.items() if name != "cases"}
        folder = _folder(item.config, tmp_path_factory)
        known[test] = judged_once(folder, test, arguments.function, _selected(item, arguments), options)
    return known[test]


def _selected(item: pytest.Function, arguments: _Arguments) -> tuple[str, ...]:
    """Return the cases that -k, --lf and the like have selected; all cases if the share is tested."""
    test = _test_of(item)
    functions = (each for each in item.session.items if isinstance(each, pytest.Function))
    left = {each.callspec.params[FIXTURE] for each in functions if _test_of(each) == test}
    return arguments.ids if SHARE in left else tuple(case for case in arguments.ids if case in left)


def _folder(config: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of this session that the workers of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(config, "workerinput") else own
