"""What the installed release of onnxruntime has, by its own schemas: shared by the adapters of its own operators."""

from functools import cache
from typing import Any

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from conformance.bridge import Unsupported


@cache
def _schemas(domain: str, operator: str) -> tuple[Any, ...]:
    """What the installed release says of an operator: a schema for each version of it."""
    return tuple(each for each in get_all_operator_schema() if each.domain == domain and each.name == operator)


def in_release(node: Any) -> Any:
    """
    The node, if the installed release has the operator with these inputs, outputs and attributes.

    Raises:
        Unsupported: it came with a later release; what is lacking is named.
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
