"""
The frame of every HTML page: a template, one style, one script, and a content security policy.

The policy allows only this script and this style, by their hashes. Trusted Types prevent the script from turning text
into markup.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """A Jinja environment for the templates in page/; everything that a template inserts is escaped."""
    templates = Environment(
        loader=PackageLoader("conformance.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= filters
    return templates


def asset(name: str) -> str:
    """The text of a file in page/."""
    return files("conformance.report").joinpath("page", name).read_text(encoding="utf-8")


def script_of(names: Iterable[str]) -> str:
    """One script made of several files, in the given order, which must respect their dependencies."""
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
