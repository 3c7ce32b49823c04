"""The report of a check: its causes, the lines on the terminal, and the outcome of each case."""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from conformance.checking.adapter_text import AT_END
from conformance.checking.arithmetic import ROUNDING, ordinary
from conformance.checking.observation import Varying
from conformance.checking.settled_function import SettledFunction
from conformance.checking.signature import DTYPES, LAYOUTS, NOTHING, MaskForm, Signature
from conformance.diagnosis.explanation import sentence
from conformance.engine.logged_cell import LoggedCell
from conformance.engine.records import Key, LoggedDiagnosis
from conformance.engine.run_folder import Run
from conformance.report.conclusion import UNJUDGED
from conformance.report.counts import share_text, what_happened
from conformance.report.findings import Finding, advice, findings, kind_words
from conformance.spec.texts import counted
from conformance.verdicts.verdict import gravest


@dataclass(frozen=True)
class CheckCause:
    """
    One cause of rejected verdicts.

    kind: the verdict, and the class of a fail. sentence: what the function does, to follow "it", if a decision explains
    it; else what happened. remedy: the fix at the call site, or "". count: the number of verdicts. case: an example.
    ambiguous: other causes that explain the verdicts equally well, as sentences. declare: the DECISION=NAME that would
    require this behaviour, if it can be declared. facts: if no decision explains them, what was measured, in sentences.
    """

    kind: str
    sentence: str
    remedy: str
    explained: bool
    count: int
    case: str
    ambiguous: tuple[str, ...] = ()
    declare: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.explained:
            return f"it {self.sentence}"
        if self.kind.startswith("fail"):
            return f"no cause found ({kind_words(self.kind).removeprefix('fail: ')}): {self.sentence}"
        return self.sentence if self.sentence.startswith(self.kind) else f"{self.kind}: {self.sentence}"


# Given a decision and a name, it returns whether `--declare` accepts them.
Declarable = Callable[[str, str], bool]


def nothing_declarable(_decision: str, _name: str) -> bool:
    """Say that nothing can be declared."""
    return False


def causes(found: Iterable[Finding], declarable: Declarable = nothing_declarable) -> tuple[CheckCause, ...]:
    """
    Join equal findings into causes; findings without a cause are equal if they differ in numbers only.

    A function is judged twice: with each mask in its own argument, and in the dense form with all masks in one.
    """
    return tuple(sorted(_joined(found, declarable).values(), key=lambda cause: (not cause.explained, -cause.count)))


def causes_of(found: Iterable[Finding], declarable: Declarable = nothing_declarable) -> dict[Key, list[CheckCause]]:
    """Return the causes of each rejected verdict, among those that `causes` returns."""
    found = tuple(found)
    joined = _joined(found, declarable)
    causes: dict[Key, list[CheckCause]] = {}
    for key, cause in ((key, joined[_key(each)]) for each in found for key in each.cells):
        causes.setdefault(key, []).append(cause)
    return causes


def _joined(found: Iterable[Finding], declarable: Declarable) -> dict[tuple[str, str], CheckCause]:
    joined: dict[tuple[str, str], CheckCause] = {}
    for each in found:
        cause = CheckCause(
            each.kind,
            each.full_sentence,
            each.remedy,
            each.explained,
            each.count,
            each.example[0],
            each.ambiguous,
            tuple(f"{decision}={name}" for decision, name in each.ways if declarable(decision, name)),
            each.facts,
        )
        if len(cause.declare) < len(each.ways):  # all of them or none
            cause = replace(cause, declare=())
        key = _key(each)
        before = joined.get(key)
        joined[key] = cause if before is None else replace(before, count=before.count + cause.count)
    return joined


def _key(found: Finding) -> tuple[str, str]:
    """Return the key under which findings are joined: a cause by its sentence, the rest without their numbers."""
    if found.explained:
        return found.kind, found.sentence
    return ("fail", "") if found.kind.startswith("fail") else (found.kind, re.sub(r"\d+", "#", found.sentence))


