"""The operators that the installed onnxruntime has, read from its schemas: shared by the ort.contrib adapters."""

from functools import cache
from typing import Any

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from conformance.bridge import Unsupported


@cache
def _schemas(domain: str, operator: str) -> tuple[Any, ...]:
    """The schemas of an operator in the installed release, one for each version of the operator."""
    return tuple(each for each in get_all_operator_schema() if each.domain == domain and each.name == operator)


def in_release(node: Any) -> Any:
    """
    Return the node, if the installed release has the operator with these inputs, outputs and attributes.

    Raises:
        Unsupported: the operator, or a part of it, came with a later release; the message names what is missing.
    """
    known = _schemas(node.domain, node.op_type)
    release = f"onnxruntime {onnxruntime.__version__}"
    operator = node.op_type
    if not known:
        raise Unsupported(f"{release} has no operator {operator}")
    schema = max(known, key=lambda each: each.since_version)
    later_parts = [f"attribute {each.name}" for each in node.attribute if each.name not in schema.attributes]
    for kind in ("input", "output"):
        beyond = list(getattr(node, kind))[len(getattr(schema, f"{kind}s")) :]
        later_parts += [f"{kind} {name}" for name in beyond if name]
    if later_parts:
        raise Unsupported(f"{operator} of {release} has no {', no '.join(later_parts)}")
    return node
