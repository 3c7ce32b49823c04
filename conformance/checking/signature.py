"""The signature of a checked function, read from the names of its parameters by the conventions of docs/check.md."""

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from conformance.checking.target import CheckError
from conformance.spec.texts import counted

# Operator -> the arguments that are passed by position; the last one is optional.
CONVENTIONS = {
    "sdpa": ("query", "key", "value", "mask"),
    "mha": ("query", "key", "value", "params", "num_heads", "mask"),
}

# Roles of arrays, weights and the number of heads. A layer may take one array as all three, or one as key and value.
OF_ARRAYS = (*CONVENTIONS["mha"][:-1], "inputs", "context")

# Which arrays of a call are one object: none, key and value, or all three.
Alias = Literal["none", "kv", "qkv"]

# Further arguments, which are passed if the function has them.
KEYWORDS = (
    "is_causal",
    "causal_alignment",
    "scale",
    "bias",
    "key_padding_mask",
    "lengths",
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

# The weights of mha as arguments of their own, and the biases that belong to them.
WEIGHTS = ("wq", "wk", "wv", "wo")
BIASES = ("bq", "bk", "bv", "bo")

# Patterns for their names, in lower case.
_WEIGHT_NAMES = (
    re.compile(r"(?P<kind>[wb])_?(?P<part>q|k|v|o|query|key|value|out|output)"),
    re.compile(r"(?P<part>q|k|v|o|query|key|value|out|output)_?(?P<kind>w|b)(?:eights?|ias)?"),
)

# Role (what check passes) -> other names that are recognised for it.
ALIASES: dict[str, tuple[str, ...]] = {
    "query": ("q", "queries", "query_states", "query_layer", "xq"),
    "key": ("k", "keys", "key_states", "key_layer", "xk", "k_cache", "key_cache"),
    "value": ("v", "values", "value_states", "value_layer", "xv", "v_cache", "value_cache"),
    "params": (),
    "num_heads": (),
    "inputs": ("x", "hidden_states", "inp", "hidden", "input", "tokens"),
    "context": ("memory", "encoder_hidden_states", "encoder_output", "encoder_outputs", "key_value", "kv", "cond"),
    "mask": ("attn_mask", "attention_mask", "src_mask"),
    "is_causal": ("causal", "use_causal_mask", "apply_causal_mask"),
    "causal_alignment": (),
    "scale": ("sm_scale", "softmax_scale", "scaling", "scale_factor", "qk_scale"),
    "bias": ("attn_bias", "attention_bias", "position_bias", "rel_pos_bias", "additive_mask"),
    "key_padding_mask": ("padding_mask", "key_mask", "kv_mask"),
    "lengths": ("seq_lens", "key_lengths", "kv_lengths", "kv_lens", "valid_lens", "cache_seqlens"),
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

# Other names of a window, if the default is a pair; elsewhere they name a single number.
PAIRS = ("window_size", "local_window_size")

# The role of an argument that keeps its default, in --map.
DEFAULT = "default"

# The name of an argument -> its role.
ROLES = {name: role for role, aliases in ALIASES.items() for name in (role, *aliases)}


def role_of(name: str) -> str | None:
    """Return the role of an argument from its name in any case, or None if the name is unknown."""
    return ROLES.get(name) or ROLES.get(name.lower())


def _weight_role(name: str) -> str | None:
    """Return which weight or bias an argument is, from its name; None if it is neither."""
    found = next(filter(None, (pattern.fullmatch(name.lower()) for pattern in _WEIGHT_NAMES)), None)
    return f"{found['kind']}{found['part'][0]}" if found else None


# Layout -> the axes of query, key, value and output of sdpa.
LAYOUTS = {
    "bhsd": "(batch, num_heads, seq_len, head_dim)",
    "bshd": "(batch, seq_len, num_heads, head_dim)",
    "sbhd": "(seq_len, batch, num_heads, head_dim)",
    "bsd": "(batch * num_heads, seq_len, head_dim)",
    "thd": "(seq_len, num_heads, head_dim), one call for each batch element",
    "sd": "(seq_len, head_dim), one call for each head of each batch element",
}

# The frameworks whose arrays a function may take.
FRAMEWORKS = ("numpy", "torch", "jax")

# The role of an argument without a default that is always None.
NOTHING = "nothing"

# The roles of arguments that hold a mask.
MASKS = ("mask", "key_padding_mask", "lengths", "bias")

# The devices on which a function may take them; `array_layouts.PASSED` says in words what check does there.
DEVICES = ("cpu", "cuda")

# The dtypes that check judges, if the framework has them.
DTYPES = ("float64", "float32", "float16", "bfloat16")

_MIN_SIMILARITY = 0.8


@dataclass(frozen=True)
class Parameter:
    """
    A parameter of the function.

    positional: whether it can be passed by position. positional_only: whether it must be. default: the source of its
    default, or None if it has none. annotation: the source of its annotation.
    """

    name: str
    positional: bool = True
    positional_only: bool = False
    default: str | None = None
    annotation: str = ""

    @property
    def has_choice(self) -> bool:
        """Return whether it has a default other than None."""
        return self.default not in (None, "None")

    @property
    def sides(self) -> tuple[int | None, int | None] | None:
        """Return its default if it is a pair, each an integer or None, such as the (-1, -1) of a window; else None."""
        try:
            pair = ast.literal_eval(self.default or "")
        except (SyntaxError, ValueError):
            return None
        match pair:
            case (None | int(), None | int()):
                return pair[0], pair[1]
        return None

    @property
    def role(self) -> str | None:
        """
        Return its role, or None if it is unknown.

        Its name tells it, and for some roles its default: that of a window is a pair, and that of a dropout a number.
        """
        if self.name in PAIRS and self.sides is not None:
            return "window"
        role = role_of(self.name)
        return None if role == "dropout_p" and self.default == "None" else role


@dataclass(frozen=True)
class MaskForm:
    """
    The form of the mask argument, found by plain calls.

    axes: the axes of the array, among b, h, q, k. boolean: whether it takes booleans. added: whether it takes floats
    that are added to the logits. misread: whether a boolean mask raises no error, but hides nothing.
    """

    axes: tuple[str, ...] = ("b", "h", "q", "k")
    boolean: bool = True
    added: bool = False
    misread: bool = False


# Maximum number that the smaller of seq_len_q and seq_len_k becomes if they must be equal.
LONG = 300


@dataclass(frozen=True)
class Sizes:
    """
    The sizes that a function takes.

    head_dims: the values of head_dim; empty if any will do. multiple: seq_len_q and seq_len_k are multiples of this
    number. equal: whether they are equal. num_heads: the only number of heads of a layer; 0 if any will do.
    """

    head_dims: tuple[int, ...] = ()
    multiple: int = 1
    equal: bool = False
    num_heads: int = 0

    def __post_init__(self) -> None:
        """
        Check that the numbers are positive.

        Raises:
            CheckError: one is not.
        """
        for option, size in (*(("--head-dim", each) for each in self.head_dims), ("--seq-len-multiple", self.multiple)):
            if size < 1:
                raise CheckError(f"{option} {size}: expected a positive number")

    @property
    def are_limited(self) -> bool:
        """Return whether the function does not take all sizes."""
        return self != Sizes()

    def head_dim(self, wanted: int) -> int:
        """Return the smallest possible head_dim from the wanted one on, or else the largest possible one."""
        larger = [each for each in self.head_dims if each >= wanted]
        return min(larger) if larger else max(self.head_dims, default=wanted)

    def __str__(self) -> str:
        """Return them in words, to follow "only"."""
        limits = [f"num_heads {self.num_heads}"] if self.num_heads else []
        limits += [f"head_dim {', '.join(map(str, sorted(self.head_dims)))}"] if self.head_dims else []
        lengths = [
            *(["equal"] if self.equal else []),
            *([f"multiples of {self.multiple}"] if self.multiple > 1 else []),
        ]
        if lengths:
            limits.append(f"seq_len_q and seq_len_k that are {' and '.join(lengths)}")
        return " and ".join(limits)

    def lengths(self, queries: int, keys: int) -> tuple[int, int]:
        """
        Return the next possible seq_len_q and seq_len_k; the larger one stays larger, unless they must be equal.

        Then both are the larger one, but one query is not made into a thousand.
        """
        if self.equal:
            queries = keys = min(max(queries, keys), max(min(queries, keys), LONG))
        new_queries, new_keys = (-(-each // self.multiple) * self.multiple for each in (queries, keys))
        if new_queries == new_keys:
            new_queries += self.multiple * (queries > keys)
            new_keys += self.multiple * (keys > queries)
        return new_queries, new_keys


def sizes_of(record: Mapping[str, Any]) -> Sizes:
    """Return the sizes of a record, which `dataclasses.asdict` made and which may have travelled as JSON."""
    return Sizes(**{**record, "head_dims": tuple(record.get("head_dims", ()))})


@dataclass(frozen=True)
class Signature:
    """
    How the function is called.

    names: role -> the function's name for it. placed: the roles that are passed by position, in order; the others are
    passed by name. defaults: unknown parameters, which keep their defaults. kept: roles whose default is not None and
    which are left out if there is nothing to pass. numbers: roles that need a number, because None fails. framework:
    whose arrays it takes. layout: their axis order. returned: "output", or "weights", "weights_mean" or "other" if
    every call returns this together with the output. dtypes: those to judge. refusal: what it raised in float32, if it
    takes only other dtypes. built: for a class, constructor argument -> role. method: the method to call, "" for the
    instance itself. biased: whether its projections have biases. projected: whether a layer has an
    output projection. wide: whether value_dim may differ from head_dim.
    device: where its arrays are, "cpu" or "cuda". unlimited: the number that a side of a window without a limit is, if
    it is not None. mask_by_place: whether an argument is the mask only because it follows the arrays.
    exclusive: arguments for masks of which a call may have only one, as the user states. always: roles of arguments for
    masks that are given in every call, because they have no default and None fails; before trial calls, those without a
    default. whole: roles of masks of which no axis may have size 1. numeric: roles of masks that take the numbers 1
    (attend) and 0, but no booleans. always_causal: the alignment of the causal mask that it applies in every call, as
    the user declares; "" if it applies none. sizes: those that it takes. size_refusal: what it raised in other sizes.
    refused: dtype -> what it raises, for dtypes that it refuses although it takes float32.
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
    dtypes: tuple[str, ...] = DTYPES
    refusal: str = ""
    built: Mapping[str, str] | None = None
    method: str = ""
    biased: bool = True
    projected: bool = True
    wide: bool = True
    device: str = "cpu"
    unlimited: int | None = None
    mask_by_place: bool = False
    exclusive: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    always_causal: str = ""
    sizes: Sizes = field(default_factory=Sizes)
    size_refusal: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_self_attention(self) -> bool:
        """Return whether it takes one array as query, key and value."""
        return "inputs" in self.names and "context" not in self.names

    @property
    def alias(self) -> Alias:
        """Return which arrays of a call must be one: key and value for a context, all three for a single array."""
        return "qkv" if self.is_self_attention else "kv" if "context" in self.names else "none"

    @property
    def mask(self) -> str | None:
        """Return its name for the mask, or None if it takes no mask."""
        return self.names.get("mask")

    @property
    def keywords(self) -> tuple[str, ...]:
        """Return the roles of KEYWORDS that it takes."""
        return tuple(role for role in KEYWORDS if role in self.names)

    @property
    def by_name(self) -> tuple[str, ...]:
        """Return the roles that are passed by name."""
        return tuple(role for role in self.names if role not in self.placed)

    @property
    def has_own_weights(self) -> bool:
        """Return whether it is a layer, or takes each weight as an argument of its own."""
        return self.operator == "mha" and "params" not in self.names

    def has(self, role: str) -> bool:
        """Return whether the function takes this role."""
        return role in self.names

    def without(self, role: str) -> "Signature":
        """Return the signature in which the argument of this role is always None."""
        return replace(
            self,
            names={NOTHING if each == role else each: name for each, name in self.names.items()},
            placed=tuple(NOTHING if each == role else each for each in self.placed),
        )


def read_signature(
    called: str,
    parameters: Sequence[Parameter],
    operator: str | None = None,
    mapping: Mapping[str, str] | None = None,
    *,
    layer: bool = False,
) -> Signature:
    """
    Find the role of each parameter of a function, by its name, or by its position for the first ones.

    called: the name of the function. operator: default mha if `params` or `num_heads` precedes the mask, else sdpa.
    mapping: argument -> role, which overrides the names (`--map`); an argument with the role `default` keeps its
    default, or is None if it has none. layer: the function has its own weights, and may take one array as query, key
    and value.

    Raises:
        CheckError: the function cannot be called by the convention of the operator.
    """
    given = _mapped(called, parameters, mapping or {})
    ignored = [each.name for each in parameters if each.default is None and given.get(each.name) == DEFAULT]
    given |= dict.fromkeys(ignored[:1], NOTHING)
    kept = [name for name, role in given.items() if role == DEFAULT]
    given = {name: role for name, role in given.items() if role != DEFAULT}
    free = [each for each in parameters if each.name not in kept]
    positional = [each.name for each in free if each.positional]
    weights = {each.name: role for each in free if (role := _weight_role(each.name))}
    if operator != "sdpa" and not layer and {"wq", "wk", "wv"} <= {*weights.values(), *given.values()}:
        operator, given = "mha", weights | given
    operator = operator or infer_operator(positional)
    arrays = CONVENTIONS[operator][:-1]
    required: tuple[str, ...] = ()
    if layer:
        arrays = _arrays_of_layer(free, given)
    elif set(WEIGHTS) & set(given.values()):
        arrays, required = _arrays_of_layer(free, given), WEIGHTS[:-1]
        arrays += ("num_heads",) if any(each.role == "num_heads" for each in free) else ()
    roles = _by_name(free, given, arrays)
    _by_position(roles, positional, arrays)
    if missing := [role for role in (*arrays, *required) if role not in roles.values()]:
        raise CheckError(
            f"{called}({', '.join(each.name for each in parameters)}) takes "
            f"{counted(len(positional), 'argument')} by position; "
            f"{_convention(operator, called)}; name the argument for its {missing[0]} with "
            f"--map ARGUMENT={missing[0]}, or check a wrapper of {called} that is called in this way"
        )
    by_place = _unnamed_mask(roles, free)
    rest = [each for each in parameters if each.name not in roles]
    _refuse_required(called, rest, operator)
    return Signature(
        operator=operator,
        names=_ordered({role: name for name, role in roles.items()}, arrays),
        placed=_positional(parameters, roles, arrays),
        defaults=tuple(each.name for each in rest),
        projected=not required or "wo" in roles.values(),
        kept=tuple(roles[each.name] for each in parameters if each.name in roles and each.has_choice),
        unlimited=next((_unlimited(each) for each in parameters if roles.get(each.name) == "window"), None),
        mask_by_place=by_place,
        always=tuple(roles[each.name] for each in parameters if each.default is None and roles.get(each.name) in MASKS),
    )


def _unlimited(window: Parameter) -> int | None:
    """Return the number that means no limit: a negative one in the default, such as (-1, -1) in flash-attention."""
    return next((side for side in window.sides or () if side is not None and side < 0), None)


def _arrays_of_layer(parameters: Sequence[Parameter], given: Mapping[str, str]) -> tuple[str, ...]:
    """
    Return the arrays that a layer takes.

    It is one array if its name or the missing key and value arguments say so, or if the others have defaults, and two
    if one is a context without a default, or is mapped to it.
    """
    taken = [each for each in parameters if each.positional] or parameters
    roles = [given.get(each.name) or each.role for each in taken]
    required = sum(each.default is None for each in taken)
    contexts = (each for each in taken if (given.get(each.name) or each.role) == "context")
    if "key" not in roles and any(each.default is None or each.name in given for each in contexts):
        return ("inputs" if roles[:1] == ["inputs"] else "query", "context")
    if roles[:1] == ["inputs"] and "key" not in roles:
        return ("inputs",)
    few = required == 1 if roles[:1] == ["query"] else required < len("qkv")
    if few and not {"key", "value"} & set(roles):
        return ("inputs",)
    return ("query", "key", "value")


def infer_operator(positional: Sequence[str]) -> str:
    """Distinguish sdpa and mha: params or num_heads is among the arguments that may precede the mask."""
    return "mha" if {"params", "num_heads"} & set(positional[: len(CONVENTIONS["mha"][:-1])]) else "sdpa"


def parameters_of(definition: ast.FunctionDef) -> tuple[Parameter, ...]:
    """Read the parameters of a `def` without running it; *args and **kwargs are left out."""
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*[None] * without, *arguments.defaults, *arguments.kw_defaults]
    return tuple(
        Parameter(
            name=each.arg,
            positional=number < len(positional),
            positional_only=number < len(arguments.posonlyargs),
            default=None if default is None else ast.unparse(default),
            annotation="" if each.annotation is None else ast.unparse(each.annotation),
        )
        for number, (each, default) in enumerate(zip([*positional, *arguments.kwonlyargs], defaults, strict=True))
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
        if role not in (*ALIASES, *WEIGHTS, *BIASES, DEFAULT):
            raise CheckError(f"--map {name}={role}: there is no role {role}{_hint(role)}")
    return dict(mapping)


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, ROLES, 1, _MIN_SIMILARITY)
    return f"; did you mean {ROLES[near[0]]}?" if near else f"; roles are {', '.join(('mask', *KEYWORDS))}"


def _by_name(parameters: Sequence[Parameter], given: Mapping[str, str], arrays: Sequence[str]) -> dict[str, str]:
    """Return argument -> role for known names; exact names come first, and a role is given only once."""
    roles = dict(given)
    named = {each.name: role for each in parameters if (role := each.role)}
    for name in sorted(named, key=lambda name: name not in ALIASES):
        role = named[name]
        wanted = role in arrays or role not in OF_ARRAYS
        if name not in roles and role not in roles.values() and wanted:
            roles[name] = role
    return roles


def _by_position(roles: dict[str, str], positional: Sequence[str], arrays: Sequence[str]) -> None:
    """Assign the remaining array roles to the first arguments without a known name, in order."""
    for role in [role for role in arrays if role not in roles.values()]:
        free = [name for name in positional[: len(arrays)] if name not in roles]
        if free:
            roles[free[0]] = role


def _unnamed_mask(roles: dict[str, str], parameters: Sequence[Parameter]) -> bool:
    """
    Assign the mask role to the argument that follows the arrays, if its default is None or absent.

    Return whether there is such an argument.
    """
    if "mask" in roles.values():
        return False
    after = next((each for each in parameters if each.positional and each.name not in roles), None)
    of_arrays = (*OF_ARRAYS, *WEIGHTS, *BIASES)
    first = next((each for each in parameters if roles.get(each.name) not in of_arrays), None)
    if after is None or after is not first or after.default not in (None, "None") or after.role in of_arrays:
        return False
    roles[after.name] = "mask"
    return True


def _ordered(names: Mapping[str, str], arrays: Sequence[str]) -> dict[str, str]:
    return {role: names[role] for role in (*arrays, *WEIGHTS, *BIASES, "mask", NOTHING, *KEYWORDS) if role in names}


def _positional(parameters: Sequence[Parameter], roles: Mapping[str, str], arrays: Sequence[str]) -> tuple[str, ...]:
    """Return the roles to pass by position: leading arrays and the mask, and positional-only arguments."""
    placed: list[str] = []
    for each in parameters:
        role = roles.get(each.name)
        if role is None or not each.positional or not (each.positional_only or role in (*arrays, "mask", NOTHING)):
            break
        placed.append(role)
    return tuple(placed)


def _refuse_required(called: str, rest: Sequence[Parameter], operator: str) -> None:
    """
    Refuse an unknown argument without a default.

    Raises:
        CheckError: there is one.
    """
    for each in rest:
        if each.default is None:
            raise CheckError(
                f"{called} needs an argument {each.name!r} that check does not know: give it a default, or name its "
                f"role with --map {each.name}=ROLE{_hint(each.name)}; {_convention(operator, called)}"
            )


def _convention(operator: str, called: str) -> str:
    """Say how a function of this operator is called."""
    return f"{operator} is called as {called}({', '.join(CONVENTIONS[operator])}), where only mask is optional"