VARIES = (
    "inconsistent: different cases show different behaviours, each of which alone would be accepted "
    "(another mistake can cause this)"
)
ARRAYS = {"numpy": "NumPy arrays", "torch": "torch tensors", "jax": "JAX arrays"}
AXES = {"b": "batch", "h": "num_heads", "q": "seq_len_q", "k": "seq_len_k"}
MHA_AXES = {
    "bhsd": "(batch, seq_len, width)",
    "bshd": "(batch, seq_len, width)",
    "sbhd": "(seq_len, batch, width)",
    "bsd": "(batch, seq_len, width)",
    "thd": "(seq_len, width), one call for each batch element",
    "sd": "(seq_len, width), one call for each batch element",
}
# Argument names that are obvious and not reported.
USUAL = ("q", "k", "v", "x", "query", "key", "value")
# Maximum number of reasons for left-out calls that are printed.
MAX_LEFT_OUT_REASONS = 3
# Maximum number of causes that are printed; the report has them all.
MAX_CAUSES = 8
# Maximum number of other causes that are printed for an ambiguous cause.
MAX_TIES = 3
# The part of a case id that names its dtype.
DTYPE = re.compile(r"(?<=[\[,])dtype=\w+")


def settled_notes(settled: SettledFunction) -> tuple[str, ...]:
    """Return sentences about how the function was called, and what was observed before it was judged."""
    signature, observed = settled.signature, settled.observed
    notes = list(_called(signature))
    if signature.defaults:
        names = ", ".join(signature.defaults)
        how = f" (to name its role: --map {signature.defaults[0]}=ROLE)"
        notes.append(f"left at the default, because check does not know the argument: {names}{how}")
    if signature.mask is None:
        notes.append("it takes no attention mask, so cases that need one are left out")
    named = settled.read.items()
    notes += [f"arithmetic: in {dtype}, {_rounding(name)}" for dtype, name in named if name != ordinary(dtype)]
    notes += [_observed(_sentence(*way, observed.dialect), *way) for way in observed.dialect.items()]
    return (*notes, *_notes_of_dtypes(observed.of_dtypes))


