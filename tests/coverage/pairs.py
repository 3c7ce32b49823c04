"""Which arguments, argument pairs and outputs of entry points the cases use; `complaints` reports what is missing."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import yaml

from conformance.bridge.contract import Call
from conformance.engine.adapters import Adapter, Subject, read_adapters
from conformance.engine.cells import Cell, make_cell
from conformance.report.adapter_table import written
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise

from .declining import declines

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("arguments.yaml")
# A size -> the size that it equals by default.
REFERENCE = {"kdim": "query_dim", "vdim": "query_dim", "output_dim": "query_dim", "value_dim": "head_dim"}

Pair = frozenset[str]
Words = frozenset[str]


@dataclass(frozen=True)
class Entry:
    """
    An entry point: its surface, what fills its arguments, and why other arguments are left out.

    filled: argument or state -> words of a call. left_out: argument or state -> reason. outputs: output -> words.
    not_returned: output -> reason. pairs: two arguments -> reason. beside: (output, argument) -> reason.
    """

    name: str
    surface: Mapping[str, Any]
    filled: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    not_returned: Mapping[str, str] = field(default_factory=dict)
    pairs: Mapping[Pair, str] = field(default_factory=dict)
    beside: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def arguments(self) -> Mapping[str, Mapping[str, str]]:
        """The arguments of the surface, including states."""
        states = {name: {"given": "state", "default": ""} for name in self.surface.get("states", ())}
        return {**self.surface["arguments"], **states}

    @property
    def optional(self) -> tuple[str, ...]:
        """The arguments that form pairs: those that cases fill."""
        return tuple(name for name in self.arguments if name in self.filled)

    @property
    def always(self) -> tuple[str, ...]:
        """The arguments that every call passes."""
        named = (*self.filled, *self.left_out)
        return tuple(name for name, row in self.arguments.items() if "default" not in row and name not in named)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arguments in the table of outputs: those that cases fill, except those that only request an output."""
        return tuple(name for name in self.optional if not asks_for_output(self.filled[name]))


@dataclass(frozen=True)
class Asked:
    """
    The number of cases that use each argument, each pair, each output, and each output with or without an argument.

    lacking: dtype -> arguments, argument pairs and (output, argument) pairs that cases use in other dtypes only.
    """

    alone: Mapping[str, int]
    together: Mapping[Pair, int]
    outputs: Mapping[str, int]
    beside: Mapping[tuple[str, str, bool], int]
    lacking: Mapping[str, Iterable[Words]] = field(default_factory=dict)


def asks_for_output(expression: str) -> bool:
    """Whether an argument only requests an output."""
    return all(word.removeprefix("not ").startswith("output ") for word in terms(expression))


def terms(expression: str) -> list[str]:
    """The words of an expression."""
    return [word for part in expression.split(" or ") for word in part.split(" and ")]


def holds(expression: str, words: Words) -> bool:
    """Whether the words of a call satisfy an expression such as `a and b or c`; `not` may precede a word."""
    return any(all(_has(word, words) for word in part.split(" and ")) for part in expression.split(" or "))


def _has(word: str, words: Words) -> bool:
    return word.removeprefix("not ") not in words if word.startswith("not ") else word in words


def words_of(call: Call) -> Words:
    """Return the words for a call: `slot attn_mask`, `requirement scale`, `output weights`, `size kdim` and so on."""
    facts, sizes = call.facts, call.facts.sizes
    outputs = {"gradients" if name.startswith("grad_") else name for name in facts.outputs}
    outputs |= {"present"} if any(name.startswith("present") for name in facts.outputs) else set()
    return frozenset(
        (
            f"variant {facts.variant}",
            f"alias {facts.alias}",
            f"dtype {facts.dtype}",
            f"operator {facts.operator}",
            *(f"slot {name}" for name in call.arguments),
            *(f"{mask.element} {mask.slot}" for mask in facts.masks),
            *(f"requirement {name}" for name in facts.requirements),
            *(f"output {name}" for name in outputs),
            *(f"size {name}" for name, usual in REFERENCE.items() if name in sizes and sizes[name] != sizes[usual]),
        )
    )


