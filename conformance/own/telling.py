"""A check in plain words: the first lines on the terminal, and what a failing assertion says."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from conformance.engine.run import Run
from conformance.own.causes import Cause
from conformance.own.observation import Varying
from conformance.own.profiles import ordinary
from conformance.own.settling import Settled
from conformance.own.signature import LAYOUTS, MaskForm, Signature
from conformance.report.numbers import share_text
from conformance.spec.counting import counted

VARIES = "inconsistent: both behaviours occur; either alone would be accepted (another mistake can cause this)"
ARRAYS = {"numpy": "NumPy arrays", "torch": "torch tensors", "jax": "JAX arrays"}
AXES = {"b": "batch", "h": "num_heads", "q": "seq_len_q", "k": "seq_len_k"}
MHA_AXES = {
    "bhsd": "(batch, seq_len, width)",
    "bshd": "(batch, seq_len, width)",
    "sbhd": "(seq_len, batch, width)",
    "bsd": "(batch, seq_len, width)",
    "thd": "(seq_len, width), one call for each batch element",
}
USUAL = ("q", "k", "v", "x", "query", "key", "value")
"""Names that nobody needs to be told about."""
REASONS = 3
"""So many reasons for which calls are left out are told."""
SHOWN = 8
"""So many causes; the report has them all."""
SHOWN_TIES = 3
"""So many others that a cause is not told from."""
DTYPE = re.compile(r"(?<=[\[,])dtype=\w+")
"""The part of a case's name that says its dtype."""


def settled_notes(settled: Settled) -> tuple[str, ...]:
    """How the function was called, and what was found about it before it was judged."""
    signature, observed = settled.signature, settled.observed
    notes = list(_called(signature))
    if signature.defaults:
        notes.append(f"left at its default, since check does not know it: {', '.join(signature.defaults)}")
    if signature.mask is None:
        notes.append("it takes no mask: cases that need one are left out")
    named = settled.read.items()
    notes += [f"arithmetic: {dtype} is judged as {name}" for dtype, name in named if name != ordinary(dtype)]
    for decision, name in observed.dialect.items():
        notes.append(f"observed: {decision}={name} (fine; --declare {decision}={name} pins it down)")
    return tuple(notes)


def _called(signature: Signature) -> Iterator[str]:
    """What was assumed about the call, where it is not the convention of docs/check.md."""
    said = []
    if signature.framework != "numpy" or signature.layout != "bhsd":
        axes = LAYOUTS[signature.layout] if signature.operator == "sdpa" else MHA_AXES[signature.layout]
        said.append(f"{ARRAYS[signature.framework]} {axes}")
    others = {role: name for role, name in signature.names.items() if role != "mask" and name not in USUAL}
    said += [f"{name} is {role}" for role, name in others.items() if name != role]
    if signature.mask is not None and (signature.form != MaskForm() or signature.mask != "mask"):
        said.append(f"{signature.mask} is the mask, {_mask(signature.form)}")
    said += [f"{signature.names[role]} gets a number, since None fails" for role in signature.numbers]
    if signature.returned != "output":
        second = {"weights": "weights", "weights_mean": "averaged weights"}.get(signature.returned, "something else")
        said.append(f"it returns the output and {second}")
    if not signature.wide:
        said.append("value_dim is head_dim in every call, since other widths fail")
    if signature.is_self_attention:
        said.append("one array as query, key and value: cases where these differ are not asked")
    if not signature.doubles:
        said.append("no float64, which JAX narrows to float32 unless jax_enable_x64 is set")
    if said:
        yield f"called with {'; '.join(said)}"


def _mask(form: MaskForm) -> str:
    reads = [*(["boolean, True = attend"] if form.boolean else []), *(["floats that are added"] if form.added else [])]
    return f"({', '.join(AXES[axis] for axis in form.axes)}), {' or '.join(reads)}"


def varying_notes(varies: Varying, named: Collection[str]) -> Iterator[str]:
    """
    The decisions that are taken now one way and now another.

    named: cases with a named cause. Where an example is among them, that it varies is a consequence, and not told.
    """
    told = [
        f"{decision}={name} in {case}"
        for decision, examples in varies.items()
        if not set(examples.values()) & set(named)
        for name, case in examples.items()
    ]
    if told:
        yield f"{VARIES}: {'; '.join(told)}"


def headline(given: str, run: Run, causes: tuple[Cause, ...], *, conforms: bool) -> str:
    """Whether it conforms, and what part of the calls was judged, in the first line."""
    judged = sum(cell.verdict != "unsupported" for cell in run.cells.values())
    some, every = judged_cases((case, cell.verdict != "unsupported") for (case, _), cell in run.cells.items())
    share = f"{counted(judged, 'call')} judged, {share_text(some / max(1, every))} of the cases"
    if conforms:
        left = len(run.cells) - judged
        return f"{given} conforms: {share}; {left:,} calls left out that it does not take."
    if causes:
        return f"{given} does not conform: {_found(causes)} in {counted(judged, 'call')}."
    if judged and not run.rejected:
        return f"{given} was asked too little: {share}, all of which conform; see below."
    return f"{given} was not judged{' to the end' if judged else ''}: see below."


def judged_cases(asked: Iterable[tuple[str, bool]]) -> tuple[int, int]:
    """
    How many cases were judged, and how many there are: a case that is asked in several dtypes counts once.

    asked: the name of a case, and whether that call was judged. A case counts as judged when it was in any dtype.
    """
    judged: dict[str, bool] = defaultdict(bool)
    for case, was_judged in asked:
        judged[DTYPE.sub("", case)] |= was_judged
    return sum(judged.values()), len(judged)


def too_little(records: Iterable[Mapping[str, Any]], least: float) -> Iterator[str]:
    """Say so where a smaller part than `least` of the cases was judged, with the reasons of most of the others."""
    records = list(records)
    judged, every = judged_cases((record["case"], record["verdict"] != "unsupported") for record in records)
    reasons = Counter(record["reason"] for record in records if record["verdict"] == "unsupported")
    if judged and judged < least * every:
        most = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(REASONS))
        yield (
            f"only {share_text(judged / every)} of the cases were judged, fewer than --min-judged "
            f"{share_text(least)}; not asked: {most}"
        )


def _found(causes: tuple[Cause, ...]) -> str:
    """How many causes, and how many verdicts have none."""
    named = sum(cause.explained for cause in causes)
    left = counted(sum(cause.count for cause in causes if not cause.explained), "verdict")
    if not named:
        return f"{left} without a known cause"
    return counted(named, "cause") + (f", and {left} without one," if named < len(causes) else "")


def cause_lines(causes: tuple[Cause, ...], again: dict[str, str]) -> list[str]:
    """Each cause, what to change, and the command that shows it again."""
    lines = []
    for number, cause in enumerate(causes[:SHOWN], 1):
        first, *rest = told(cause, again[cause.case])
        lines += [f"{number}. {first}", *(f"   {line}" for line in rest)]
    if len(causes) > SHOWN:
        lines.append(f"and {counted(len(causes) - SHOWN, 'more cause')} in the report")
    return lines


def told(cause: Cause, again: str, noun: str = "verdict") -> list[str]:
    """One cause, what to change, the command that shows it again, and what else it could be; noun: what it counts."""
    fix = [f"fix: {cause.remedy}"] if cause.remedy else []
    ties = [f"ambiguous: {other}" for other in cause.ambiguous[:SHOWN_TIES]]
    return [f"{cause} ({counted(cause.count, noun)})", *fix, f"again: {again}", *ties]
