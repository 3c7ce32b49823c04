"""What a function takes, read from its parameters by their names: the conventions of docs/check.md."""

import ast
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.checking.target import CheckError

# The arguments that are passed by position, by operator; the last may be left out.
CONVENTIONS = {
    "sdpa": ("query", "key", "value", "mask"),
    "mha": ("query", "key", "value", "params", "num_heads", "mask"),
}

# Further arguments, passed if the function has them.
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
    "enable_gqa",
    "training",
    "deterministic",
)

# What check passes (a role) -> other names by which people call it.
ALIASES: dict[str, tuple[str, ...]] = {
    "query": ("q", "queries", "query_states", "query_layer", "xq"),
    "key": ("k", "keys", "key_states", "key_layer", "xk"),
    "value": ("v", "values", "value_states", "value_layer", "xv"),
    "params": (),
    "num_heads": (),
    "inputs": ("x", "hidden_states", "inp", "hidden", "input", "tokens"),
    "mask": ("attn_mask", "attention_mask", "src_mask"),
    "is_causal": ("causal", "use_causal_mask", "apply_causal_mask"),
    "causal_alignment": (),
    "scale": ("sm_scale", "softmax_scale", "scaling", "scale_factor", "qk_scale"),
    "bias": ("attn_bias", "attention_bias", "position_bias", "rel_pos_bias", "additive_mask"),
    "key_padding_mask": ("padding_mask", "key_mask", "kv_mask"),
    "num_kv_heads": ("n_kv_heads", "num_key_value_heads", "kv_heads"),
    "window": (),
    "softcap": ("logit_softcap", "logits_soft_cap", "attn_logit_softcapping", "soft_cap"),
    "dropout_p": ("dropout", "dropout_rate", "attn_dropout", "attention_dropout", "p_dropout"),
    "need_weights": ("return_weights", "return_attn", "return_attention", "output_attentions"),
    "average_weights": ("average_attn_weights",),
    "enable_gqa": (),
    "training": ("train", "is_training"),
    "deterministic": ("inference",),
}

# The name of an argument -> its role.
ROLES = {name: role for role, aliases in ALIASES.items() for name in (role, *aliases)}


def role_of(name: str) -> str | None:
    """What an argument of this name is, in capitals or not; None where nobody knows."""
    return ROLES.get(name) or ROLES.get(name.lower())


# The order of the axes of query, key, value and output of sdpa, and what it means.
LAYOUTS = {
    "bhsd": "(batch, num_heads, seq_len, head_dim)",
    "bshd": "(batch, seq_len, num_heads, head_dim)",
    "sbhd": "(seq_len, batch, num_heads, head_dim)",
    "bsd": "(batch * num_heads, seq_len, head_dim)",
    "thd": "(seq_len, num_heads, head_dim), one call for each batch element",
}

# Whose arrays a function takes.
FRAMEWORKS = ("numpy", "torch", "jax")

_MIN_SIMILARITY = 0.8


@dataclass(frozen=True)
class Parameter:
    """
    A parameter of the function.

    place: whether it can be passed by position. name_only, place_only: whether it must be passed so. default: its
    default as Python writes it, or None where it has none. annotation: as Python writes it.
    """

    name: str
    place: bool = True
    place_only: bool = False
    default: str | None = None
    annotation: str = ""

    @property
    def has_choice(self) -> bool:
        """Whether it has a default other than None, which holds where it is left out."""
        return self.default not in (None, "None")


@dataclass(frozen=True)
class MaskForm:
    """
    What the mask argument was seen to take.

    axes: of its one array, of b, h, q, k. boolean: whether it hides where a boolean is False (or True). added: whether
    floats are added to the logits.
    """

    axes: tuple[str, ...] = ("b", "h", "q", "k")
    boolean: bool = True
    added: bool = False


