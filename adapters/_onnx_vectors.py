"""
Write the node tests of the operator Attention, which ship with the package onnx, to one npz file.

The command `conformance import onnx` runs this file as a script. The array `index` of the npz file is JSON. It lists,
for each test, the attributes, the opset, the tolerances, and the name and dtype of each input and output. The inputs
and outputs are the arrays `NUMBER/NAME`. Half precision is stored as float32, which represents it exactly.
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
    """Yield the tests whose graph is the operator itself. The others expand it into simpler ones, with equal data."""
    for test in collect_testcases(OPERATOR):
        if test.model is not None and test.model.graph.node[0].op_type == OPERATOR:
            yield test


def described(test: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the description of one test for the index, and the arrays of the test by name."""
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
    """Write all tests to the file `target`."""
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
