"""What is installed: the package with its adapters, cases and page as data, and nothing else at the top."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_only_the_package_is_at_the_top(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"conformance"}


def test_every_adapter_and_case_travels_as_data(names: set[str]) -> None:
    for folder in ("adapters", "cases"):
        files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml", ".json", ".npz")]
        assert len(files) > 10
        assert {f"conformance/_data/{path.relative_to(ROOT).as_posix()}" for path in files} <= names


def test_what_is_no_code_of_the_package_travels_too(names: set[str]) -> None:
    data = [
        path for path in (ROOT / "conformance").rglob("*") if path.suffix in (".yaml", ".j2", ".css", ".js", ".typed")
    ]
    assert {"py.typed", "known.yaml", "page.html.j2"} <= {path.name for path in data}
    assert {path.relative_to(ROOT).as_posix() for path in data} <= names
