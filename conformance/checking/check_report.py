"""A check in plain words: its causes, the first lines on the terminal, and what became of each case."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance.checking.arithmetic import ordinary
from conformance.checking.observation import SettledFunction, Varying
from conformance.checking.signature import LAYOUTS, MaskForm, Signature
from conformance.engine.records import Cell, Key
from conformance.engine.run_folder import Run
from conformance.report.conclusion import UNJUDGED
from conformance.report.counts import share_text, what_happened
from conformance.report.findings import Finding, findings
from conformance.spec.texts import counted
from conformance.verdicts.verdict import gravest


@dataclass(frozen=True)
class Cause:
    """
    One cause of rejected verdicts.

    kind: the verdict, and of a fail its class. sentence: what the function does, after "it", where a decision explains
    it; else what happened. remedy: what helps at the call site, or "". case: an example. ambiguous: other causes that
    explain the verdicts as well, in sentences.
    """

    kind: str
    sentence: str
    remedy: str
    explained: bool
    count: int
    case: str
    ambiguous: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.explained:
            return f"it {self.sentence}"
        if self.kind.startswith("fail"):
            return f"no cause found ({self.kind}): {self.sentence}"
        return self.sentence if self.sentence.startswith(self.kind) else f"{self.kind}: {self.sentence}"


def causes(found: Iterable[Finding]) -> tuple[Cause, ...]:
    """
    Join findings that are the same, without a cause: but for numbers.

    A function is judged as one subject with each mask in its own argument, and as another with all masks in one.
    """
    return tuple(sorted(_joined(found).values(), key=lambda cause: (not cause.explained, -cause.count)))


def cause_of(found: Iterable[Finding]) -> dict[Key, Cause]:
    """The cause to which each rejected verdict belongs, of those that `causes` tells."""
    found = tuple(found)
    joined = _joined(found)
    return {key: joined[_key(each)] for each in found for key in each.cells}


def _joined(found: Iterable[Finding]) -> dict[tuple[str, str], Cause]:
    joined: dict[tuple[str, str], Cause] = {}
    for each in found:
        cause = Cause(
            each.kind, each.full_sentence, each.remedy, each.explained, each.count, each.example[0], each.ambiguous
        )
        key = _key(each)
        before = joined.get(key)
        joined[key] = cause if before is None else replace(before, count=before.count + cause.count)
    return joined


def _key(found: Finding) -> tuple[str, str]:
    """What is told as one: a cause by its sentence, in which numbers are conditions; the rest but for its numbers."""
    if found.explained:
        return found.kind, found.sentence
    return ("fail", "") if found.kind.startswith("fail") else (found.kind, re.sub(r"\d+", "#", found.sentence))


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
# Names that nobody needs to be told about.
USUAL = ("q", "k", "v", "x", "query", "key", "value")
# So many reasons for which calls are left out are told.
MAX_LEFT_OUT_REASONS = 3
# So many causes; the report has them all.
MAX_CAUSES = 8
# So many others that a cause is not told from.
MAX_TIES = 3
# The part of a case's name that says its dtype.
DTYPE = re.compile(r"(?<=[\[,])dtype=\w+")


def settled_notes(settled: SettledFunction) -> tuple[str, ...]:
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
    report_text = [
        f"{decision}={name} in {case}"
        for decision, examples in varies.items()
        if not set(examples.values()) & set(named)
        for name, case in examples.items()
    ]
    if report_text:
        yield f"{VARIES}: {'; '.join(report_text)}"


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
        most = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(MAX_LEFT_OUT_REASONS))
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
    for number, cause in enumerate(causes[:MAX_CAUSES], 1):
        first, *rest = report_text(cause, again[cause.case])
        lines += [f"{number}. {first}", *(f"   {line}" for line in rest)]
    if len(causes) > MAX_CAUSES:
        lines.append(f"and {counted(len(causes) - MAX_CAUSES, 'more cause')} in the report")
    return lines


def report_text(cause: Cause, again: str, noun: str = "verdict") -> list[str]:
    """One cause, what to change, the command that shows it again, and what else it could be; noun: what it counts."""
    fix = [f"fix: {cause.remedy}"] if cause.remedy else []
    ties = [f"ambiguous: {other}" for other in cause.ambiguous[:MAX_TIES]]
    return [f"{cause} ({counted(cause.count, noun)})", *fix, f"again: {again}", *ties]


DECLINED = "unsupported"
MISSING = "missing"
# So many reasons for which cases were left out.
MAX_REASONS = 4


@dataclass(frozen=True)
class Outcome:
    """
    What became of one case, over both forms in which its masks are passed.

    verdict: one of docs/architecture.md, or "missing" where the check ended before it. accepted: whether the gate
    accepts it. text: the cause, what to change and the command that shows it again where it does not; why where it was
    declined.
    """

    verdict: str
    accepted: bool
    text: str = ""

    @property
    def judged(self) -> bool:
        """Whether the function was called and its reply could be judged."""
        return self.verdict not in (*UNJUDGED, MISSING)


def outcomes(run: Run, again: Callable[[str], str]) -> dict[str, Outcome]:
    """Case -> what became of it; again: the command that checks one case again."""
    cells: dict[str, list[Cell]] = {name: [] for name in run.header.cases}
    for cell in run.cells.values():
        cells[cell.case].append(cell)
    where = _by_cases(cause_of(findings(run)))
    return {name: _outcome(run, some, where, again(name)) for name, some in cells.items()}


def _by_cases(where: Mapping[Key, Cause]) -> dict[Key, Cause]:
    """Causes that count cases: one case has a verdict for each form."""
    asked = {(cause, case) for (case, _), cause in where.items()}
    count = Counter(cause for cause, _ in asked)
    return {key: replace(cause, count=count[cause]) for key, cause in where.items()}


def _outcome(run: Run, cells: list[Cell], where: Mapping[Key, Cause], again: str) -> Outcome:
    asked = [cell for cell in cells if cell.verdict != DECLINED]
    if not cells:
        why = run.footer.gate.incomplete if run.footer else ()
        return Outcome(MISSING, accepted=False, text="\n".join(["no verdict: the check did not get to it", *why]))
    if not asked:
        return Outcome(DECLINED, accepted=True, text=what_happened(cells[0]))
    verdict = gravest(cell.verdict for cell in asked)
    red = next((cell for cell in asked if cell.key in run.rejected), None)
    if red is None:
        return Outcome(verdict, accepted=True)
    cause = where[red.key]
    first, *rest = report_text(cause, again, "case")
    here = [] if cause.explained or what_happened(red) in first else [f"here: {what_happened(red)}"]
    return Outcome(verdict, accepted=False, text="\n".join([first, *here, *rest]))


def judged_share(given: str, found: Mapping[str, Outcome], least: float) -> Outcome:
    """
    Whether enough of the cases was judged: a function of which nearly all is left out conforms for nothing.

    given: what the function is called. found: case -> what became of it. least: the smallest share, from 0 to 1.
    """
    judged, every = judged_cases((case, each.judged) for case, each in found.items())
    if judged and judged >= least * every:
        return Outcome("pass", accepted=True)
    share = judged / max(1, every)
    said = f"{given} was judged in {judged} of {counted(every, 'case')}: {share:.0%}, and min_judged is {least:.0%}"
    fix = "fix: let it take what they need (docs/check.md), or choose what it is for: cases=[...]"
    if few := int(100 * share) / 100:
        fix += f", or min_judged={few} where no more is meant"
    return Outcome("fail", accepted=False, text="\n".join([said, *_left_out(found.values()), fix]))


def _left_out(found: Collection[Outcome]) -> Iterator[str]:
    """The most frequent reasons, without the sizes of a case."""
    reasons = Counter(each.text.partition(" over ")[0] for each in found if each.verdict == DECLINED)
    for reason, count in reasons.most_common(MAX_REASONS):
        yield f"left out: {counted(count, 'case')}: {reason}"
    if more := sum(reasons.values()) - sum(count for _, count in reasons.most_common(MAX_REASONS)):
        yield f"left out: {counted(more, 'case')} for other reasons"
