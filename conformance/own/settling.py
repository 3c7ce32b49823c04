"""What is settled about a NumPy function before it is judged: its arithmetic, and the decisions that are observed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.disk import scratch
from conformance.engine.adapters import Subject, read_adapter
from conformance.own.adapter_text import ADAPTER, DECLARED, DOOR, FUNCTION, LAYER, adapter_text, function_text
from conformance.own.calibration import calibrated, evident_cause, fallback, profiles_named
from conformance.own.declaring import Declared
from conformance.own.observation import Observed, observe
from conformance.own.planning import plan_of
from conformance.own.probing import BASIS, asked_first, probe
from conformance.own.profiles import CANDIDATES, PROFILES, meant, ordinary
from conformance.own.signature import Signature
from conformance.own.target import Target
from conformance.spec.case import Case

OBSERVED = "observed by conformance check"


@dataclass(frozen=True)
class Settled:
    """
    The names of the profiles by dtype, and what was observed beside what is declared.

    read: of the profiles, those that were read off replies or given.
    """

    signature: Signature
    declared: Declared
    profiles: Mapping[str, str]
    read: Mapping[str, str]
    observed: Observed

    def files(self, target: Target) -> dict[str, str]:
        """The adapter that declares it, and its helper."""
        sources = [(self.declared.dialect, DECLARED), (self.observed.dialect, OBSERVED)]
        dialect = tuple((decision, name, source) for each, source in sources for decision, name in each.items())
        profiles = profiles_named(self.profiles)
        text = adapter_text(target, self.signature, self.declared.polarity, profiles, dialect)
        helpers = {DOOR: "door.py"} | ({LAYER: "layer.py"} if self.signature.built is not None else {})
        copies = {name: Path(__file__).with_name(file).read_text(encoding="utf-8") for name, file in helpers.items()}
        return {ADAPTER: text, FUNCTION: function_text(target, str(Path.cwd()), self.signature.method)} | copies


def settle(
    target: Target,
    signature: Signature,
    declared: Declared,
    profile: str | None,
    cases: Sequence[Case],
    timeout: float,
) -> Settled:
    """Ask the function plain cases and those without consensus, and settle what it is judged under."""
    said = meant(profile, CANDIDATES) if profile else {}
    before = Settled(signature, declared, {dtype: ordinary(dtype) for dtype in CANDIDATES}, {}, Observed({}))
    with scratch() as folder:
        subject = write_adapter(Path(folder), before.files(target))
        answers = probe(asked_first(cases), subject, plan_of(subject), timeout)
    cause = evident_cause(answers, declared.dialect, PROFILES[said.get(BASIS, ordinary(BASIS))](BASIS))
    read = {**calibrated(answers, declared.dialect, cause), **said}
    names = {dtype: fallback(dtype) for dtype in CANDIDATES} | read
    return Settled(signature, declared, names, read, observe(answers, profiles_named(names), declared, cause))


def write_adapter(folder: Path, files: Mapping[str, str]) -> Subject:
    """Write the generated files and read the adapter among them."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Subject(read_adapter(folder / ADAPTER))
