"""The options of `conformance.check`, which may have any type, checked and made into a request."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.checking.function_check import MIN_JUDGED, TIMEOUT, CheckRequest
from conformance.checking.preflight import Calling
from conformance.checking.target import CheckError, target_of


def request_of(
    function: Callable[..., Any],
    like: Any = None,
    *,
    declare: Any = None,
    profile: Any = None,
    mapping: Any = None,
    dtypes: Any = (),
    cases: Any = (),
    timeout: Any = TIMEOUT,
    min_judged: Any = MIN_JUDGED,
    **calling: Any,
) -> CheckRequest:
    """
    Return the request of a check with these options of `conformance.check`; calling: fields of `Calling`.

    Raises:
        CheckError: an option has the wrong type or value, or the function is not at the top level of a file.
    """
    for name, value in {"like": like, "profile": profile, **calling}.items():
        if not isinstance(value, str | None):
            raise CheckError(f"{name} is a string, not {value!r}")
    for name, number in (("timeout", timeout), ("min_judged", min_judged)):
        if not isinstance(number, int | float):
            raise CheckError(f"{name} is a number, not {number!r}")
    return CheckRequest(
        target_of(function),
        like,
        Calling(mapping=_pairs("mapping", mapping, {"allowed": "mask"}), **calling),
        profile,
        _pairs("declare", declare, {"fully_masked_row": "zero"}),
        _strings("cases", cases, "globs", "masks/*"),
        _strings("dtypes", dtypes, "dtypes", "float32"),
        timeout,
        min_judged,
    )


def _strings(name: str, given: Any, what: str, example: str) -> tuple[str, ...]:
    """
    Return a list of strings as a tuple; a single string is a list of one.

    Raises:
        CheckError: it is something else.
    """
    if isinstance(given, str):
        return (given,)
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    if not isinstance(given, Iterable) or not all(isinstance(each, str) for each in found):
        raise CheckError(f"{name} is a list of {what}, such as {[example]}, not {given!r}")
    return found


def _pairs(name: str, given: Any, example: Mapping[str, str]) -> dict[str, str]:
    """
    Return a mapping of strings as a dict; None is an empty one.

    Raises:
        CheckError: it is something else.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise CheckError(f"{name} is a dict of strings, such as {example}, not {given!r}")
    return dict(given)
