"""
The tasks of the project, one session each: `nox -s conformance` judges the installed frameworks.

Sessions use virtualenv, pip and the constraints of CI, so that two runs install the same versions.
"""

import os
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True

# If it were set, each of the thousand processes that tests and runs start would compile our modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent
CONSTRAINTS = str(ROOT / ".ci" / "constraints.txt")
# Download size of the CPU wheels of all frameworks and their dependencies (measured 2026-11-20).
MEGABYTES = 1190

# Each process runs whole test files, because the preparation of a file is expensive. There is one process more than
# cores, because tests wait for other processes, but at most four, because frameworks take 2 GB in each.
SIDE_BY_SIDE = ("-n", str(min(4, (os.cpu_count() or 1) + 1)), "--dist", "loadfile", "--no-loadscope-reorder")


def install(session: nox.Session, *targets: str) -> None:
    """Install with pip, with the constraints of CI."""
    session.install("--constraint", CONSTRAINTS, *targets)


def install_frameworks(session: nox.Session, extras: str) -> None:
    """Log the download size on the first install, then install this project with the frameworks of `extras`."""
    if not list(Path(session.virtualenv.location).glob("lib/python*/site-packages/torch")):
        session.log(
            f"installing torch, tensorflow, keras, jax, flax, onnx and onnxruntime: about {MEGABYTES} MB to download"
        )
    # Install torch first and pinned: for a range, pip takes the newest build, which downloads gigabytes of CUDA.
    pin = next(line for line in Path(CONSTRAINTS).read_text().splitlines() if line.startswith("torch=="))
    install(session, pin)
    install(session, "-e", f".[{extras}]")


def chromium(session: nox.Session) -> None:
    """Stop with the install command if Chromium is missing: the report's tests need it and are never skipped."""
    if shutil.which("chromium") is None:
        session.error("the report's tests need Chromium: apt-get update && apt-get install -y chromium")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, including those on real frameworks and in a browser: `nox -s tests -- -k routing`."""
    chromium(session)
    install_frameworks(session, "all,equinox,tests")
    told = ("--durations", "12", "--durations-min", "5")
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, *told, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def measurements(session: nox.Session) -> None:
    """Run the long tests that `nox -s tests` leaves out: more functions to check, more pairs to port between."""
    install_frameworks(session, "all,equinox,tests")
    words = ("-m", "measurement", *session.posargs)
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, *words, env={"OMP_NUM_THREADS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, and import directions."""
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
    """Update the pictures of the tutorial: `conformance check --example`, opened in Chromium."""
    chromium(session)
    install(session, "-e", ".[tests]")
    session.run("python", "-m", "tests.docs.pictures")


@nox.session
def package(session: nox.Session) -> None:
    """Build wheel and sdist twice, check that both builds have the same bytes, and run twine check."""
    install(session, "-e", ".[package]")
    session.run("python", "-m", "tests.packaging.reproduce", "dist")