@dataclass(frozen=True)
class Signature:
    """
    How the function is called.

    names: what it calls each role that it takes. placed: the roles that are passed by position, in their order; the
    others are passed by name. defaults: what it takes besides, which therefore keeps its default. kept: roles whose
    own default is not None, and which are left out where there is nothing to pass. numbers: roles that need a number
    where None would leave the choice to the function. framework, layout: whose arrays, in which order of axes.
    returned: "output", or "weights" or "weights_mean" where it returns these beside the output in every call.
    doubles: whether it takes float64. built: of a class, the arguments of its constructor that are given, with what
    they are; method: the method of its instance that is called, "" for the instance; biased: whether its projections
    have biases. wide: whether value_dim can be another number than head_dim.
    """

    operator: str
    names: Mapping[str, str]
    placed: tuple[str, ...]
    defaults: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    form: MaskForm = field(default_factory=MaskForm)
    framework: str = "numpy"
    layout: str = "bhsd"
    returned: str = "output"
    doubles: bool = True
    built: Mapping[str, str] | None = None
    method: str = ""
    biased: bool = True
    wide: bool = True

    @property
    def is_self_attention(self) -> bool:
        """Whether it takes one array for query, key and value."""
        return "inputs" in self.names

    @property
    def mask(self) -> str | None:
        """What it calls the mask; None if it takes none."""
        return self.names.get("mask")

    @property
    def keywords(self) -> tuple[str, ...]:
        """Those of KEYWORDS that it takes."""
        return tuple(role for role in KEYWORDS if role in self.names)

    @property
    def by_name(self) -> tuple[str, ...]:
        """The roles that are passed by name."""
        return tuple(role for role in self.names if role not in self.placed)

    def has(self, role: str) -> bool:
        """Whether the function takes what has this role."""
        return role in self.names


def read_signature(
    called: str,
    parameters: Sequence[Parameter],
    operator: str | None = None,
    mapping: Mapping[str, str] | None = None,
    *,
    layer: bool = False,
) -> Signature:
    """
    Tell what each parameter of the function `called` takes, by its name, or by its place for the first ones.

    Without `operator`, it is mha where `params` or `num_heads` stands before the mask. mapping: argument -> role, which
    overrules the names (`--map`). layer: it has the weights itself, and may take one array for query, key and value.

    Raises:
        CheckError: it cannot be called by the convention of the operator.
    """
    given = _mapped(called, parameters, mapping or {})
    places = [each.name for each in parameters if each.place]
    operator = operator or infer_operator(places)
    arrays = CONVENTIONS[operator][:-1]
    if layer:
        arrays = _arrays_of_layer(parameters, given)
    roles = _by_name(parameters, given, arrays)
    _by_position(roles, places, arrays)
    if missing := [role for role in arrays if role not in roles.values()]:
        raise CheckError(
            f"{called}({', '.join(each.name for each in parameters)}) takes {len(places)} arguments by position; "
            f"{operator} is called as {called}({', '.join(CONVENTIONS[operator])}), where only mask may be missing; "
            f"what is its {missing[0]}? --map ARGUMENT={missing[0]} says it"
        )
    _unnamed_mask(roles, parameters)
    rest = [each for each in parameters if each.name not in roles]
    _refuse_required(called, rest)
    return Signature(
        operator=operator,
        names=_ordered({role: name for name, role in roles.items()}, arrays),
        placed=_positional(parameters, roles, arrays),
        defaults=tuple(each.name for each in rest),
        kept=tuple(roles[each.name] for each in parameters if each.name in roles and each.has_choice),
    )


def _arrays_of_layer(parameters: Sequence[Parameter], given: Mapping[str, str]) -> tuple[str, ...]:
    """One array where a name says so, or where the second argument is none of the three."""
    roles = [given.get(each.name) or role_of(each.name) for each in parameters if each.place]
    required = sum(each.default is None for each in parameters if each.place)
    if roles[:1] == ["inputs"] and "key" not in roles:
        return ("inputs",)
    if roles[:1] != ["query"] and not {"key", "value"} & set(roles) and required < len("qkv"):
        return ("inputs",)
    return ("query", "key", "value")


def infer_operator(places: Sequence[str]) -> str:
    """Tell sdpa from mha by the arguments that stand where mha has params and num_heads."""
    between = places[3:5]
    return "mha" if "params" in between or "num_heads" in between else "sdpa"


