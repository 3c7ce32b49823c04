"""
What every page of ours stands in: a template, one style, one script, and a policy.

The content security policy allows that script and that style, by their hashes, and nothing else; Trusted Types forbid
the script to turn text into markup.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """The templates beside the scripts; everything that a template inserts is escaped."""
    found = Environment(
        loader=PackageLoader("conformance.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= filters
    return found


def asset(name: str) -> str:
    """A file of the page."""
    return files("conformance.report").joinpath("page", name).read_text(encoding="utf-8")


def script_of(names: Iterable[str]) -> str:
    """One script of several files, in the order in which they build on each other."""
    parts = "\n".join(asset(f"{name}.js") for name in names)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def policy(style: str, script: str) -> str:
    """The content security policy of a page with this style and this script."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        )
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
