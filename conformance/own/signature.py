"""What a NumPy function takes, read from its signature: the conventions of docs/check.md."""

import ast
import difflib
from dataclasses import dataclass

from conformance.own.errors import CheckError

CONVENTIONS = {
    "sdpa": ("query", "key", "value", "mask"),
    "mha": ("query", "key", "value", "params", "num_heads", "mask"),
}
"""The arguments that are passed by position, by operator; the last may be left out."""

KEYWORDS = (
    "is_causal",
    "causal_alignment",
    "scale",
    "bias",
    "key_padding_mask",
    "num_kv_heads",
    "window",
    "softcap",
    "dropout_p",
    "need_weights",
    "average_weights",
)
"""Further arguments, passed by name if the signature has them."""

_NEAR = 0.8


@dataclass(frozen=True)
class Signature:
    """
    How the function is called.

    mask: what it calls the mask, or None if it takes none; it is the last positional argument unless `mask_by_name`.
    keywords: those of KEYWORDS that it names. defaults: what it
    names besides, and what therefore keeps its default.
    """

    operator: str
    mask: str | None
    mask_by_name: bool
    keywords: tuple[str, ...]
    defaults: tuple[str, ...] = ()

    def has(self, keyword: str) -> bool:
        """Whether the signature names `keyword`."""
        return keyword in self.keywords


def read_signature(definition: ast.FunctionDef, operator: str | None = None) -> Signature:
    """
    Read a `def`; without `operator`, it is mha where `params` or `num_heads` stands before the mask.

    Raises:
        CheckError: it cannot be called by the convention of the operator.
    """
    places = [each.arg for each in (*definition.args.posonlyargs, *definition.args.args)]
    operator = operator or infer_operator(places)
    expected = CONVENTIONS[operator]
    needed = len(expected) - 1
    if len(places) < needed:
        raise CheckError(
            f"{definition.name}({', '.join(places)}) takes {len(places)} arguments by position; "
            f"{operator} is called as {definition.name}({', '.join(expected)}), where only mask may be missing"
        )
    named = [*places[needed:], *(each.arg for each in definition.args.kwonlyargs)]
    mask, by_name = _mask(places[needed:], named)
    taken = tuple(name for name in KEYWORDS if name in named)
    rest = tuple(name for name in named if name not in (*KEYWORDS, mask))
    _refuse_required(definition, rest)
    return Signature(operator, mask, by_name, taken, rest)


def infer_operator(places: list[str]) -> str:
    """Tell sdpa from mha by the arguments that stand where mha has params and num_heads."""
    between = places[3:5]
    return "mha" if "params" in between or "num_heads" in between else "sdpa"


def _mask(after: list[str], named: list[str]) -> tuple[str | None, bool]:
    """The name of the mask, and whether it is passed by name: the next by position if it is nothing else."""
    if "mask" in named:
        return "mask", after[:1] != ["mask"]
    if after and after[0] not in KEYWORDS:
        return after[0], False
    return None, False


def _refuse_required(definition: ast.FunctionDef, names: tuple[str, ...]) -> None:
    """An argument that is none of ours needs a default."""
    arguments = definition.args
    places = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    optional = set(places[len(places) - len(arguments.defaults) :])
    optional |= {each.arg for each, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if given}
    for name in names:
        if name not in optional:
            near = difflib.get_close_matches(name, KEYWORDS, 1, _NEAR)
            hint = f"; did you mean {near[0]}?" if near else f"; {', '.join(('mask', *KEYWORDS))} are passed"
            raise CheckError(
                f"{definition.name} needs an argument {name!r} that check does not pass: give it a default{hint}"
            )