def parameters_of(definition: ast.FunctionDef) -> tuple[Parameter, ...]:
    """The parameters of a `def`, read without running it; *args and **kwargs are left out."""
    arguments = definition.args
    places = [*arguments.posonlyargs, *arguments.args]
    without = len(places) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*[None] * without, *arguments.defaults, *arguments.kw_defaults]
    return tuple(
        Parameter(
            name=each.arg,
            place=number < len(places),
            place_only=number < len(arguments.posonlyargs),
            default=None if default is None else ast.unparse(default),
            annotation="" if each.annotation is None else ast.unparse(each.annotation),
        )
        for number, (each, default) in enumerate(zip([*places, *arguments.kwonlyargs], defaults, strict=True))
    )


def _mapped(called: str, parameters: Sequence[Parameter], mapping: Mapping[str, str]) -> dict[str, str]:
    """
    Check --map against the function.

    Raises:
        CheckError: there is no such argument or role.
    """
    names = [each.name for each in parameters]
    for name, role in mapping.items():
        if name not in names:
            raise CheckError(f"--map {name}={role}: {called} has no argument {name}; it has {', '.join(names)}")
        if role not in ALIASES:
            raise CheckError(f"--map {name}={role}: check passes no {role}{_hint(role)}")
    return dict(mapping)


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, ROLES, 1, _MIN_SIMILARITY)
    return f"; did you mean {near[0]}?" if near else f"; {', '.join(('mask', *KEYWORDS))} are passed"


def _by_name(parameters: Sequence[Parameter], given: Mapping[str, str], arrays: Sequence[str]) -> dict[str, str]:
    """Argument -> role for every name that is known; a role that two names have goes to the first, exact ones first."""
    roles = dict(given)
    exact = [each.name for each in parameters if each.name in ALIASES]
    others = [each.name for each in parameters if role_of(each.name) and each.name not in ALIASES]
    for name in (*exact, *others):
        role = role_of(name) or name
        wanted = role in arrays or role not in (*CONVENTIONS["mha"][:-1], "inputs")
        if name not in roles and role not in roles.values() and wanted:
            roles[name] = role
    return roles


def _by_position(roles: dict[str, str], places: Sequence[str], arrays: Sequence[str]) -> None:
    """Give the first arguments without a known name the arrays that no name stands for, in their order."""
    for role in [role for role in arrays if role not in roles.values()]:
        free = [name for name in places[: len(arrays)] if name not in roles]
        if free:
            roles[free[0]] = role


def _unnamed_mask(roles: dict[str, str], parameters: Sequence[Parameter]) -> None:
    """The argument right after the arrays is the mask, whatever its name, if it has no default or None."""
    if "mask" in roles.values():
        return
    after = next((each for each in parameters if each.place and each.name not in roles), None)
    first = next(
        (each for each in parameters if roles.get(each.name) not in (*CONVENTIONS["mha"][:-1], "inputs")), None
    )
    if after is not None and after is first and after.default in (None, "None"):
        roles[after.name] = "mask"


def _ordered(names: Mapping[str, str], arrays: Sequence[str]) -> dict[str, str]:
    return {role: names[role] for role in (*arrays, "mask", *KEYWORDS) if role in names}


def _positional(parameters: Sequence[Parameter], roles: Mapping[str, str], arrays: Sequence[str]) -> tuple[str, ...]:
    """Arrays and a mask that come first are passed by position, and what takes nothing else."""
    placed: list[str] = []
    for each in parameters:
        role = roles.get(each.name)
        if role is None or not each.place or not (each.place_only or role in (*arrays, "mask")):
            break
        placed.append(role)
    return tuple(placed)


def _refuse_required(called: str, rest: Sequence[Parameter]) -> None:
    """An argument that is none of ours needs a default."""
    for each in rest:
        if each.default is None:
            raise CheckError(
                f"{called} needs an argument {each.name!r} that check does not pass: give it a default"
                f"{_hint(each.name)}, or say what it is: --map {each.name}=ROLE"
            )
