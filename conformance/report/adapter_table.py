"""
The table of what each adapter covers: `list adapters --table` and docs/coverage.md.

Adapters are neither imported nor run. Facts are literals; declared deviations and reasons for declining are read from
the source text.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.bridge.loading import sources
from conformance.engine.adapter_facts import CHOICES, Slot
from conformance.engine.adapters import Adapter, Subject
from conformance.spec.masks import KINDS

# Outputs and capabilities that exist for one operator only.
ONE_OPERATOR_ONLY = {
    **dict.fromkeys(("scale", "present", "scaled", "capped", "logits"), "sdpa"),
    **dict.fromkeys(("kdim", "query_dim", "output_dim", "no_bias", "some_biases", "dropout"), "mha"),
}

HEADINGS = (
    "entry point",
    "operator",
    "variants",
    "dtypes",
    "devices",
    "returns",
    "mask arguments",
    "supports",
    "declared deviations",
    "declines, with reason",
)
NO_ARGUMENT = "no argument for it"


@dataclass(frozen=True)
class Written:
    """What the source text of an adapter and its helpers contains: declared deviations and reasons for declining."""

    deviations: tuple[str, ...]
    refusals: tuple[str, ...]


def table(adapters: Iterable[Adapter]) -> Iterator[str]:
    """The lines of a Markdown table with one row per adapter."""
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|" + "---|" * len(HEADINGS)
    for adapter in sorted(adapters, key=lambda each: each.name):
        cells = (text.replace("|", r"\|") for text in _row(adapter))
        yield f"| {' | '.join(cells)} |"


def _row(adapter: Adapter) -> Iterator[str]:
    subjects = [Subject(adapter, variant) for variant in adapter.variants]
    source = written(adapter.path)
    yield f"`{adapter.name}`"
    yield ", ".join(adapter.operators)
    yield "; ".join(_variant(subject) for subject in subjects if subject.variant) or "-"
    for fact in ("dtypes", "devices", "outputs"):
        yield ", ".join(_union(getattr(subject, fact) for subject in subjects))
    yield "; ".join(_slots(subjects))
    yield ", ".join(_union(subject.capabilities for subject in subjects)) or "-"
    yield ", ".join(source.deviations) or "canonical"
    yield "; ".join((*_missing(subjects), *source.refusals)) or "-"


def _variant(subject: Subject) -> str:
    return f"`{subject.variant}`: {subject.summary}" if subject.summary else f"`{subject.variant}`"


def _union(lists: Iterable[tuple[str, ...]]) -> dict[str, None]:
    return dict.fromkeys(name for names in lists for name in names)


def _slots(subjects: Iterable[Subject]) -> dict[str, None]:
    return dict.fromkeys(_slot(slot) for subject in subjects for slot in subject.slots.values())


def _slot(slot: Slot) -> str:
    """An argument by its documented names."""
    names = " and ".join(f"`{name}`" for name in slot.arguments or (slot.name,))
    return f"{names}: {_about(slot)}{f', since {slot.since}' if slot.since else ''}"


def _about(slot: Slot) -> str:
    if slot.role == "causal":
        return f"causal, {slot.alignment}{', a hint' if slot.hint else ''}"
    if slot.role == "window":
        return "window"
    if slot.role == "lengths":
        return f"lengths, over {' '.join(slot.axes[0])}"
    elements = ", ".join(f"{element} = {meaning}" for element, meaning in slot.elements)
    how = ", attached" if slot.attached else ""
    return f"{elements}; over {' or '.join(' '.join(axes) for axes in slot.axes)}{how}"


def _missing(subjects: list[Subject]) -> Iterator[str]:
    """What the operators can be asked for and no variant supports, with the reason."""
    for name, reason in _reasons(subjects).items():
        yield f"{name} ({reason})"


def _reasons(subjects: list[Subject]) -> Mapping[str, str]:
    operators = _union(subject.operators for subject in subjects)
    absent: dict[str, str] = {}
    for fact, reason in (("dtypes", "not taken"), ("outputs", "not returned"), ("capabilities", NO_ARGUMENT)):
        having = _union(getattr(subject, fact) for subject in subjects)
        for name in CHOICES[fact.upper()]:
            applies = ONE_OPERATOR_ONLY.get(name) in (None, *operators)
            if applies and name not in having:
                absent[name] = reason
    kinds = {kind for subject in subjects for slot in subject.slots.values() for kind in (*slot.takes, slot.role)}
    adds = any(slot.meaning("float") == "add" for subject in subjects for slot in subject.slots.values())
    for kind in KINDS:
        if kind not in kinds and not (adds and kind in ("causal", "window", "attention", "key_padding")):
            folded = kinds and kind != "additive"
            absent[f"{kind} masks"] = "only merged into another mask" if folded else "no argument takes them"
    if not any(slot.attached for subject in subjects for slot in subject.slots.values()):
        absent["attached masks"] = "no tensor carries one"
    given = subjects[0].adapter.declines
    return {name: given.get(name, reason) for name, reason in absent.items()}


def written(path: Path) -> Written:
    """Read from the source text of an adapter which deviations it can declare and which refusals it can raise."""
    modules = [ast.parse(file.read_bytes(), str(file)) for file in sources(path)]
    texts = dict(pair for module in reversed(modules) for pair in _texts(module))
    of_part = {part: [node for node in ast.walk(part) if isinstance(node, ast.Call)] for part in _reachable(modules)}
    every = [call for calls in of_part.values() for call in calls]
    calls = [(call, texts | given) for part in of_part for given in _given(part, every) for call in of_part[part]]
    deviations = [_pair(call, known) for call, known in calls if _name(call) == "Deviation" and len(call.args) > 1]
    refusals = [_text(call.args[0], known) for call, known in calls if _name(call) == "Unsupported" and call.args]
    return Written(tuple(dict.fromkeys(deviations)), tuple(dict.fromkeys(refusals)))


def _texts(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for each module-level name that is assigned a literal text, or several texts."""
    for node in module.body:
        if isinstance(node, ast.Assign) and (text := _literal(node.value)):
            yield from ((target.id, text) for target in node.targets if isinstance(target, ast.Name))


