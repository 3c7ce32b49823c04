"""The wheel has only the package at its top, with adapters, cases and page as data, and its pytest plug-in works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from .wheelhouse import environment, link

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
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
        path
        for path in (ROOT / "conformance").rglob("*")
        if path.suffix in (".yaml", ".toml", ".j2", ".css", ".js", ".typed")
    ]
    assert {"py.typed", "known.yaml", "page.html.j2"} <= {path.name for path in data}
    assert {path.relative_to(ROOT).as_posix() for path in data} <= names


# ---- its plug-in for pytest, in a project of its own -------------------------------------------------------------

PAGE = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
NEEDED = ("pyyaml", "pydantic", "jinja2", "rich", "packaging")


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, its dependencies, pytest and pytest-xdist."""
    interpreter = environment(tmp_path_factory.mktemp("environment") / "venv")
    (site,) = interpreter.parents[1].glob("lib/*/site-packages")
    link(site, *NEEDED, "pytest", "pytest-xdist")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    return interpreter


@pytest.fixture(scope="module")
def project(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of docs/pytest.md: a function with a mistake, and a test file of three lines."""
    folder = tmp_path_factory.mktemp("project")
    assert run(python, folder, "conformance", "check", "--example").returncode == 0
    (block, *_) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len([line for line in block.splitlines() if line]) == 3
    (folder / "test_attention.py").write_text(block, encoding="utf-8")
    return folder


def run(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module in the folder, without the variables of our own test run."""
    ours = ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "COLUMNS")
    plain = {name: value for name, value in os.environ.items() if name not in ours and "XDIST" not in name}
    return subprocess.run(
        [str(python), "-m", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=plain
    )


def told(text: str) -> list[str]:
    """Return the lines without the padding of headings and without the path of a report."""
    return [re.sub(r"(?<=^report: ).*", "...", line).strip("_= ") for line in text.splitlines() if line.strip("_= ")]


def test_the_page_of_the_plug_in_shows_what_a_failing_test_prints(python: Path, project: Path) -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    command, *shown = block.splitlines()
    done = run(python, project, *shlex.split(command.removeprefix("$ ")))
    assert done.returncode == 1, done.stdout + done.stderr
    printed = told(done.stdout)
    assert printed[0].startswith("test session starts")
    for line in told("\n".join(shown)):
        assert line in printed


def test_a_project_selects_repeats_and_spreads_its_cases(python: Path, project: Path) -> None:
    first = run(python, project, "pytest", "-k", "causal and square", "-n", "2", "-q")
    assert first.returncode == 1, first.stdout + first.stderr
    failed = set(re.findall(r"^FAILED (\S+)", first.stdout, re.MULTILINE))
    assert failed
    again = run(python, project, "pytest", "-k", "causal", "--lf", "-n", "2", "-q")
    assert set(re.findall(r"^FAILED (\S+)", again.stdout, re.MULTILINE)) == failed
    assert re.search(rf"^{len(failed)} failed in ", again.stdout, re.MULTILINE), again.stdout
    source = (project / "my_attention.py").read_text(encoding="utf-8")
    (project / "my_attention.py").write_text(source.replace("mask, -np.inf, logits", "mask, logits, -np.inf"), "utf-8")
    right = run(python, project, "pytest", "-k", "causal", "--lf", "-n", "2", "-q")
    assert right.returncode == 0, right.stdout
    assert re.search(rf"^{len(failed)} passed in ", right.stdout, re.MULTILINE), right.stdout
