"""Bytes that are kept for later processes: they are made once for each key, and again if the file is gone."""

from pathlib import Path

import pytest

from conformance.bridge import kept


class Exporter:
    """Counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return f"model {self.calls}".encode()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "new"))
    return tmp_path / "new"


def test_bytes_are_made_once_for_each_key(folder: Path) -> None:
    export = Exporter()
    assert [kept(key, export, ".onnx") for key in ("float32", "float16", "float32")] == [
        b"model 1",
        b"model 2",
        b"model 1",
    ]
    assert sorted(file.suffix for file in folder.iterdir()) == [".onnx", ".onnx"]


def test_a_file_that_another_process_removed_is_made_again(folder: Path) -> None:
    export = Exporter()
    kept("float32", export, ".onnx")
    for file in folder.iterdir():
        file.unlink()
    assert kept("float32", export, ".onnx") == b"model 2"


def test_without_a_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFORMANCE_CACHE", raising=False)
    export = Exporter()
    kept("float32", export, ".onnx")
    assert kept("float32", export, ".onnx") == b"model 2"


def test_nothing_is_kept_of_what_could_not_be_made(folder: Path) -> None:
    def refuse() -> bytes:
        raise ValueError("no opset")

    with pytest.raises(ValueError, match="no opset"):
        kept("float32", refuse, ".onnx")
    assert not folder.exists()
