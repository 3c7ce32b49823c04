"""Arithmetic by name, for --profile, for calibration, and for what a failure would conform under."""

from collections.abc import Callable, Iterable

from conformance.bridge.profile import Profile

HALF = ("float16", "bfloat16")


def _stepwise(dtype: str) -> Profile:
    """NumPy in half precision: every operator rounds, also within the softmax; dot products accumulate in float32."""
    return Profile.naive(dtype).but(soft=dtype, sum=dtype)


def _for_half(make: Callable[[str], Profile]) -> Callable[[str], Profile]:
    return lambda dtype: make(dtype) if dtype in HALF else Profile.uniform(dtype)


PROFILES: dict[str, Callable[[str], Profile]] = {
    "uniform": Profile.uniform,
    "float32": lambda dtype: Profile.uniform("float32") if dtype == "float64" else Profile.ordinary(dtype),
    "fused": _for_half(Profile.fused),
    "naive": _for_half(Profile.naive),
    "stepwise": _for_half(_stepwise),
    "tf32": lambda dtype: Profile.ordinary(dtype).but(mm="tf32"),
    "bfloat16_operands": lambda dtype: Profile.ordinary(dtype).but(mm="bfloat16"),
    "float16_accumulation": lambda dtype: Profile.ordinary(dtype).but(acc="float16"),
    "float16_scores": lambda dtype: Profile.ordinary(dtype).but(score="float16"),
    "float16_softmax": lambda dtype: Profile.ordinary(dtype).but(score="float16", soft="float16", prob="float16"),
    "float16": lambda _: Profile.uniform("float16"),
}
"""Every name, and what it is for a dtype under test."""

SPEAKS_OF = {"uniform": ("float64", "float32", *HALF), "float32": ("float64",)} | dict.fromkeys(
    ("fused", "naive", "stepwise"), HALF
)
"""The dtypes for which --profile NAME says anything; the names that are not here speak of float32."""

CANDIDATES = {
    "float32": ("uniform",),
    "float64": ("uniform", "float32"),
    "float16": ("fused", "naive", "stepwise"),
    "bfloat16": ("fused", "naive", "stepwise"),
}
"""What calibration tries for each dtype, in this order."""

TOLD = ("tf32", "bfloat16_operands", "float16_scores", "float16_softmax", "float16_accumulation", "float16")
"""What a failure is tried under afterwards, and only told; the least coarse first."""


def ordinary(dtype: str) -> str:
    """The name of what is declared where nothing speaks for anything else."""
    return CANDIDATES[dtype][0]


def meant(name: str, dtypes: Iterable[str]) -> dict[str, str]:
    """Of some dtypes, those for which --profile NAME says anything."""
    return dict.fromkeys((dtype for dtype in dtypes if dtype in SPEAKS_OF.get(name, ("float32",))), name)
