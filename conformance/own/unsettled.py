"""Failures about non-finite inputs alone that come with the framework, or with adding -inf: told, and accepted."""

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.engine.judging import Judged
from conformance.own.declaring import Declared
from conformance.own.signature import Signature
from conformance.spec.counting import counted

WAYS = ("nonfinite_key", "nonfinite_value", "attended_nonfinite")
"""Decisions about NaN and infinities in the inputs."""

WHERE_ADDED = "_where_added"
"""The end of the names of ways that follow from adding -inf to a logit that is NaN."""

OF_FRAMEWORK = "kernels of PyTorch and JAX treat NaN and infinities in their own ways, by shape and memory layout"
OF_ADDING = "NaN plus -inf is NaN, whoever adds it"
OF_BOUND = "under what is declared or observed, its rounding alone could be as large as the numbers"
LINK = "https://github.com/pytorch/pytorch/issues/141128"


class Unsettled:
    """Accepts what a framework's own operators do with non-finite inputs, unless the user has declared a way."""

    def __init__(self, signature: Signature, declared: Declared) -> None:
        """Begin with nothing seen."""
        self._of_framework = signature.framework != "numpy"
        self._declared = declared
        self._seen: dict[tuple[str, str], list[str]] = {}

    def review(self, judged: Judged) -> Mapping[str, Any]:
        """What the record of a cell says of it: `known` where the reply is explained by such a way alone."""
        found = judged.judgement
        if found is not None and found.verdict == "inconclusive":
            self._seen.setdefault(("is asked something that no bound can tell", OF_BOUND), []).append(judged.case)
            return {"known": {"reason": OF_BOUND, "link": "", "entry": "conformance check"}}
        if found is None or found.verdict != "fail" or found.explanation is None:
            return {}
        decision, name, sentence = found.explanation.decision, found.explanation.name, found.explanation.sentence
        adds = name.endswith(WHERE_ADDED)
        if decision not in WAYS or self._declared.pins(decision) or not (adds or self._of_framework):
            return {}
        reason = OF_ADDING if adds else OF_FRAMEWORK
        self._seen.setdefault((sentence, reason), []).append(judged.case)
        return {"known": {"reason": reason, "link": LINK, "entry": "conformance check"}}

    def notes(self) -> Iterator[str]:
        """What was accepted, in sentences."""
        for (sentence, reason), cases in self._seen.items():
            yield (
                f"accepted: it {sentence} ({counted(len(cases), 'verdict')}, such as {cases[0]}): {reason}; "
                "--declare holds it to one way"
            )
