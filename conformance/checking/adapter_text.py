"""The generated adapter of a checked function: its literal facts and its source, which a user can read and edit."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pprint import pformat
from typing import Any

from conformance.bridge.profile import Profile
from conformance.checking.signature import BIASES, NOTHING, WEIGHTS, Signature, Sizes, parameters_of
from conformance.checking.target import CheckError, Target

# The second causal argument of a function that takes causal_alignment.
AT_END = "is_causal_bottom_right"

# In place of the causal argument of a function that applies a causal mask in every call.
IN_EVERY_CALL = "causal_in_every_call"

_AXES = ["b", "h", "q", "k"]
_WIDTHS = ("value_dim", "kdim", "query_dim", "output_dim", "no_bias", "some_biases")


def facts_of(signature: Signature, name: str, polarity: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts of the adapter by name; polarity: what True means in a boolean argument, if not attend."""
    return {
        "NAME": name,
        "OPERATORS": [signature.operator],
        "REQUIRES": [signature.framework],
        "OUTPUTS": outputs(signature),
        "DTYPES": list(signature.dtypes),
        "DEVICES": [signature.device],
        "CAPABILITIES": capabilities(signature),
        "SLOTS": slots(signature, polarity),
    }


def outputs(signature: Signature) -> list[str]:
    """Return the outputs that a call can request."""
    names = ["output"]
    if signature.returned in ("weights", "weights_mean"):
        names.append(signature.returned)
    if signature.has("need_weights"):
        names.append("weights")
        if signature.has("average_weights"):
            names.append("weights_mean")
    return names


def capabilities(signature: Signature) -> list[str]:
    """Return the capabilities: widths and memory layouts always; scale, grouped heads and softcap need an argument."""
    if signature.built is not None or signature.has_own_weights:
        return _of_layer(signature)
    widths = _WIDTHS if signature.operator == "mha" else _WIDTHS[: signature.wide]
    memory = ["layout"] if signature.framework != "jax" and signature.layout not in ("thd", "bsd", "sd") else []
    optional = {
        "scale": "scale", "num_kv_heads": "grouped_heads", "enable_gqa": "grouped_heads", "softcap": "softcap"
    }  # fmt: skip
    honoured = dict.fromkeys(name for keyword, name in optional.items() if signature.has(keyword))
    return [*memory, *widths, *honoured]


def _of_layer(signature: Signature) -> list[str]:
    """Return the capabilities of a layer: it is built with one width, and its biases can be zero."""
    built = set((signature.built or {}).values())
    biases = ["no_bias", "some_biases"] if signature.operator == "mha" else []
    heads = ["grouped_heads"] if "num_kv_heads" in built else []
    projected = [] if signature.projected else ["no_output_projection"]
    return ["layout", *biases, *projected, *heads, *(["scale"] if signature.has("scale") else [])]


