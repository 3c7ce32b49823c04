"""
Write the node tests of the operator Attention, which ship inside onnx, into one npz: run as a script by `import onnx`.

`index` is JSON: for each test its attributes, opset, tolerance, and the name and dtype of each input and output, whose
arrays stand beside it as `NUMBER/NAME`, half precision as float32, which holds it exactly.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

OPERATOR = "Attention"
PREFIX = "test_attention_"
PLAIN = ("float64", "float32", "int64", "int32", "bool")


def vectors() -> Iterator[Any]:
    """The tests whose graph is the operator itself; the others are its expansion into simpler ones, on equal data."""
    for test in collect_testcases(OPERATOR):
        if test.model is not None and test.model.graph.node[0].op_type == OPERATOR:
            yield test


def described(test: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """One test in words, and its arrays."""
    node = test.model.graph.node[0]
    given, expected = test.data_sets[0]
    arrays = dict(zip([name for name in node.input if name], given, strict=True))
    results = dict(zip([name for name in node.output if name], expected, strict=True))
    about = {
        "name": test.name.removeprefix(PREFIX),
        "attributes": {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute},
        "opset": next(each.version for each in test.model.opset_import if not each.domain),
        "inputs": {name: array.dtype.name for name, array in arrays.items()},
        "outputs": {name: array.dtype.name for name, array in results.items()},
        "rtol": test.rtol,
        "atol": test.atol,
    }
    return about, {**arrays, **results}


def main(target: Path) -> None:
    """Write all of them."""
    found = [described(test) for test in vectors()]
    arrays = {
        f"{number}/{name}": array if array.dtype.name in PLAIN else array.astype(np.float32)
        for number, (_about, each) in enumerate(found)
        for name, array in each.items()
    }
    index = json.dumps({"onnx": onnx.__version__, "vectors": [about for about, _arrays in found]})
    np.savez(target, index=np.array(index), **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
