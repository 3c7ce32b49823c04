"""Mutate real files at random: their bytes or their parsed content, with values that readers often get wrong."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import yaml

Rng = random.Random
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

# Bytes that are inserted anywhere.
TOKENS = (
    *(
        b"\0",
        b"\xff",
        b"\xc3",
        b"\r",
        b"\t",
        b"\x1b[31m",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"\\u0000",
        b"\xe2\x80\xae",
        b"\xef\xbb\xbf",
    ),
    *(b"null", b"~", b"true", b"-1", b"0", b"1e999", b"-.inf", b".nan", b"NaN", b"9" * 70, b"9" * 5000, b"''", b'""'),
    *(
        b"[]",
        b"{}",
        b"[[",
        b"}}",
        b"[" * 40,
        b"{a: " * 30,
        b"- " * 30,
        b": ",
        b"&a ",
        b"*a",
        b"!!python/name:os.system ",
    ),
    *(
        b"*?" * 9 + b"zz",
        b"a" * 5000,
        b"../../x",
        b"/dev/zero",
        b"~nouser/x",
        b"::error::",
        b"x-",
        b"matrix: {a.b: [1]}",
    ),
)

# Replacements for a value.
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        7,
        13,
        2**31,
        2**63,
        10**70,
        -0.5,
        0.1,
        1e308,
        1e-320,
        float("inf"),
        float("nan"),
    ),
    *(
        "",
        "a",
        "nan",
        "inf",
        "null",
        "x" * 5000,
        "a\0b",
        "\udce9",
        "\x1b]0;t\x07",
        "../x.npz",
        "~nouser/x",
        "*?" * 9 + "zz",
        "1e5",
    ),
    *(
        [],
        {},
        [[]],
        [{}],
        [1, [2]],
        {"a": 1},
        {"kind": "causal"},
        [[{"a": 1}]],
        ["a", 1],
        [["a"]],
        [["a", "b", "c"]],
        {"": {}},
    ),
)

# New names for a key.
KEYS = (
    "",
    "a",
    "kind",
    "format",
    "matrix",
    "x-y",
    "masks.0.seed",
    "inputs.seed",
    "a\0b",
    "\udce9",
    "k" * 5000,
    "0",
    "null",
)


def mutated(rng: Rng, corpus: Sequence[bytes], kind: str) -> bytes:
    """Return one of the files with one or more changes."""
    content = rng.choice(corpus)
    changes = 1 + int(rng.expovariate(0.7))
    if rng.random() < 0.6:
        return STRUCTURED[kind](rng, content, changes)
    for _ in range(changes):
        content = _bytes(rng, content, corpus)
    return content


def _bytes(rng: Rng, content: bytes, corpus: Sequence[bytes]) -> bytes:
    start = rng.randrange(len(content) + 1)
    end = min(len(content), start + int(rng.expovariate(0.05)))
    piece = content[start:end]
    other = rng.choice(corpus)
    at = rng.randrange(len(other) + 1)
    middle = rng.choice(
        (
            b"",
            piece * rng.choice((2, 2, 2, 50)),
            rng.choice(TOKENS),
            bytes(byte ^ (1 << rng.randrange(8)) for byte in piece[:3]) + piece[3:],
            other[at : at + 200],
            piece[::-1],
        )
    )
    return content[:start] if rng.random() < 0.05 else content[:start] + middle + content[end:]


def _yaml(rng: Rng, content: bytes, changes: int) -> bytes:
    return dumped(changed(rng, _loaded(content), changes))


@cache
def _loaded(content: bytes) -> Any:
    return yaml.load(content, Loader=LOADER)  # noqa: S506 - a safe loader


def dumped(data: Any) -> bytes:
    """Return a value as YAML bytes; lone surrogates are kept."""
    try:
        text: str = yaml.dump(data, Dumper=DUMPER, sort_keys=False, default_flow_style=None)
    except UnicodeEncodeError:  # libyaml refuses lone surrogates
        text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, allow_unicode=True)
    return text.encode("utf-8", "surrogatepass")


def _json(rng: Rng, content: bytes, changes: int) -> bytes:
    return json.dumps(changed(rng, json.loads(content), changes)).encode()


def _lines(rng: Rng, content: bytes, changes: int) -> bytes:
    lines = content.splitlines(keepends=True)
    for _ in range(changes):
        number = rng.randrange(len(lines))
        move = rng.random()
        if move < 0.75:
            lines[number] = _json(rng, lines[number], 1) + b"\n"
        elif move < 0.85:
            lines.insert(number, rng.choice(lines))
        elif len(lines) > 1:
            del lines[number]
    return b"".join(lines)


def _toml(rng: Rng, content: bytes, changes: int) -> bytes:
    lines = content.decode().splitlines()
    for _ in range(changes):
        number = rng.randrange(len(lines))
        value = json.dumps(rng.choice(VALUES))
        name = rng.choice(("old", '"a b"', "environments", "tool", "tool.conformance", json.dumps(rng.choice(KEYS))))
        lines[number] = rng.choice((f"{name} = {value}", f"[{name}]", f"[[{name}]]", "", lines[number] * 2))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _raw(rng: Rng, content: bytes, changes: int) -> bytes:
    for _ in range(changes):
        content = _bytes(rng, content, [content])
    return content


# Format -> function that changes the content of such a file.
STRUCTURED: dict[str, Callable[[Rng, bytes, int], bytes]] = {
    "yaml": _yaml,
    "json": _json,
    "jsonl": _lines,
    "toml": _toml,
    "raw": _raw,
}


def changed(rng: Rng, data: Any, changes: int) -> Any:
    """Return the data with values replaced, keys renamed, and entries copied, inserted or removed."""
    root = {"": copy.deepcopy(data)}
    for _ in range(changes):
        places = _places(root)
        holder, key = rng.choice(places)
        move = rng.randrange(5)
        if move == 0 or holder is root:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif move == 1:
            del holder[key]
        elif move == 2:
            other, at = rng.choice(places)
            holder[key] = copy.deepcopy(other[at])
        elif isinstance(holder, dict):
            new = rng.choice((*KEYS, *(str(at) for _, at in places[:50])))
            holder[new] = holder.pop(key) if move == 3 else copy.deepcopy(rng.choice(VALUES))
        else:
            holder.insert(key, copy.deepcopy(rng.choice((holder[key], *VALUES))))
    return root[""]


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Return the container and key of every value in the data, the outermost first."""
    found: list[tuple[Any, Any]] = []
    waiting = [data]
    for here in waiting:
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], dict | list):
                waiting.append(here[key])
    return found