def slots(signature: Signature, polarity: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the slots for mask, causal and window arguments; masks without their own argument go into the mask."""
    found: dict[str, dict[str, Any]] = {}
    names = signature.names
    if signature.has("key_padding_mask"):
        found[names["key_padding_mask"]] = {
            "role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"
        }  # fmt: skip
    if signature.mask is not None:
        found[signature.mask] = _mask(signature)
    if signature.has("lengths"):
        found[names["lengths"]] = {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]]}
    for name in found.keys() & polarity.keys():
        found[name]["bool"] = polarity[name]
    if signature.has("bias"):
        found[names["bias"]] = {
            "role": "mask",
            "takes": ["additive"],
            "axes": [_AXES],
            "float": "add",
            **_broadcast(signature, "bias", _AXES),
        }
    if signature.has("is_causal"):
        found[names["is_causal"]] = {"role": "causal", "alignment": "top_left"}
        if signature.has("causal_alignment"):
            found[AT_END] = {"role": "causal", "alignment": "bottom_right"}
    elif signature.always_causal:
        found[IN_EVERY_CALL] = {"role": "causal", "alignment": signature.always_causal}
    if signature.has("window"):
        found[names["window"]] = {"role": "window"}
    return {name: {**slot, **_restrictions(signature, name, found)} for name, slot in found.items()}


def _restrictions(signature: Signature, name: str, found: Collection[str]) -> dict[str, Any]:
    """Return which slots exclude this one, and whether it is given in every call."""
    # A causal argument with an alignment is two slots.
    at_end = [AT_END] if AT_END in found and signature.names["is_causal"] in signature.exclusive else []
    exclusive = [*signature.exclusive, *at_end]
    excludes = {"excludes": [other for other in exclusive if other != name]} if name in exclusive else {}
    always = {"always": True} if name in [signature.names[role] for role in signature.always] else {}
    return {**excludes, **always}


def exclusive_in(signature: Signature, given: Sequence[str]) -> Signature:
    """
    Return the signature with arguments for masks of which a call may have only one.

    Raises:
        CheckError: these are not at least two of its arguments for masks.
    """
    option, known = f"--exclusive {','.join(given)}", [name for name in slots(signature, {}) if name != AT_END]
    if len(set(given)) == 1:
        raise CheckError(f"{option}: expected two or more arguments, such as attn_mask,is_causal")
    for name in given:
        if name not in known:
            those = f"its mask arguments are {', '.join(known)}" if known else "it has none"
            raise CheckError(f"{option}: the function has no mask argument {name}; {those}")
    return replace(signature, exclusive=tuple(dict.fromkeys(given)))


def _broadcast(signature: Signature, role: str, axes: Sequence[str]) -> dict[str, list[str]]:
    """Return the axes of a slot that may have size 1, as a part of the slot."""
    return {} if role in signature.whole else {"broadcast": list(axes)}


def _mask(signature: Signature) -> dict[str, Any]:
    form = signature.form
    kinds = {"key_padding": "bk", "attention": "bhqk", "causal": "qk", "window": "qk"}
    takes = [kind for kind, axes in kinds.items() if kind == "attention" or set(axes) <= set(form.axes)]
    if form.axes == ("b", "k"):
        takes = ["key_padding"]
    slot: dict[str, Any] = {
        "role": "mask",
        "takes": takes,
        "axes": [list(form.axes)],
        **_broadcast(signature, "mask", form.axes),
    }
    if form.boolean:
        slot["bool"] = "attend"
    if form.added:
        slot["float"] = "add"
        slot["takes"] += [] if signature.has("bias") else ["additive"]
    return slot


ADAPTER = "own_adapter.py"
FUNCTION = "_own_function.py"
ARRAYS_FILE = "_array_layouts.py"
LAYER_FILE = "_layer.py"
DECLARED = "conformance check --declare"

# Decision, name and source of a declared deviation.
Stated = tuple[str, str, str]

_SOURCE = '''\
"""Adapter of {given}, generated by `conformance check`; keep it and edit it as you like (docs/adapters.md)."""

{facts}

from typing import Any

from conformance.bridge import {imports}

from ._array_layouts import ArrayLayouts
from ._own_function import FUNCTION
{layer}
ARRAYS = ArrayLayouts({framework!r}, {layout!r}, {device!r})
PROFILES = {profiles}
DIALECT = {dialect}
{of_dtypes}

def declare(facts: Facts) -> Declaration:
    dialect = tuple(Deviation(*each) for each in {of_call})
    return Declaration(Profile(**PROFILES[facts.dtype]), dialect, "calibrated on plain cases, or --profile")


devices, evidence = ARRAYS.devices, ARRAYS.evidence


def {operator}(call: Call) -> dict[str, Any]:
{declined}    query, key, value = ARRAYS.arrays(call)
{params}    keywords = {{
{keywords}    }}
{left_out}{made}    with framework_call():
        result = ARRAYS.call({function}, ({positional}), keywords)
{reply}'''

_OF_DTYPES = """# What a finite fill does depends on the dtype: -1e9 is -inf in float16.
DIALECTS = {}
"""
_OF_CALL = "(*DIALECT, *DIALECTS.get(facts.dtype, ()))"

_PARAMS = "    params = ARRAYS.params(call)\n"
_WEIGHTS = "    params = ARRAYS.params(call, zeros=True)\n"

_LAYER = """from ._layer import Layer

LAYER = Layer(FUNCTION, {built}, {method!r})"""

_LEFT_OUT = (
    "    keywords = {{name: each for name, each in keywords.items() if each is not None or name not in {kept}}}\n"
)

_PLAIN = """\
    if ARRAYS.is_tuple(result):
        raise TypeError(f"returned {len(result)} values; without a need_weights argument, return only the output")
    return {"output": ARRAYS.output(result)}
"""

_FIRST = """\
    return {"output": ARRAYS.output(ARRAYS.parts(result, 1)[0])}
"""

_PAIR = """\
    output, weights = ARRAYS.parts(result, 2)
    return {"output": ARRAYS.output(output), "%s": ARRAYS.weights(weights)}
"""

_WEIGHTED = """\
    if call.facts.outputs == ("output",):
        return {"output": ARRAYS.output(ARRAYS.parts(result, 1)[0] if ARRAYS.is_tuple(result) else result)}
    output, weights = ARRAYS.parts(result, 2)
    weights = ARRAYS.weights(weights)
    return {"output": ARRAYS.output(output), "weights": weights, "weights_mean": weights}
"""

_BOTH = """\
    if "weights" in call.facts.outputs and "weights_mean" in call.facts.outputs:
        raise Unsupported("weights per head and averaged weights in one call")
"""

_ALONE = """\
    if call.facts.alias != "qkv":
        raise Unsupported("takes one array for query, key and value")
"""

_WITH_CONTEXT = """\
    if call.facts.alias == "none":
        raise Unsupported("takes one array for key and value")
"""

_UNPROJECTED = """\
    if "wo" in call.params:
        raise Unsupported("has no output projection")
"""

_SIZED = """\
    sizes = call.facts.sizes
    if {conditions}:
        raise Unsupported("takes only {sizes}")
"""

# The value of each role as Python code; a role in braces stands for the function's name of that role.
_VALUES = {
    "query": "query",
    "inputs": "query",
    "context": "key",
    "key": "key",
    "value": "value",
    "params": "params",
    **{role: f'params["{role}"]' for role in (*WEIGHTS, *BIASES)},
    "num_heads": 'call.facts.sizes["num_heads"]',
    "is_causal": "{is_causal!r} in call.arguments",
    "causal_alignment": f'"bottom_right" if "{AT_END}" in call.arguments else "top_left"',
    "scale": "call.scale",
    NOTHING: "None",
    "mask": "ARRAYS.mask(call, {mask!r})",
    "bias": "ARRAYS.mask(call, {bias!r})",
    "key_padding_mask": "ARRAYS.mask(call, {key_padding_mask!r})",
    "lengths": "ARRAYS.lengths(call, {lengths!r})",
    "num_kv_heads": 'call.facts.sizes["num_kv_heads"]',
    "window": "call.arguments.get({window!r})",
    "softcap": "call.softcap",
    "dropout_p": "0.0",
    "need_weights": 'any(name != "output" for name in call.facts.outputs)',
    "average_weights": '"weights_mean" in call.facts.outputs',
    "enable_gqa": 'call.facts.sizes["num_kv_heads"] != call.facts.sizes["num_heads"]',
    "training": "False",
    "deterministic": "True",
}

_LOADING = '''\
"""Load the checked function in the worker; its folder is importable, and files are found as where check was run."""

import importlib
import importlib.util
import os
import sys

SOURCE = {digest}

sys.dont_write_bytecode = True
sys.path[:0] = {folder}
os.chdir({here})
{load}
FUNCTION = module.{function}
if getattr(FUNCTION, "training", False) is True:  # a PyTorch module: switch off dropout
    FUNCTION.eval()
'''

_LEAVING_OUT = '''\


def without_unused(function):
    """Leave out unused options (None or False) that the function does not name."""
    named = {named}

    def called(*arrays, **options):
        unused = {{name for name, value in options.items() if value is None or value is False}} - set(named)
        return function(*arrays, **{{name: value for name, value in options.items() if name not in unused}})

    return called


FUNCTION = without_unused(FUNCTION)
'''

_OVERRIDING = '''

from conformance.bridge import Declaration, Deviation, Facts, Profile

PROFILES = {profiles}
DIALECT = {dialect}
PINNED = {pinned}

declared_by_subject = declare


def declare(facts: Facts) -> Declaration:
    """Return the declaration of the subject, overridden by --declare and --profile."""
    subject = declared_by_subject(facts)
    kept = tuple(each for each in subject.dialect if each.decision not in PINNED)
    fields = PROFILES.get(facts.dtype)
    profile = subject.profile if fields is None else Profile(**fields)
    return Declaration(profile, (*kept, *(Deviation(*each) for each in DIALECT)), subject.evidence)
'''

_IMPORTED = "module = importlib.import_module({module})"

_BY_PATH = """\
module = sys.modules.get({private})  # the inspection may have loaded it
if module is None:
    specification = importlib.util.spec_from_file_location({private}, {path})
    module = importlib.util.module_from_spec(specification)
    sys.modules[{private}] = module
    specification.loader.exec_module(module)"""


def function_text(target: Target, here: str, method: str = "") -> str:
    """
    Return the source of the helper that loads the function, or the class of the method.

    here: the folder that becomes the worker's current folder, so that the function can open files relative to it.
    """
    folder, module = target.package
    private = json.dumps(f"_own_{module}")
    load = _IMPORTED if target.is_imported else _BY_PATH
    return _LOADING.format(
        digest=json.dumps(target.digest),
        folder=json.dumps([] if folder is None else [str(folder)]),
        here=json.dumps(here),
        load=load.format(module=json.dumps(module), private=private, path=json.dumps(str(target.path))),
        function=target.function.removesuffix(f".{method}") if method else target.function,
    )


def borrowed_function_text(target: Target, here: str) -> str:
    """Return `function_text` for a drop-in, which is called with all arguments of the function that it replaces."""
    text = function_text(target, here)
    if target.definition is None or target.definition.args.kwarg is not None:
        return text
    named = [each.name for each in parameters_of(target.definition)]
    return text + _LEAVING_OUT.format(named=json.dumps(named))


def overriding_text(profiles: Mapping[str, Profile], dialect: Mapping[str, str], pinned: tuple[str, ...]) -> str:
    """Return the source to append to the adapter of a subject if the user overrides its declaration."""
    return _OVERRIDING.format(
        profiles=_literal({dtype: profile.record() for dtype, profile in profiles.items()}),
        dialect=_literal([[decision, name, DECLARED] for decision, name in dialect.items()]),
        pinned=_literal(list(pinned)),
    )


def adapter_text(
    target: Target,
    signature: Signature,
    polarity: Mapping[str, str],
    profiles: Mapping[str, Profile],
    dialect: Sequence[Stated],
    of_dtypes: Mapping[str, Sequence[Stated]],
) -> str:
    """Return the source of the adapter; profiles, of_dtypes: by dtype; of_dtypes: what is declared beside `dialect`."""
    facts = facts_of(signature, target.name, polarity)
    both = signature.has("average_weights") and signature.has("need_weights")
    declined = (_BOTH if both else "") + {"qkv": _ALONE, "kv": _WITH_CONTEXT, "none": ""}[signature.alias]
    declined += ("" if signature.projected else _UNPROJECTED) + _sized(signature.sizes)
    imports = ["Call", "Declaration", "Deviation", "Facts", "Profile", *(["Unsupported"] if declined else [])]
    kept = [signature.names[role] for role in signature.kept if role in signature.by_name]
    return _SOURCE.format(
        given=f"{target.path.name}:{target.function}",
        facts="\n".join(f"{name} = {_literal(value)}" for name, value in facts.items()),
        imports=", ".join([*imports, "framework_call"]),
        framework=signature.framework,
        layout=signature.layout,
        device=signature.device,
        profiles=_literal({dtype: profiles[dtype].record() for dtype in facts["DTYPES"]}),
        dialect=_literal([list(each) for each in dialect]),
        of_dtypes=_OF_DTYPES.format(_literal({dtype: [list(one) for one in each] for dtype, each in of_dtypes.items()}))
        if of_dtypes
        else "",
        of_call=_OF_CALL if of_dtypes else "DIALECT",
        operator=signature.operator,
        declined=declined,
        params=_params(signature),
        keywords="".join(
            f"        {signature.names[role]!r}: {_value(signature, role)},\n" for role in signature.by_name
        ),
        layer=_LAYER.format(built=dict(signature.built), method=signature.method)
        if signature.built is not None
        else "",
        made="    function = LAYER.made(call)\n" if signature.built is not None else "",
        function="FUNCTION" if signature.built is None else "function",
        left_out=_LEFT_OUT.format(kept=kept) if kept else "",
        positional="".join(f"{_value(signature, role)}, " for role in signature.placed),
        reply=_reply(signature),
    )


def _params(signature: Signature) -> str:
    """Return the code for the weights of a function; a layer has them already."""
    if signature.built is not None or signature.operator != "mha":
        return ""
    return _WEIGHTS if signature.has_own_weights else _PARAMS


def _sized(sizes: Sizes) -> str:
    """Return the code that declines other sizes, or ""."""
    conditions = [f'sizes["num_heads"] != {sizes.num_heads}'] if sizes.num_heads else []
    conditions += [f'sizes["head_dim"] not in {sizes.head_dims}'] if sizes.head_dims else []
    if sizes.multiple > 1:
        conditions += [f'sizes["{name}"] % {sizes.multiple}' for name in ("seq_len_q", "seq_len_k")]
    if sizes.equal:
        conditions.append('sizes["seq_len_q"] != sizes["seq_len_k"]')
    return _SIZED.format(conditions=" or ".join(conditions), sizes=sizes) if conditions else ""


def _value(signature: Signature, role: str) -> str:
    """Return the value of a role as Python code."""
    value = _VALUES[role].format(**signature.names)
    if role == "is_causal" and signature.has("causal_alignment"):
        return f'{value} or "{AT_END}" in call.arguments'
    if role == "scale" and role in signature.numbers:
        return 'call.facts.sizes["head_dim"] ** -0.5 if call.scale is None else call.scale'
    if role == "window" and signature.unlimited is not None:
        return f"ARRAYS.window({value}, {signature.unlimited})"
    if role == "mask" and "b" not in signature.form.axes:
        value = value.replace(")", ", batched=False)")
    return value.replace(")", ", numeric=True)") if role in signature.numeric else value


def _reply(signature: Signature) -> str:
    if signature.has("need_weights"):
        return _WEIGHTED
    if signature.returned == "output":
        return _PLAIN
    return _FIRST if signature.returned == "other" else _PAIR % signature.returned


def _literal(value: Any) -> str:
    return pformat(value, width=116, sort_dicts=False)