@nox.session(python="3.11")
def minimums(session: nox.Session) -> None:
    """Run core tests and a small run with the lowest versions of direct dependencies in pyproject.toml."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")["project"]
    tools = [text for text in project["optional-dependencies"]["tests"] if text.startswith(("pytest>", "hypothesis>"))]
    lowest = [text.replace(">=", "==") for text in (*project["dependencies"], *tools)]
    # These packages choose their own dependencies: pydantic needs one pydantic_core, pytest an older pluggy.
    free = {*(text.partition("==")[0] for text in lowest), "pydantic_core", "pluggy"}
    pins = Path(session.virtualenv.location) / "constraints.txt"
    lines = Path(CONSTRAINTS).read_text().splitlines()
    pins.write_text("\n".join(line for line in lines if line.partition("==")[0].lower() not in free))
    session.install("--constraint", str(pins), *lowest)
    session.install("--no-deps", "-e", ".")
    tests = ("tests/spec", "tests/bridge", "tests/gate", "tests/golden/test_by_hand.py", "tests/report/test_run.py")
    session.run("python", "-m", "pytest", *tests, *session.posargs)
    out = Path(session.create_tmp()) / "run"
    shutil.rmtree(out, ignore_errors=True)  # a run never overwrites another run
    session.run("conformance", "run", "-a", "numpy.*", "-k", "masks/*", "--out", str(out))


@nox.session
def conformance(session: nox.Session) -> None:
    """Judge every framework: `nox -s conformance -- -a 'torch.*' -k 'causal/*'`. Reports are written to reports/."""
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
    """Check that input streams have the same bytes and the bridge works under several NumPy versions."""
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
    """Check that workers run under several Python versions, in environments that have NumPy but not this project."""
    install(session, "-e", ".", "virtualenv")
    there = Path(session.create_tmp()) / f"python{version}"
    session.run("virtualenv", "--quiet", "--python", version, str(there))
    session.run(str(there / "bin" / "python"), "-m", "pip", "install", "--quiet", "numpy>=1.26", external=True)
    words = ("-a", "numpy.*@cpu:there", "--env", f"there={there}", *session.posargs)
    session.run("conformance", "run", *words)


@nox.session
def mutation(session: nox.Session) -> None:
    """Check that lying adapters and planted bugs are killed and named rightly: `nox -s mutation -- --sample 8`."""
    install(session, "-e", ".")
    session.chdir("tests")
    session.run("python", "-m", "mutation.mutation_session", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def faults(session: nox.Session) -> None:
    """Kill, signal, starve and resume runs: nothing is lost, nothing is left over. `nox -s faults -- --seed 7`."""
    install(session, "-e", ".")
    session.run("python", "tests/faults/faults.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def everyday(session: nox.Session) -> None:
    """Check that `check` names everyday mistakes in many signatures: `nox -s everyday -- --only fill`."""
    install(session, "-e", ".")
    session.run("python", "-m", "tests.everyday.everyday_session", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def hostile(session: nox.Session) -> None:
    """Attack with adapters and workers that break every rule: each costs only one call. `-- --only exits`."""
    install(session, "-e", ".")
    session.run("python", "-m", "tests.hostile.hostile", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Read 100,000 changed and made-up files: no traceback, at most 2 s and 300 MB. `-- --count 2000 --seed 7`."""
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
    """Report what an upgrade changes: `nox -s upgrade -- keras==3.14.1 keras==3.15.0`. All else is as in CI."""
    install(session, "-e", ".")
    session.run("conformance", "upgrade", "--constraint", CONSTRAINTS, *session.posargs)


@nox.session
def portability(session: nox.Session) -> None:
    """Judge under settings that imitate other CPUs: `nox -s portability -- 'aten_*'`. Takes hours."""
    install_frameworks(session, "all")
    session.run("python", "tests/portability/portability.py", *session.posargs)


@nox.session
def versions(session: nox.Session) -> None:
    """Call adapters in the releases that they claim (tests/versions/versions.yaml). Slow; installs the releases."""
    install(session, "-e", ".")
    session.run("python", "tests/versions/versions.py", *session.posargs, "--constraint", CONSTRAINTS)


@nox.session
def coverage(session: nox.Session) -> None:
    """List what entry points offer, and write docs/coverage/: which arguments, pairs and outputs the cases cover."""
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
    """Choose the cases only for thorough runs: `nox -s tiers -- reports/RUN`, the folder of a thorough run."""
    install_frameworks(session, "all")
    session.run("python", "-m", "tests.tiers.choose", *session.posargs)


@nox.session
def porting(session: nox.Session) -> None:
    """Write docs/porting/: what to change between two entry points, as read from the installed frameworks."""
    install_frameworks(session, "all")
    session.run("python", "-m", "tests.docs.porting")


@nox.session
def replays(session: nox.Session) -> None:
    """Replay released regressions (tests/replays/replays.yaml). Slow; installs many old releases."""
    install(session, "-e", ".")
    session.run("python", "tests/replays/replay.py", *session.posargs, "--constraint", CONSTRAINTS)


@nox.session
def libraries(session: nox.Session) -> None:
    """Check attention in other libraries (tests/libraries/libraries.yaml). Slow; installs from the network."""
    install_frameworks(session, "torch,jax")
    told = session.run("python", "tests/libraries/libraries.py", "--packages", silent=True)
    for line in str(told).splitlines():
        install(session, *line.split())
    session.run("python", "tests/libraries/libraries.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})
