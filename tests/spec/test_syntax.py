"""The YAML that case files use: plain scalars, refusals before anything is built, and positions."""

import textwrap
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.spec import yaml_syntax
from conformance.spec.mistakes import MAX_MISTAKES, Mistakes
from conformance.spec.yaml_syntax import find, read

SCALARS: dict[str, Any] = {
    "1e-5": 1e-5,
    "1E5": 1e5,
    "1.5": 1.5,
    ".5": 0.5,
    "-2.": -2.0,
    "1.e3": 1000.0,
    "-.inf": float("-inf"),
    "12": 12,
    "-3": -3,
    "+4": 4,
    "0": 0,
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "no": "no",
    "yes": "yes",
    "on": "on",
    "off": "off",
    "True": "True",
    "012": "012",
    "0x1F": "0x1F",
    "0o17": "0o17",
    "12:30": "12:30",
    "1_000": "1_000",
    "2024-01-02": "2024-01-02",
    "e5": "e5",
    ".": ".",
    "-": "-",
    "=": "=",
    "'1'": "1",
}


@pytest.mark.parametrize("text", [text for text in SCALARS if text != "-"])
def test_a_scalar(text: str) -> None:
    document = read(f"[{text}]", "t.yaml")
    assert not document.mistakes
    assert document.data == [SCALARS[text]]
    assert type(document.data[0]) is type(SCALARS[text])


def test_nothing_is_null() -> None:
    assert read("a:\nb: x", "t.yaml").data == {"a": None, "b": "x"}


def places(text: str) -> list[tuple[int, int, str]]:
    return [(one.line, one.column, one.message) for one in read(text, "t.yaml").mistakes]


def test_anchors_aliases_and_tags_are_refused() -> None:
    assert places("a: &x [1]\nb: *x\nc: !!python/name:os.system x\n<<: *x\n") == [
        (1, 4, "anchor &x is not allowed: write the value out"),
        (2, 4, "alias *x is not allowed: write the value out"),
        (3, 4, "tag tag:yaml.org,2002:python/name:os.system is not allowed: use plain values only"),
        (4, 5, "alias *x is not allowed: write the value out"),
    ]


def test_an_alias_bomb_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]

    def build(_text: str) -> None:
        pytest.fail("built")

    monkeypatch.setattr(yaml_syntax, "_compose", build)
    document = read("\n".join(lines), "t.yaml")
    assert document.data is None
    assert len(document.mistakes) == MAX_MISTAKES + 1
    assert document.mistakes[-1].message == f"only {MAX_MISTAKES} of {30 + 29 * 9} mistakes are listed"


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 5_000, "{a: " * 5_000, "[" * 400 + "]" * 400])
def test_depth_is_limited(text: str) -> None:
    (found,) = read(text, "t.yaml").mistakes
    assert found.message == f"the document is nested more than {yaml_syntax.MAX_DEPTH} levels deep"


def test_size_is_limited() -> None:
    assert "split the suite" in places("#" * (yaml_syntax.MAX_BYTES + 1))[0][2]
    assert "nodes" in places("[" + "1," * yaml_syntax.MAX_EVENTS + "]")[0][2]
    assert "64 characters" in places("[" + "1" * 65 + "]")[0][2]


def test_duplicate_keys_are_all_reported() -> None:
    assert places("a: 1\nb: {c: 1, c: 2}\na: 3\n") == [
        (2, 11, "duplicate key 'c', first on line 2"),
        (3, 1, "duplicate key 'a', first on line 1"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b: c", "mapping values are not allowed"),
        ("a: [1", "expected ',' or ']'"),
        ("a: 'x", "found unexpected end of stream"),
        ("a: 1\n---\nb: 2", "but found another document"),
        ("\tb: 1", "cannot start any token"),
        ("a: \x07", "character '\\x07' is not allowed"),
        ("? [a]\n: 1", "a key must be a plain string"),
    ],
)
def test_what_is_not_yaml(text: str, words: str) -> None:
    assert words in places(text)[0][2]


@settings(deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!'\"#,?|>% \n\t01.e~", max_size=60))
def test_no_text_raises(text: str) -> None:
    document = read(text, "t.yaml")
    assert document.mistakes or document.node is not None or not text.strip("- \n\t#") or document.data is None


def test_a_character_that_is_not_allowed_has_a_place() -> None:
    assert places("a: 1\nb:\x07")[0][:2] == (2, 3)


def test_both_loaders_agree() -> None:
    text = "a: [1, 2.5, no, ~]\nb: {c: 1e-5}\n"
    plain = type("Plain", (yaml.SafeLoader,), {"yaml_implicit_resolvers": yaml_syntax._Loader.yaml_implicit_resolvers})
    node = yaml.compose(text, Loader=plain)
    assert node is not None
    assert yaml_syntax._plain(node, Mistakes("t.yaml")) == read(text, "t.yaml").data


def test_a_position_is_found_through_layers() -> None:
    text = textwrap.dedent("""\
        own: {inputs: {seed: 3}, masks: [1, 2]}
        under: {inputs: {gain: 4, seed: 1}, masks: [1, 2, 3], batch: 5}
    """)
    node = read(text, "t.yaml").node
    assert node is not None
    pairs = [yaml_syntax.child(node, name) for name in ("own", "under")]
    layers = [pair[1] for pair in pairs if pair]
    assert find(layers, ("inputs", "seed")) == (1, 22)
    assert find(layers, ("inputs", "seed"), at_key=True) == (1, 16)
    assert find(layers, ("inputs", "gain")) == (2, 24)
    assert find(layers, ("batch",)) == (2, 62)
    assert find(layers, ("masks", 1)) == (1, 37)
    assert find(layers, ("masks", 2)) == (1, 33)
    assert find(layers, ("absent",)) == (1, 6)
    assert find(layers, ()) == (1, 6)
