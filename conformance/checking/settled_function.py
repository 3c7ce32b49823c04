"""Find out everything under which a function is judged, and write its adapter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from conformance.bridge.profile import Profile
from conformance.checking import array_layouts, layer
from conformance.checking.adapter_text import (
    ADAPTER,
    ARRAYS_FILE,
    DECLARED,
    FUNCTION,
    LAYER_FILE,
    adapter_text,
    function_text,
)
from conformance.checking.arithmetic import (
    CANDIDATES,
    PROFILES,
    calibrated,
    evident_cause,
    fallback,
    ordinary,
    profiles_by_dtype,
    profiles_named,
)
from conformance.checking.declarations import Declared
from conformance.checking.observation import FINITE_FILL, Diagnoses, ObservedDecisions, decided, is_accepted, observe
from conformance.checking.probe_calls import Answers, Expectations, asked_first, basis_of, probe
from conformance.checking.signature import Signature
from conformance.checking.target import Target
from conformance.deviations.deviation import Dialect
from conformance.disk import scratch
from conformance.engine.adapters import Subject, read_adapter
from conformance.engine.judging import Judge
from conformance.engine.pool import Pool
from conformance.spec.case import Case

OBSERVED = "observed by conformance check"


@dataclass(frozen=True)
class SettledFunction:
    """
    A function with everything under which it is judged.

    profiles: dtype -> name of the profile. read: those of the profiles that were calibrated or given by the user.
    evident: the deviations that the calls showed and that are not accepted.
    """

    signature: Signature
    declared: Declared
    profiles: Mapping[str, str]
    read: Mapping[str, str]
    observed: ObservedDecisions
    evident: tuple[tuple[str, str], ...] = ()

    def files(self, target: Target) -> dict[str, str]:
        """Return the files of the generated adapter: name -> text."""
        sources = [(self.declared.dialect, DECLARED), (self.observed.dialect, OBSERVED)]
        dialect = [(decision, name, source) for each, source in sources for decision, name in each.items()]
        of_dtypes = {
            dtype: [(decision, name, OBSERVED) for decision, name in each.items()]
            for dtype, each in self.observed.of_dtypes.items()
        }
        profiles = profiles_named(self.profiles)
        text = adapter_text(target, self.signature, self.declared.polarity, profiles, dialect, of_dtypes)
        helpers = {ARRAYS_FILE: array_layouts}
        if self.signature.built is not None:
            helpers[LAYER_FILE] = layer
        copies = {name: Path(str(module.__file__)).read_text(encoding="utf-8") for name, module in helpers.items()}
        return {ADAPTER: text, FUNCTION: function_text(target, str(Path.cwd()), self.signature.method)} | copies


def settle(
    target: Target,
    signature: Signature,
    declared: Declared,
    profile: str | None,
    cases: tuple[Sequence[Case], Sequence[Case]],
    timeout: float,
    judge: Judge,
    pool: Pool,
) -> SettledFunction:
    """
    Ask plain cases and cases without consensus, and find out under which profile and dialect to judge.

    cases: all of the operator, and those that will be judged. judge: remembers what is expected of these calls for the
    judged run. pool: keeps the process for that run.
    """
    given = profiles_by_dtype(profile, CANDIDATES) if profile else {}
    before = SettledFunction(
        signature, declared, {dtype: ordinary(dtype) for dtype in CANDIDATES}, {}, ObservedDecisions({})
    )
    with scratch() as folder:
        subject = write_adapter(Path(folder), before.files(target), signature.device)
        answers = probe(asked_first(*cases), subject, pool, timeout)
    expected = Expectations(judge)
    basis = basis_of(cases[0])
    evident = partial(
        _evident, answers, expected, basis=basis, profile=PROFILES[given.get(basis, fallback(basis))](basis)
    )
    cause = evident(declared.dialect)
    read = {**calibrated(answers, expected, declared.dialect, cause), **given}
    names = {dtype: fallback(dtype) for dtype in CANDIDATES} | read
    asked = answers, expected, profiles_named(names), declared
    observed = observe(*asked, cause or {})
    if (observed.left_open or observed.split) and cause is not None:
        diagnoses = Diagnoses(*asked)
        observed = decided(observed, diagnoses)
        if not cause:
            # A mistake may leave rows without a key. It is evident only if it is known what is returned for such a row.
            cause = evident({**declared.dialect, **observed.under(basis)})
            observed = decided(observe(*asked, cause), diagnoses) if cause else observed
        cause = dict(diagnoses.under(observed).shown_everywhere) or cause
    others = tuple(way for way in (cause or {}).items() if not is_accepted(declared, way))
    return SettledFunction(signature, declared, names, read, observed, others)


def _evident(
    answers: Answers, expected: Expectations, declared: Dialect, basis: str, profile: Profile
) -> Dialect | None:
    """Return `evident_cause`; a fill is the accepted one if no reply distinguishes them."""
    cause = evident_cause(answers, expected, declared, basis, profile)
    if cause is None or FINITE_FILL[0] not in cause or FINITE_FILL in cause.items():
        return cause
    alike = {**cause, **dict([FINITE_FILL])}
    conforming = (each for each in answers if each[0].case.dtype == basis)
    conforming = (each for each in conforming if expected.conforms(*each, {**declared, **cause}, profile))
    return alike if all(expected.conforms(*each, {**declared, **alike}, profile) for each in conforming) else cause


def write_adapter(folder: Path, files: Mapping[str, str], device: str = "cpu") -> Subject:
    """Write the generated files, and read the adapter among them."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Subject(read_adapter(folder / ADAPTER), device=device)
