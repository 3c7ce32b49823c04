"""Cases that an earlier process has read: as long as no case file changes, YAML is parsed once."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from conformance import bridge, places, spec
from conformance.engine.result_cache import ResultCache
from conformance.spec.case import Case
from conformance.spec.loader import NAME as THOROUGH
from conformance.spec.loader import find_suites, load
from conformance.spec.mistakes import Mistake

_CASES: TypeAdapter[tuple[Case, ...]] = TypeAdapter(tuple[Case, ...], config=ConfigDict(ser_json_inf_nan="constants"))


def load_cases(paths: Sequence[Path], root: Path) -> tuple[Case, ...]:
    """
    Load suites as `conformance.spec.loader.load` does, or take them from the cache folder.

    Raises:
        CaseFileErrors: there are mistakes; nothing is kept then.
    """
    key = _key(paths, root)
    if not key:
        return load(paths, root)
    with ResultCache(places.cache()) as cache:
        if (stored := cache.get(key)) is not None:
            with suppress(ValidationError):
                return _CASES.validate_json(stored)
        cases = load(paths, root)
        written = _CASES.dump_json(cases)
        if _CASES.validate_json(written) == cases:
            cache.put(key, written)
    return cases


def _key(paths: Sequence[Path], root: Path) -> str:
    """Return a digest of all files that the cases depend on; "" if one cannot be read."""
    mistakes: list[Mistake] = []
    suites = find_suites(paths, root.resolve(), mistakes)
    if mistakes:
        return ""
    code = [file for package in (bridge, spec) for file in Path(str(package.__file__)).parent.glob("*.py")]
    named = [*((file.name, file) for file in sorted(code)), (THOROUGH, root / THOROUGH)]
    named += [(f"{suite.path} {suite.location}", suite.path) for suite in suites]
    digest = hashlib.sha256()
    try:
        for name, file in named:
            content = file.read_bytes() if file.is_file() else b""
            digest.update(f"{name} {len(content)}\n".encode() + content)
    except OSError:
        return ""
    return f"cases {digest.hexdigest()}"
