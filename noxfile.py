"""
The chores of the project, one session each: `nox -s conformance` judges the installed frameworks.

Sessions use virtualenv and pip, and CI's constraints, so that two runs see the same versions.
"""

import os
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True

# Where it is set, each of the thousand processes that tests and runs start would compile our modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent
CONSTRAINTS = str(ROOT / ".ci" / "constraints.txt")
# Wheels of all frameworks and what they need, CPU builds (measured 2026-11-20).
MEGABYTES = 1190

# One test file per process at a time, because the preparation of a file is expensive. One process more than there are
# cores, because tests wait for processes; at most four, because frameworks take 2 GB each.
SIDE_BY_SIDE = ("-n", str(min(4, (os.cpu_count() or 1) + 1)), "--dist", "loadfile", "--no-loadscope-reorder")


def install(session: nox.Session, *targets: str) -> None:
    """Install with pip under the constraints."""
    session.install("--constraint", CONSTRAINTS, *targets)


def install_frameworks(session: nox.Session, extras: str) -> None:
    """Say how much is about to come, then install this project with every framework."""
    if not list(Path(session.virtualenv.location).glob("lib/python*/site-packages/torch")):
        session.log(
            f"installing torch, tensorflow, keras, jax, flax, onnx and onnxruntime: about {MEGABYTES} MB to download"
        )
    # torch first and by its pin: asked for by a range, pip takes the newest build, which brings gigabytes of CUDA.
    pin = next(line for line in Path(CONSTRAINTS).read_text().splitlines() if line.startswith("torch=="))
    install(session, pin)
    install(session, "-e", f".[{extras}]")


def chromium(session: nox.Session) -> None:
    """Stop with a remedy where there is no browser: the report's tests open one and are never skipped."""
    if shutil.which("chromium") is None:
        session.error("the report's tests need Chromium: apt-get update && apt-get install -y chromium")


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test, those on real frameworks and in a browser included: `nox -s tests -- -k routing`."""
    chromium(session)
    install_frameworks(session, "all,equinox,tests")
    told = ("--durations", "12", "--durations-min", "5")
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, *told, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format, and the direction of imports."""
    install(session, "ruff", "import-linter", "-e", ".")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check types strictly, in an environment without any framework."""
    install(session, "-e", ".[types]")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/site; a warning or a broken link is an error."""
    install(session, "-e", ".[docs]")
    session.run("python", "-m", "mkdocs", "build", "--strict", *session.posargs)


@nox.session
def pictures(session: nox.Session) -> None:
    """Take the pictures of the tutorial again: `conformance check --example`, opened in Chromium."""
    chromium(session)
    install(session, "-e", ".[tests]")
    session.run("python", "-m", "tests.docs.pictures")


@nox.session
def package(session: nox.Session) -> None:
    """Build wheel and sdist twice, show that both builds have the same bytes, and run twine check."""
    install(session, "-e", ".[package]")
    session.run("python", "-m", "tests.packaging.reproduce", "dist")


