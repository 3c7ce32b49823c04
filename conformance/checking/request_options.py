"""The options of `conformance.check`, which may have any type, checked and made into a request."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance import places
from conformance.checking.function_check import MIN_JUDGED, TIMEOUT, CheckRequest
from conformance.checking.preflight import Calling
from conformance.checking.signature import Sizes
from conformance.checking.target import CheckError, target_of
from conformance.engine import kept_cases
from conformance.spec.case import Case
from conformance.spec.mistakes import CaseFileErrors


def request_of(
    function: Callable[..., Any],
    like: Any = None,
    *,
    declare: Any = None,
    profile: Any = None,
    mapping: Any = None,
    exclusive: Any = (),
    declines: Any = (),
    head_dims: Any = (),
    seq_len_multiple: Any = 1,
    dtypes: Any = (),
    cases: Any = (),
    case_paths: Any = (),
    timeout: Any = TIMEOUT,
    min_judged: Any = MIN_JUDGED,
    **calling: Any,
) -> CheckRequest:
    """
    Return the request of a check with these options of `conformance.check`; calling: fields of `Calling`.

    Raises:
        CheckError: an option has the wrong type or value, a case file has a mistake, or the function is not at the top
            level of a file.
    """
    for name, value in {"like": like, "profile": profile, **calling}.items():
        if not isinstance(value, str | None):
            raise CheckError(f"{name} is a string, not {value!r}")
    for name, number in (("timeout", timeout), ("min_judged", min_judged)):
        if not isinstance(number, int | float):
            raise CheckError(f"{name} is a number, not {number!r}")
    paths = _paths("case_paths", case_paths)
    return CheckRequest(
        target_of(function),
        like,
        Calling(
            mapping=_pairs("mapping", mapping, {"allowed": "mask"}),
            exclusive=_strings("exclusive", exclusive, "arguments", "is_causal"),
            sizes=_sizes(head_dims, seq_len_multiple),
            declines=_strings("declines", declines, "texts of exceptions", "float16 only"),
            **calling,
        ),
        profile,
        _pairs("declare", declare, {"fully_masked_row": "zero"}),
        _strings("cases", cases, "globs", "masks/*"),
        _strings("dtypes", dtypes, "dtypes", "float32"),
        timeout,
        min_judged,
        own_cases=_loaded(paths),
        case_paths=paths,
    )


def _paths(name: str, given: Any) -> tuple[Path, ...]:
    """
    Return a list of paths as a tuple; a single path is a list of one.

    Raises:
        CheckError: it is something else.
    """
    if isinstance(given, str | os.PathLike):
        return (Path(given),)
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    if not isinstance(given, Iterable) or not all(isinstance(each, str | os.PathLike) for each in found):
        raise CheckError(f"{name} is a list of case files or folders, such as ['cases'], not {given!r}")
    return tuple(map(Path, found))


def _loaded(paths: tuple[Path, ...]) -> tuple[Case, ...]:
    """
    Load the user's own cases.

    Raises:
        CheckError: there is no such file or folder, or a file has a mistake.
    """
    if absent := [path for path in paths if not path.exists()]:
        raise CheckError(f"case_paths: there is no case file or folder {absent[0]}")
    try:
        return kept_cases.load_cases(paths, places.case_root(paths)) if paths else ()
    except CaseFileErrors as error:
        raise CheckError(str(error)) from error


def _sizes(head_dims: Any, multiple: Any) -> Sizes:
    """
    Return the sizes that a function takes; a single head_dim is a list of one.

    Raises:
        CheckError: a size is not a positive integer.
    """
    given = tuple(head_dims) if isinstance(head_dims, Iterable) else (head_dims,)
    for name, size in (*(("head_dims", each) for each in given), ("seq_len_multiple", multiple)):
        if not isinstance(size, int):
            raise CheckError(f"{name}: expected an integer, not {size!r}")
    return Sizes(given, multiple)


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
