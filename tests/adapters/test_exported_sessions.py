"""The cache key of an exported session has everything that the session depends on."""

from typing import Any

import numpy as np
import pytest

from adapters import _onnx
from conformance.bridge import Facts, Tensor


def test_a_graph_has_a_session_with_and_one_without_optimisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants of one adapter may share a process and differ only in the optimisation."""
    opened: list[bool] = []

    def open_session(model: bytes, device: str, *, optimised: bool) -> Any:
        opened.append(optimised)
        return model, device, optimised

    monkeypatch.setattr(_onnx, "open_session", open_session)
    monkeypatch.setattr(_onnx, "sessions", {})
    inputs = {"query": (Tensor.of(np.zeros((2, 3, 5, 7), np.float32)), "bhqd")}
    facts = Facts("sdpa", "float32", "cpu", "", ("output",), masks=(), sizes={})
    origin = _onnx.Origin("dynamo", ("numpy",), _onnx.__file__)
    for optimised in (True, False, True):
        *_, found = _onnx.exported(inputs, {}, facts, origin, lambda _: b"graph", optimised=optimised)
        assert found == optimised
    assert opened == [True, False]