@cache
def adapters() -> Mapping[str, Adapter]:
    """The shipped adapters by name."""
    return {adapter.name: adapter for adapter in read_adapters([ROOT / "adapters"])}


@cache
def cases() -> Sequence[Case]:
    """The shipped cases, except mistakes."""
    return [case for case in load([ROOT / "cases"], ROOT / "cases") if case.mistake is None]


@cache
def cells(name: str) -> tuple[Cell, ...]:
    """Return the calls of all cases for the subjects of an adapter that list the requirements of the case."""
    adapter = adapters()[name]
    subjects = [Subject(adapter, variant) for variant in adapter.variants]
    made = []
    for case in cases():
        problem = materialise(case)
        able = [subject for subject in subjects if set(problem.requirements) <= set(subject.capabilities)]
        made += [make_cell(case, problem, subject) for subject in able]
    return tuple(cell for cell in made if isinstance(cell, Cell))


def declined(name: str) -> set[str]:
    """The calls that an adapter declines, as `case on subject`."""
    return {" on ".join(cell.key) for cell in cells(name) if declines(cell.subject.adapter.path, cell.call)}


@cache
def calls() -> Mapping[str, tuple[tuple[str, Words], ...]]:
    """Return adapter -> the calls that reach its framework, each as the id of the case and the words of the call."""
    found = {}
    for name, adapter in adapters().items():
        refused = declined(name) if written(adapter.path).refusals else ()
        taken = (cell for cell in cells(name) if " on ".join(cell.key) not in refused)
        found[name] = tuple((cell.case.id, words_of(cell.call)) for cell in taken)
    return found


def asked(entry: Entry, having: Iterable[tuple[str, Words]]) -> Asked:
    """Count the cases that use an entry point."""
    alone, together, outputs, beside = (defaultdict[Any, set[str]](set) for _ in range(4))
    in_dtype: dict[str, set[Words]] = defaultdict(set)
    for case, words in having:
        if not holds(of_variant(entry.name), words):
            continue
        here = [name for name in entry.optional if holds(entry.filled[name], words)]
        returned = [name for name, which in entry.outputs.items() if holds(which, words)]
        dtype = next(word.removeprefix("dtype ") for word in words if word.startswith("dtype "))
        in_dtype[dtype] |= {frozenset({name}) for name in here} | {frozenset(pair) for pair in combinations(here, 2)}
        in_dtype[dtype] |= {frozenset((f"output {output}", name)) for output in returned for name in here}
        for name in here:
            alone[name].add(case)
        for pair in combinations(here, 2):
            together[frozenset(pair)].add(case)
        for output in returned:
            outputs[output].add(case)
            for name in entry.inputs:
                beside[output, name, name in here].add(case)
    every = frozenset[Words]().union(*in_dtype.values())
    lacking = {dtype: sorted(every - found, key=sorted) for dtype, found in in_dtype.items()}
    numbers = [{what: len(ids) for what, ids in each.items()} for each in (alone, together, outputs, beside)]
    return Asked(numbers[0], numbers[1], numbers[2], numbers[3], lacking)


def of_variant(name: str) -> str:
    """Return the expression for the calls of an entry point; `flax.mha[nnx]` has those of one variant."""
    variant = name.partition("[")[2].removesuffix("]")
    return f"variant {variant}" if variant else "operator sdpa or operator mha"


def adapter_of(name: str) -> str:
    """The name of the adapter of an entry point."""
    return name.partition("[")[0]


def entries(surface: Mapping[str, Any], said: Mapping[str, Any]) -> list[Entry]:
    """Every entry point of a surface, with what arguments.yaml says about it."""
    reasons = said["reasons"]
    return [
        _entry(name, found, said["entry_points"].get(name, {}), reasons)
        for name, found in surface["entry_points"].items()
    ]