def _notes_of_dtypes(observed: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield a sentence for each choice that some dtypes make and others do not."""
    made: dict[str, list[str]] = {}
    for dtype, dialect in observed.items():
        for way in dialect.items():
            made.setdefault(_sentence(*way, dialect), []).append(dtype)
    for said, dtypes in made.items():
        yield f"observed: in {', '.join(dtypes)}, it {said} (accepted: what a finite fill does depends on the dtype)"


def _sentence(decision: str, name: str, dialect: Mapping[str, str]) -> str:
    """Say what an observed way does; beside a finite fill, a row that a boolean mask masks fully has finite logits."""
    where = ", where an additive mask adds -inf" if decision == "fully_masked_row" and "mask_fill" in dialect else ""
    return sentence(decision, name) + where


def _observed(said: str, decision: str, name: str) -> str:
    return f"observed: it {said} (accepted; to require it: --declare {decision}={name})"


def accepted_notes(diagnoses: Iterable[LoggedDiagnosis]) -> Iterator[str]:
    """Yield a sentence about each accepted deviation that shows only in calls that fail for another cause."""
    found = (cause for each in diagnoses for cause in each.separated if cause.accepted)
    notes = (_observed(cause.sentence, *way) for cause in found for way in cause.decisions.items())
    yield from dict.fromkeys(notes)


def _rounding(name: str) -> str:
    """Say what a profile means; one that calibration does not try was given with --profile."""
    does = ROUNDING.get(name)
    return f"it is judged with the profile {name}, as declared" if does is None else f"it {does} (profile {name})"


def _called(signature: Signature) -> Iterator[str]:
    """Yield a sentence about how the function was called, if it is not the convention of docs/check.md."""
    notes = []
    if signature.framework != "numpy" or signature.layout != "bhsd":
        axes = LAYOUTS[signature.layout] if signature.operator == "sdpa" else MHA_AXES[signature.layout]
        notes.append(f"{ARRAYS[signature.framework]} {axes}")
    others = {
        role: name for role, name in signature.names.items() if role not in ("mask", NOTHING) and name not in USUAL
    }
    notes += [f"{name} as {role}" for role, name in others.items() if name != role]
    notes += _called_with_masks(signature)
    notes += [f"{signature.names[role]} always a number, because None fails" for role in signature.numbers]
    if not signature.wide:
        notes.append("value_dim = head_dim in every call, because other widths fail")
    notes += _called_in_sizes(signature)
    if signature.alias != "none":
        arrays = {"kv": "key and value", "qkv": "query, key and value"}[signature.alias]
        notes.append(f"one array as {arrays}; cases in which they differ are left out")
    if signature.refusal:
        refused = " and ".join(dtype for dtype in ("float32", "float64") if dtype not in signature.dtypes)
        taken = " and ".join(signature.dtypes)
        notes.append(f"{taken} in place of {refused}, because in a plain call in float32 {signature.refusal}")
    elif "float64" not in signature.dtypes and "float64" not in signature.refused:
        notes.append("no float64, which JAX converts to float32 unless jax_enable_x64 is set")
    if signature.refused:
        dtype, text = next(iter(signature.refused.items()))
        notes.append(f"not in {' or '.join(signature.refused)}, because in a plain call in {dtype} {text}")
    if notes:
        yield f"called with {'; '.join(notes)}"
    if signature.returned != "output":
        second = {"weights": "weights", "weights_mean": "averaged weights"}.get(
            signature.returned, "something else, which is not judged"
        )
        yield f"it returns the output and {second}"


def _called_with_masks(signature: Signature) -> Iterator[str]:
    """Yield what the arguments for masks get, if it is not the convention."""
    if signature.mask is not None and (signature.form != MaskForm() or signature.mask != "mask" or signature.numeric):
        otherwise = f" (if it is no mask: --map {signature.mask}=default)" if signature.mask_by_place else ""
        yield f"{signature.mask} as the mask, {_mask(signature.form, numeric='mask' in signature.numeric)}{otherwise}"
    if "key_padding_mask" in signature.numeric:
        yield f"{signature.names['key_padding_mask']} as {NUMBERS}"
    if signature.always_causal and not signature.has("is_causal"):
        yield "no argument for a causal mask, because it applies one in every call, as declared"
    whole = "with all axes in full size, because with axes of size 1 it raises an exception"
    yield from (f"{signature.names[role]} {whole}" for role in signature.whole)
    if NOTHING in signature.names:
        unused = signature.names[NOTHING]
        why = ", because every call with a mask in it fails" if signature.mask_by_place else ""
        yield f"{unused} always None{why} (to name its role: --map {unused}=ROLE)"
    none = "because None fails or changes the answer: a call without a mask gets one that masks nothing"
    yield from (f"{signature.names[role]} in every call, {none}" for role in signature.always)


def _called_in_sizes(signature: Signature) -> Iterator[str]:
    """Yield the sizes to which cases are adapted, and whether they have no output projection."""
    if signature.sizes.are_limited:
        why = f", because in a plain call in other sizes {signature.size_refusal}" if signature.size_refusal else ""
        yield f"only {signature.sizes}{why}"
    if not signature.projected:
        yield "cases without an output projection, because it has none"


NUMBERS = "the numbers 1 (attend) and 0, because booleans fail"


def _mask(form: MaskForm, *, numeric: bool) -> str:
    booleans = NUMBERS if numeric else "boolean (True = attend)"
    added = "added to the logits" + ("; booleans raise no error, but hide no key" if form.misread else "")
    reads = [*([booleans] if form.boolean else []), *([f"floats ({added})"] if form.added else [])]
    return f"({', '.join(AXES[axis] for axis in form.axes)}), {' or '.join(reads)}"


def varying_notes(varies: Varying, named: Collection[str], judged: Collection[str]) -> Iterator[str]:
    """
    Yield a sentence about the decisions for which several behaviours occur.

    named: cases with a named cause or an accepted deviation. A decision is not reported if one of its examples is among
    them, because that explains the variation. judged: the cases that were judged. A decision is reported only if all of
    its examples are among them, because the others may have a cause.
    """
    examples_of = [
        f"{decision}={name} in {case}"
        for decision, examples in varies.items()
        if set(judged).difference(named).issuperset(examples.values())
        for name, case in examples.items()
    ]
    if examples_of:
        yield f"{VARIES}: {'; '.join(examples_of)}"


def added_mask_notes(diagnoses: Iterable[LoggedDiagnosis], mask: str | None) -> Iterator[str]:
    """
    Yield how to check a function that adds its mask to the logits, if a cause says that it does so with a boolean one.

    mask: the function's name for its mask.
    """
    decisions = [way for each in diagnoses for cause in each.reported for way in cause.decisions.items()]
    if mask is not None and (f"number_mask[{mask}]", "added") in decisions:
        yield f"if the argument {mask} is meant to be added to the logits, check with --map {mask}=bias"


def exclusive_notes(cells: Iterable[LoggedCell]) -> Iterator[str]:
    """
    Yield how to state that two arguments for masks exclude each other, if every call with both raises an exception.

    cells: all judged cells. Each of the two arguments must be in a call that has a reply.
    """
    raising: set[tuple[str, str]] = set()
    replying: set[tuple[str, str]] = set()
    usable: set[str] = set()
    for cell in cells:
        given = sorted({mask.slot for mask in cell.route} - {AT_END})
        if cell.verdict == "error":
            raising.update(combinations(given, 2))
        elif cell.verdict != "unsupported":
            replying.update(combinations(given, 2))
            usable.update(given)
    for one, other in sorted(raising - replying):
        if {one, other} <= usable:
            yield f"if {one} and {other} are meant to exclude each other, check with --exclusive {one},{other}"


# In place of the verdict of a call whose output has another dtype, for no known cause.
OTHER_DTYPE = "other dtype"
# What a call does whose function may not take its dtype: verdict -> in words.
ON_REFUSAL = {"error": "raises", OTHER_DTYPE: "returns another dtype"}


def dtype_notes(verdicts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """
    Yield how to leave out the dtypes in which every call raises or returns another dtype, if there are others.

    verdicts: dtype and verdict of each call, or OTHER_DTYPE.
    """
    made: dict[str, set[str]] = defaultdict(set)
    for dtype, verdict in verdicts:
        if verdict != "unsupported":
            made[dtype].add(verdict)
    refused = [dtype for dtype in DTYPES if made[dtype] and made[dtype] <= ON_REFUSAL.keys()]
    others = " ".join(f"--dtype {dtype}" for dtype in DTYPES if made[dtype] and dtype not in refused)
    if refused and others:
        them, found = " or ".join(refused), {verdict for dtype in refused for verdict in made[dtype]}
        does = " or ".join(text for verdict, text in ON_REFUSAL.items() if verdict in found)
        yield f"every call in {them} {does}; if the function is not meant to take {them}, check it with {others}"


def headline(given: str, run: Run, causes: tuple[CheckCause, ...], *, conforms: bool) -> str:
    """Return the first line: whether the function conforms, and which share of the cases was judged."""
    judged = sum(cell.verdict != "unsupported" for cell in run.judged.values())
    some, every = judged_cases((case, cell.verdict != "unsupported") for (case, _), cell in run.judged.items())
    calls = f"{counted(judged, 'call')} judged"
    share = (
        f"{share_text(some / max(1, every))} of the cases were judged (cases that differ only in dtype count as one)"
    )
    if conforms:
        left = len(run.judged) - judged
        them = "it" if left == 1 else "them"
        out = f"; {counted(left, 'call')} left out because the function does not support {them}" if left else ""
        return f"{given} conforms: {calls}{out}; {share}."
    if causes:
        return f"{given} does not conform: {_found(causes)} in {calls}."
    if judged and not run.rejected and run.footer is not None and not run.footer.gate.incomplete:
        return f"{given} is not accepted: {calls}, all of which conform; see below."
    if judged and not run.rejected:
        return f"{given} was judged on too few cases: {calls}, all of which conform; {share}; see below."
    return f"{given} was not judged{' to the end' if judged else ''}: see below."


def judged_cases(asked: Iterable[tuple[str, bool]]) -> tuple[int, int]:
    """
    Return the number of judged cases and the number of all cases; a case in several dtypes counts once.

    asked: the id of a case, and whether this call was judged. A case counts as judged if it was judged in any dtype.
    """
    judged: dict[str, bool] = defaultdict(bool)
    for case, was_judged in asked:
        judged[DTYPE.sub("", case)] |= was_judged
    return sum(judged.values()), len(judged)


def too_little(cells: Iterable[LoggedCell], least: float) -> Iterator[str]:
    """Yield a sentence if less than the share `least` of the cases was judged, with the most frequent reasons."""
    cells = list(cells)
    judged, every = judged_cases((cell.case, cell.verdict != "unsupported") for cell in cells)
    reasons = Counter(without_sizes(cell.reason) for cell in cells if cell.verdict == "unsupported")
    if judged and judged < least * every:
        most = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(MAX_LEFT_OUT_REASONS))
        yield (
            f"only {share_text(judged / every)} of the cases were judged, less than --min-judged {share_text(least)} "
            f"(if the function is not meant for more: --min-judged {int(100 * judged / every)}); left out: {most}"
        )


def without_sizes(reason: str) -> str:
    """Return why a call was left out, without the axes and sizes of its mask."""
    return reason.partition(" over ")[0]


def _found(causes: tuple[CheckCause, ...]) -> str:
    """Return the number of causes, and the number of verdicts without a cause, in words."""
    named = sum(cause.explained for cause in causes)
    left = counted(sum(cause.count for cause in causes if not cause.explained), "verdict")
    if not named:
        return f"{left} without a known cause"
    return counted(named, "cause") + (f", and {left} without a known cause," if named < len(causes) else "")


def cause_lines(causes: tuple[CheckCause, ...], again: dict[str, str]) -> list[str]:
    """Return the lines about each cause: what it is, what to change, and the command that shows it again."""
    lines = []
    for number, cause in enumerate(causes[:MAX_CAUSES], 1):
        first, *rest = report_text(cause, again[cause.case])
        lines += [f"{number}. {first}", *(f"   {line}" for line in rest)]
    if len(causes) > MAX_CAUSES:
        lines.append(f"and {counted(len(causes) - MAX_CAUSES, 'more cause')} in the report")
    return lines


def report_text(cause: CheckCause, again: str, noun: str = "verdict") -> list[str]:
    """Return the lines about one cause; noun: what `cause.count` counts."""
    what_to_do = [advice(cause.remedy)] if cause.remedy else []
    ties = [f"equally possible: {other}" for other in cause.ambiguous[:MAX_TIES]]
    options = " ".join(f"--declare {shlex.quote(each)}" for each in cause.declare)
    intended = [f"if intended: {options}"] if options else []
    if cause.kind == "error" and (text := constant_part(cause.sentence)):
        intended = [f"if it is documented to refuse such calls: --declines {shlex.quote(text)}"]
    first = f"{cause} ({counted(cause.count, noun)})"
    return [first, *cause.facts, *what_to_do, *intended, f"rerun: {again}", *ties]


# Minimum number of characters of a text that tells one exception from another.
MIN_TEXT = 8


def constant_part(exception: str) -> str:
    """Return the longest part of an exception's text that has no number in it; "" if it is too short."""
    _, _, message = exception.removeprefix("error: ").partition(": ")
    part = max(re.split(r"\W*(?<!\w)\d\S*\W*", message.split("\n")[0]), key=len).strip()
    return part if len(part) >= MIN_TEXT else ""


DECLINED = "unsupported"
MISSING = "missing"
# Maximum number of reasons for left-out cases that a failing share test lists.
MAX_REASONS = 4


@dataclass(frozen=True)
class CaseOutcome:
    """
    The outcome of one case, over the plain and the dense form of its call.

    verdict: one of docs/architecture.md, or "missing" if the check ended before the case. accepted: whether the gate
    accepts it. text: for a rejected case, the cause, the fix and the command that shows it again; for a declined case,
    the reason.
    """

    verdict: str
    accepted: bool
    text: str = ""

    @property
    def judged(self) -> bool:
        """Return whether the function was called and its reply could be judged."""
        return self.verdict not in (*UNJUDGED, MISSING)


def outcomes(
    run: Run, again: Callable[[str], str], declarable: Declarable = nothing_declarable
) -> dict[str, CaseOutcome]:
    """Return the outcome of each case; again: returns the command that checks one case again."""
    cells: dict[str, list[LoggedCell]] = {name: [] for name in run.header.cases}
    for cell in run.cells.values():
        cells[cell.case].append(cell)
    where = _by_cases(causes_of(findings(run), declarable))
    return {name: _outcome(run, some, where, again(name)) for name, some in cells.items()}


def _by_cases(where: Mapping[Key, list[CheckCause]]) -> dict[Key, list[CheckCause]]:
    """Return the causes with the number of cases instead of verdicts: a case has a verdict for each form."""
    asked = {(cause, case) for (case, _), some in where.items() for cause in some}
    count = Counter(cause for cause, _ in asked)
    return {key: [replace(cause, count=count[cause]) for cause in some] for key, some in where.items()}


def _outcome(run: Run, cells: list[LoggedCell], where: Mapping[Key, list[CheckCause]], again: str) -> CaseOutcome:
    asked = [cell for cell in cells if cell.verdict != DECLINED]
    if not cells:
        why = run.footer.gate.incomplete if run.footer else ()
        return CaseOutcome(
            MISSING, accepted=False, text="\n".join(["no verdict: the check ended before this case", *why])
        )
    if not asked:
        return CaseOutcome(DECLINED, accepted=True, text=what_happened(cells[0]))
    verdict = gravest(cell.verdict for cell in asked)
    red = next((cell for cell in asked if cell.key in run.rejected), None)
    if red is None:
        return CaseOutcome(verdict, accepted=True)
    cause, *others = where[red.key]
    first, *rest = report_text(cause, again, "case")
    here = [] if cause.explained or what_happened(red) in first else [f"in this case: {what_happened(red)}"]
    also = [f"also: {report_text(each, again, 'case')[0]}" for each in others]
    return CaseOutcome(verdict, accepted=False, text="\n".join([first, *here, *also, *rest]))


def judged_share(given: str, found: Mapping[str, CaseOutcome], least: float) -> CaseOutcome:
    """
    Return an outcome that fails if too few cases were judged: conforming in a few cases only proves little.

    given: the name of the function. found: case -> outcome. least: the minimum share, from 0 to 1.
    """
    judged, every = judged_cases((case, each.judged) for case, each in found.items())
    if judged and judged >= least * every:
        return CaseOutcome("pass", accepted=True)
    share = judged / max(1, every)
    first = f"{given} was judged in {judged} of {counted(every, 'case')}: {share:.0%}, but min_judged is {least:.0%}"
    fix = "fix: support more arguments (docs/check.md), or choose the cases that the function is meant for: cases=[...]"
    if few := int(100 * share) / 100:
        fix += f", or set min_judged={few} if the function is not meant for more"
    return CaseOutcome("fail", accepted=False, text="\n".join([first, *_left_out(found.values()), fix]))


def _left_out(found: Collection[CaseOutcome]) -> Iterator[str]:
    """Yield the most frequent reasons for left-out cases, without the sizes of a case."""
    reasons = Counter(without_sizes(each.text) for each in found if each.verdict == DECLINED)
    for reason, count in reasons.most_common(MAX_REASONS):
        yield f"left out: {counted(count, 'case')}: {reason}"
    if more := sum(reasons.values()) - sum(count for _, count in reasons.most_common(MAX_REASONS)):
        yield f"left out: {counted(more, 'case')} for other reasons"
