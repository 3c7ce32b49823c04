"""Any text of a framework becomes safe to store, print and show: no terminal or CI system obeys it."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.spec.texts import harmless


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("cannot open caf\udce9", r"cannot open caf\udce9"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b1;31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\text", "text"),
        ("\x1b(Btext", "text"),
        ("\x1b]0;never closed", r"\x1b]0;never closed"),
        ("\x1b\x1b[31m[31mred", r"\x1b[31mred"),
        ("a\x00b\x08c\x7fd\x85e", r"a\x00b\x08c\x7fd\x85e"),
        ("a\r\nb\rc\td", "a\nb\nc\td"),
        ("a\u2028b\u202ec", r"a\u2028b\u202ec"),
        ("::error::x", r"\::error::x"),
        ("a\n \t::set-output name=x::y", "a\n \t\\::set-output name=x::y"),
        ("\r::error::x", "\n\\::error::x"),
        ("\x1b[0m::error::x", r"\::error::x"),
        ("at::native::add", "at::native::add"),
        ("##[group]x ##vso[task] ##teamcity[x]", r"#\#[group]x #\#vso[task] #\#teamcity[x]"),
        ("## heading, größer 10 µs …", "## heading, größer 10 µs …"),
    ],
)
def test_what_would_be_obeyed_is_written_out(text: str, safe: str) -> None:
    assert harmless(text) == safe


def test_every_text_of_a_record_is_made_safe() -> None:
    record = {"a\x00": ["\ud800", {"b": ("::x", 1, None, True, 0.5)}]}
    assert harmless(record) == {r"a\x00": [r"\ud800", {"b": [r"\::x", 1, None, True, 0.5]}]}


HARD = st.text(st.sampled_from("\x1b[]()0;m:#\r\n \tvso\x07\x9b\x9c\x90\\P\ud800\u2028x\x00"))


@given(st.one_of(HARD, st.text(st.characters(codec=None))))
def test_what_is_safe_stays_as_it_is(text: str) -> None:
    safe = harmless(text)
    assert harmless(safe) == safe
    safe.encode()
    assert not re.search(r"(?m)^\s*::|##(vso|teamcity)?\[", safe)
    assert not any(unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\t" for each in safe)