def _entry(name: str, found: Mapping[str, Any], said: Mapping[str, Any], reasons: Mapping[str, str]) -> Entry:
    def reason(text: str) -> str:
        return reasons[text[1:]] if text.startswith("=") else text

    adapter = adapters()[adapter_of(name)]
    own = adapter.framework == "numpy"
    variants = [Subject(adapter, variant) for variant in adapter.variants]
    returned = dict.fromkeys(output for subject in variants for output in subject.outputs)
    filled = _as_named(Subject(adapter)) if own else said.get("filled", {})
    pairs = [(frozenset((one, each)), why) for one, others, why in said.get("pairs", ()) for each in _listed(others)]
    beside = [
        ((output, each), why)
        for named, others, why in said.get("beside", ())
        for output in _listed(named)
        for each in _listed(others)
    ]
    return Entry(
        name=name,
        surface=found,
        filled=filled,
        left_out={each: reason(why) for each, why in said.get("left_out", {}).items()},
        outputs=said.get("outputs", {each: f"output {each}" for each in returned}),
        not_returned={each: reason(why) for each, why in said.get("not_returned", {}).items()},
        pairs={pair: reason(why) for pair, why in pairs},
        beside={pair: reason(why) for pair, why in beside},
    )


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _as_named(subject: Subject) -> Mapping[str, str]:
    """For our own reference, a slot or requirement of the same name fills each argument."""
    slots = {name: f"slot {name}" for name in subject.slots}
    return slots | {name: f"requirement {name}" for name in subject.capabilities if name != "mistakes"}


@cache
def said_of_arguments() -> dict[str, Any]:
    """The content of arguments.yaml."""
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def complaints(entry: Entry, counted: Asked) -> Iterator[str]:
    """Yield everything that is missing without a reason, and every reason that is not needed."""
    found = (
        _unsaid(entry),
        _alone(entry, counted),
        _together(entry, counted),
        _outputs(entry, counted),
        _dtypes(counted),
    )
    for text in chain.from_iterable(found):
        yield f"{entry.name}: {text}"


def _unsaid(entry: Entry) -> Iterator[str]:
    named = [*entry.filled, *entry.left_out]
    for name, row in entry.arguments.items():
        if "default" in row and name not in named:
            yield f"nothing says what fills `{name}`, or why it is left out"
    for name in named:
        if name not in entry.arguments:
            yield f"`{name}` is no argument or state of it"
    for name in entry.surface["outputs"]:
        if name not in (*entry.outputs, *entry.not_returned) and name != "output":
            yield f"nothing says whether the output `{name}` is asked for"


def _alone(entry: Entry, counted: Asked) -> Iterator[str]:
    for name in entry.optional:
        if not counted.alone.get(name):
            yield f"no case asks `{name}`"


def _together(entry: Entry, counted: Asked) -> Iterator[str]:
    pairs = {frozenset(pair) for pair in combinations(entry.optional, 2)}
    for pair in sorted(pairs | set(entry.pairs), key=sorted):
        names = " and ".join(f"`{name}`" for name in sorted(pair))
        if pair not in pairs:
            yield f"a reason names {names}, which is no pair of it"
        elif pair not in entry.pairs and not counted.together.get(pair):
            yield f"no case asks {names} together"
        elif pair in entry.pairs and counted.together.get(pair):
            yield f"cases ask {names} together: its reason is not needed"


def _dtypes(counted: Asked) -> Iterator[str]:
    """Yield what cases use in other dtypes only: kernels differ by dtype, so a bug may occur in a single dtype."""
    for dtype, lacking in counted.lacking.items():
        for names in lacking:
            yield f"no case asks {' and '.join(f'`{name}`' for name in sorted(names))} in {dtype}, as others do"


def _outputs(entry: Entry, counted: Asked) -> Iterator[str]:
    for output in entry.outputs:
        if not counted.outputs.get(output):
            yield f"no case asks for the output `{output}`"
            continue
        for name in entry.inputs:
            sides = [counted.beside.get((output, name, present), 0) for present in (True, False)]
            if not all(sides) and (output, name) not in entry.beside:
                yield f"no case asks for the output `{output}` {'without' if sides[0] else 'with'} `{name}`"
            if all(sides) and (output, name) in entry.beside:
                yield f"cases ask for `{output}` with `{name}` and without: its reason is not needed"
