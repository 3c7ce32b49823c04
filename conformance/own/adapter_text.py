"""The text of the adapter that calls a NumPy function: readable, since it is what a user may go on from."""

import json
from collections.abc import Mapping
from pprint import pformat
from typing import Any

from conformance.bridge.profile import Profile
from conformance.own.facts import AT_END, facts_of
from conformance.own.signature import Signature
from conformance.own.target import Target

ADAPTER = "own_adapter.py"
FUNCTION = "_own_function.py"
DECLARED = "conformance check --declare"

_SOURCE = '''\
"""{given} as an adapter: written by `conformance check`, to be kept or changed (docs/adapters.md)."""

{facts}

from typing import Any

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, framework_call, strided

from ._own_function import FUNCTION

PROFILES = {profiles}
DIALECT = {dialect}


def declare(facts: Facts) -> Declaration:
    dialect = tuple(Deviation(*each) for each in DIALECT)
    return Declaration(Profile(**PROFILES[facts.dtype]), dialect, "calibrated on plain cases, or --profile")


def {operator}(call: Call) -> dict[str, Any]:
    arrays = (call.query, call.key, call.value)
    copies = {{id(each): strided(each, call.facts.layout).view() for each in arrays}}
    query, key, value = (copies[id(each)] for each in (call.query, call.key, call.value))
{params}    keywords = {{
{keywords}    }}
    with framework_call():
        result = FUNCTION({positional}, **keywords)
{reply}

def given(call: Call, name: str) -> Any:
    mask = call.arguments.get(name)
    return None if mask is None else mask.bits.copy()
'''

_PARAMS = """\
    names = ("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo")
    params = {name: call.params[name].bits.copy() if name in call.params else None for name in names}
"""

_PLAIN = """\
    if isinstance(result, tuple):
        raise TypeError(f"returned {len(result)} things; without need_weights in its signature it returns the output")
    return {"output": result}
"""

_WEIGHTED = """\
    if not keywords["need_weights"]:
        return {"output": result[0] if isinstance(result, tuple) else result}
    output, weights = result
    return {"output": output, "weights": weights, "weights_mean": weights}
"""

_BOTH = """\
    if "weights" in call.facts.outputs and "weights_mean" in call.facts.outputs:
        raise Unsupported("weights per head and averaged in one call")
"""

_VALUES = {
    "is_causal": '"is_causal" in call.arguments',
    "causal_alignment": f'"bottom_right" if "{AT_END}" in call.arguments else "top_left"',
    "scale": "call.scale",
    "bias": 'given(call, "bias")',
    "key_padding_mask": 'given(call, "key_padding_mask")',
    "num_kv_heads": 'call.facts.sizes["num_kv_heads"]',
    "window": 'call.arguments.get("window")',
    "softcap": "call.softcap",
    "dropout_p": "0.0",
    "need_weights": 'any(name != "output" for name in call.facts.outputs)',
    "average_weights": '"weights_mean" in call.facts.outputs',
}
"""What each keyword is given."""

_LOADING = '''\
"""The function that is checked, loaded in the worker: it finds what stands beside it, and the folder it is run from."""

import importlib
import importlib.util
import os
import sys

SOURCE = {digest}

sys.dont_write_bytecode = True
sys.path.insert(0, {folder})
os.chdir({here})
{load}
FUNCTION = module.{function}
'''

_LEAVING_OUT = '''\


def without_unused(function):
    """What the function does not name is left out where it is not used: None or False."""
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
    """What the subject declares, but for --declare and --profile."""
    subject = declared_by_subject(facts)
    kept = tuple(each for each in subject.dialect if each.decision not in PINNED)
    fields = PROFILES.get(facts.dtype)
    profile = subject.profile if fields is None else Profile(**fields)
    return Declaration(profile, (*kept, *(Deviation(*each) for each in DIALECT)), subject.evidence)
'''

_IMPORTED = "module = importlib.import_module({module})"

_BY_PATH = """\
specification = importlib.util.spec_from_file_location({private}, {path})
module = importlib.util.module_from_spec(specification)
sys.modules[{private}] = module
specification.loader.exec_module(module)"""


def function_text(target: Target, here: str) -> str:
    """The helper that loads the function; here: the folder in which it may open files."""
    folder, module = target.package
    private = json.dumps(f"_own_{module}")
    load = _IMPORTED if "." in module else _BY_PATH
    return _LOADING.format(
        digest=json.dumps(target.digest),
        folder=json.dumps(str(folder)),
        here=json.dumps(here),
        load=load.format(module=json.dumps(module), private=private, path=json.dumps(str(target.path))),
        function=target.function,
    )


def borrowed_function_text(target: Target, here: str) -> str:
    """As `function_text`, for a function that is called like another one, with every argument of that."""
    text = function_text(target, here)
    arguments = target.definition.args
    if arguments.kwarg is not None:
        return text
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return text + _LEAVING_OUT.format(named=json.dumps(named))


def overriding_text(profiles: Mapping[str, Profile], dialect: Mapping[str, str], pinned: tuple[str, ...]) -> str:
    """What follows the adapter of a subject where the user declares something of their own."""
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
    dialect: tuple[tuple[str, str, str], ...],
) -> str:
    """The adapter; profiles by dtype, dialect as (decision, name, source)."""
    facts = facts_of(signature, target.name, polarity)
    text = _SOURCE.format(
        given=f"{target.path.name}:{target.function}",
        facts="\n".join(f"{name} = {_literal(value)}" for name, value in facts.items()),
        profiles=_literal({dtype: profile.record() for dtype, profile in profiles.items()}),
        dialect=_literal([list(each) for each in dialect]),
        operator=signature.operator,
        params=_PARAMS if signature.operator == "mha" else "",
        keywords="".join(f"        {name!r}: {value},\n" for name, value in _keywords(signature).items()),
        positional=", ".join(_positional(signature)),
        reply=_WEIGHTED if signature.has("need_weights") else _PLAIN,
    )
    return _declining_both(text) if signature.has("average_weights") and signature.has("need_weights") else text


def _declining_both(text: str) -> str:
    text = text.replace(
        "import Call, Declaration, Deviation, Facts, Profile,",
        "import Call, Declaration, Deviation, Facts, Profile, Unsupported,",
    )
    return text.replace("    copies = {id", f"{_BOTH}    copies = {{id", 1)


def _literal(value: Any) -> str:
    return pformat(value, width=116, sort_dicts=False)


def _positional(signature: Signature) -> list[str]:
    names = ["query", "key", "value"]
    if signature.operator == "mha":
        names += ["params", 'call.facts.sizes["num_heads"]']
    if signature.mask is not None and not signature.mask_by_name:
        names.append(f"given(call, {signature.mask!r})")
    return names


def _keywords(signature: Signature) -> dict[str, str]:
    values = {name: _VALUES[name] for name in signature.keywords}
    if signature.has("is_causal") and signature.has("causal_alignment"):
        values["is_causal"] += f' or "{AT_END}" in call.arguments'
    if signature.mask is not None and signature.mask_by_name:
        values[signature.mask] = f"given(call, {signature.mask!r})"
    return values