def _literal(node: ast.expr) -> str:
    """A literal text, or the texts of a tuple or list joined by commas; "" for everything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    texts = [_literal(each) for each in node.elts] if isinstance(node, ast.Tuple | ast.List) else []
    return ", ".join(texts) if all(texts) else ""


def _given(part: ast.AST, calls: Sequence[ast.Call]) -> list[dict[str, str]]:
    """For each call of a function: its parameters that are given a literal text, with that text. calls: all calls."""
    if not isinstance(part, ast.FunctionDef):
        return [{}]
    names = [parameter.arg for parameter in part.args.args]
    found = [
        {name: text for name, value in zip(names, call.args, strict=False) if (text := _literal(value))}
        for call in calls
        if _name(call) == part.name
    ]
    return found or [{}]


def _reachable(modules: list[ast.Module]) -> list[ast.AST]:
    """The adapter's own module, and the helper functions that it uses directly or through other helpers."""
    main, *helpers = modules
    defined = {node.name: node for helper in helpers for node in helper.body if isinstance(node, ast.FunctionDef)}
    found: list[ast.AST] = [main]
    for node in found:
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        found += [defined[name] for name in sorted(used & set(defined)) if defined[name] not in found]
    return found


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _pair(call: ast.Call, texts: Mapping[str, str]) -> str:
    return f"{_text(call.args[0], texts)} = {_text(call.args[1], texts)}"


def _text(node: ast.expr, texts: Mapping[str, str]) -> str:
    """A literal text; a value that is filled in at run time is shown as a word in italics."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, texts) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, texts)
    name = _subject(node)
    return texts.get(name) or (f"*{name.strip('_').replace('_', ' ').lower()}*" if name else "…")


def _subject(node: ast.expr) -> str:
    """The last name of an expression; for a call, of its first argument that is no constant; "" if there is none."""
    if isinstance(node, ast.Call):
        method = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return _subject(next(part for part in (*node.args, *method, node.func) if not isinstance(part, ast.Constant)))
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