@nox.session(python="3.11")
def minimums(session: nox.Session) -> None:
    """Run core tests and a small run with the lowest versions that pyproject.toml allows for our own dependencies."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")["project"]
    tools = [text for text in project["optional-dependencies"]["tests"] if text.startswith(("pytest>", "hypothesis>"))]
    lowest = [text.replace(">=", "==") for text in (*project["dependencies"], *tools)]
    # What these pin themselves is theirs to choose: pydantic needs one pydantic_core, pytest an older pluggy.
    free = {*(text.partition("==")[0] for text in lowest), "pydantic_core", "pluggy"}
    pins = Path(session.virtualenv.location) / "constraints.txt"
    lines = Path(CONSTRAINTS).read_text().splitlines()
    pins.write_text("\n".join(line for line in lines if line.partition("==")[0].lower() not in free))
    session.install("--constraint", str(pins), *lowest)
    session.install("--no-deps", "-e", ".")
    tests = ("tests/spec", "tests/bridge", "tests/gate", "tests/golden/test_by_hand.py", "tests/report/test_run.py")
    session.run("python", "-m", "pytest", *tests, *session.posargs)
    out = Path(session.create_tmp()) / "run"
    shutil.rmtree(out, ignore_errors=True)  # a run is never written over another
    session.run("conformance", "run", "-a", "numpy.*", "-k", "masks/*", "--out", str(out))


@nox.session
def conformance(session: nox.Session) -> None:
    """Judge every framework: `nox -s conformance -- -a 'torch.*' -k 'causal/*'`. Reports land in reports/."""
    install_frameworks(session, "all")
    session.run("conformance", "run", *session.posargs)


@nox.session
def smoke(session: nox.Session) -> None:
    """Judge the cases tagged smoke: about a minute once the frameworks are installed."""
    install_frameworks(session, "all")
    session.run("conformance", "smoke", *session.posargs)


@nox.session
@nox.parametrize("numpy", ["1.26.4", "2.0.2", "2.4.6"])
def numpies(session: nox.Session, numpy: str) -> None:
    """Show that input streams have the same bytes, and the bridge works, under several NumPy versions."""
    pins = Path(session.virtualenv.location) / "constraints.txt"
    others = [line for line in Path(CONSTRAINTS).read_text().splitlines() if not line.startswith("numpy==")]
    pins.write_text("\n".join([*others, f"numpy=={numpy}"]))
    packages = ("numpy", "pytest", "hypothesis", "pyyaml", "pydantic", "jinja2", "rich", "packaging")
    session.install("--constraint", str(pins), *packages)
    session.install("--no-deps", "-e", ".")
    tests = ("tests/spec", "tests/bridge", "tests/golden/test_by_hand.py")
    session.run("python", "-m", "pytest", *tests, *session.posargs)


@nox.session
@nox.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def workers(session: nox.Session, version: str) -> None:
    """Show that workers run under several versions of Python, in environments with NumPy and nothing of ours."""
    install(session, "-e", ".", "virtualenv")
    there = Path(session.create_tmp()) / f"python{version}"
    session.run("virtualenv", "--quiet", "--python", version, str(there))
    session.run(str(there / "bin" / "python"), "-m", "pip", "install", "--quiet", "numpy>=1.26", external=True)
    words = ("-a", "numpy.*@cpu:there", "--env", f"there={there}", *session.posargs)
    session.run("conformance", "run", *words)


@nox.session
def mutation(session: nox.Session) -> None:
    """Show that lying adapters and planted bugs are killed and rightly named: `nox -s mutation -- --sample 8`."""
    install(session, "-e", ".")
    session.chdir("tests")
    session.run("python", "-m", "mutation.mutation_session", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def faults(session: nox.Session) -> None:
    """Kill, signal and starve runs, and resume them; nothing is lost or left: `nox -s faults -- --seed 7`."""
    install(session, "-e", ".")
    session.run("python", "tests/faults/faults.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def everyday(session: nox.Session) -> None:
    """Write the everyday mistakes in many signatures; `check` names each: `nox -s everyday -- --only fill`."""
    install(session, "-e", ".")
    session.run("python", "-m", "tests.everyday.everyday_session", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def hostile(session: nox.Session) -> None:
    """Attack with adapters and workers that break every rule: each costs its one call. `-- --only exits`."""
    install(session, "-e", ".")
    session.run("python", "-m", "tests.hostile.hostile", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Read 100,000 changed and made-up files: no traceback, none over 2 s or 300 MB. `-- --count 2000 --seed 7`."""
    install(session, "-e", ".", "hypothesis")
    session.run("python", "-m", "tests.fuzz.fuzz", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def benchmark(session: nox.Session) -> None:
    """Print where the time of a run goes, what other tools take for the same cases, and how a run grows."""
    install_frameworks(session, "all")
    install(session, "pytest", "polygraphy")
    session.run("python", "benchmarks/whole_run.py", *session.posargs)
    session.run("python", "benchmarks/peers.py")
    session.run("python", "benchmarks/growth.py")


@nox.session
def upgrade(session: nox.Session) -> None:
    """Tell what an upgrade changes: `nox -s upgrade -- keras==3.14.1 keras==3.15.0`; all else is as CI has it."""
    install(session, "-e", ".")
    session.run("conformance", "upgrade", "--constraint", CONSTRAINTS, *session.posargs)


@nox.session
def portability(session: nox.Session) -> None:
    """Judge under settings that make a CPU look like others: `nox -s portability -- 'aten_*'`. Takes hours."""
    install_frameworks(session, "all")
    session.run("python", "tests/portability/portability.py", *session.posargs)


@nox.session
def versions(session: nox.Session) -> None:
    """Call every adapter in the releases that it claims (tests/versions/versions.yaml): slow, and installs them."""
    install(session, "-e", ".")
    session.run("python", "tests/versions/versions.py", *session.posargs, "--constraint", CONSTRAINTS)


@nox.session
def coverage(session: nox.Session) -> None:
    """List what entry points offer, and write docs/coverage/: which arguments, pairs and outputs the cases ask."""
    install_frameworks(session, "all,equinox,transformers,openvino")
    quiet = {
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "KERAS_BACKEND": "torch",
        "JAX_PLATFORMS": "cpu",
    }
    session.run("python", "-m", "tests.coverage.surface", env=quiet)
    session.run("python", "-m", "tests.coverage.pages")


@nox.session
def tiers(session: nox.Session) -> None:
    """Choose the cases that only a thorough run asks: `nox -s tiers -- reports/RUN`, the folder of a thorough run."""
    install_frameworks(session, "all")
    session.run("python", "-m", "tests.tiers.choose", *session.posargs)


@nox.session
def porting(session: nox.Session) -> None:
    """Write docs/porting/: what to change between pairs of entry points, read off the installed frameworks."""
    install_frameworks(session, "all")
    session.run("python", "-m", "tests.docs.porting")


@nox.session
def replays(session: nox.Session) -> None:
    """Replay released regressions (tests/replays/replays.yaml): slow, and installs many old releases."""
    install(session, "-e", ".")
    session.run("python", "tests/replays/replay.py", *session.posargs, "--constraint", CONSTRAINTS)
