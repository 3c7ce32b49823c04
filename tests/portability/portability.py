"""
Judge the subjects that a setting may affect, under every setting, and compare each run with one without a setting.

    python tests/portability/portability.py                 every setting
    python tests/portability/portability.py 'aten_*' --jobs 2 -k '*half*'

A setting makes a library compute as it does on another CPU, with other kernels or with more threads. A setting can
only disable what the CPU has: one that has no effect on this CPU is named and skipped. This script is slow, so it has
its own session (`nox -s portability`), and the tests do not run it.
"""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.engine.environments import cpu_features

# Globs of the subjects that each library computes.
GROUPS = {
    "torch": ("torch.*", "keras.*[torch*", "keras.mha[axes*"),
    "jax": ("jax.*", "flax.*", "keras.*[jax*"),
    "tensorflow": ("tf_keras.*", "published.tf*", "keras.*[tensorflow*"),
    "numpy": ("numpy.*", "published.bert_numpy*", "onnx.attention*"),
    "everything": ("*",),
}


@dataclass(frozen=True)
class Setting:
    """
    Environment variables, and the group of subjects that they may affect.

    needs: the instruction set without which the setting changes nothing on this CPU. jobs: the largest number of
    workers at once; two workers with two threads each take hours on two cores.
    """

    name: str
    env: Mapping[str, str]
    group: str
    needs: tuple[str, ...] = ()
    jobs: int | None = None


# TensorFlow is not run under ONEDNN_MAX_CPU_ISA: it takes the instruction sets from the CPU, not oneDNN, and crashes.
# XLA is not run below AVX: jaxlib's wheels refuse a CPU without it (https://github.com/jax-ml/jax/issues/31723).
SETTINGS = (
    Setting("aten_default", {"ATEN_CPU_CAPABILITY": "default"}, "torch", ("avx2",)),
    Setting("aten_avx2", {"ATEN_CPU_CAPABILITY": "avx2"}, "torch", ("avx512f",)),
    Setting("aten_avx512", {"ATEN_CPU_CAPABILITY": "avx512"}, "torch", ("avx512f",)),
    Setting("onednn_sse41", {"ONEDNN_MAX_CPU_ISA": "SSE41"}, "torch", ("avx2",)),
    Setting("onednn_avx2", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "torch", ("avx512f",)),
    Setting("onednn_fpmath_bf16", {"DNNL_DEFAULT_FPMATH_MODE": "BF16"}, "torch"),
    Setting("tensorflow_eigen", {"TF_ENABLE_ONEDNN_OPTS": "0"}, "tensorflow"),
    Setting("tensorflow_onednn", {"TF_ENABLE_ONEDNN_OPTS": "1"}, "tensorflow"),
    Setting("xla_avx", {"XLA_FLAGS": "--xla_cpu_max_isa=AVX"}, "jax", ("avx2",)),
    Setting("xla_avx2", {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}, "jax", ("avx512f",)),
    Setting("openblas_haswell", {"OPENBLAS_CORETYPE": "Haswell"}, "numpy", ("avx512f",)),
    Setting("openblas_nehalem", {"OPENBLAS_CORETYPE": "Nehalem"}, "numpy", ("avx2",)),
    Setting("two_threads", {"CONFORMANCE_THREADS": "2"}, "everything", jobs=1),
)


def conformance(words: list[str], env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run one command with these environment variables."""
    command = [sys.executable, "-m", "conformance", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})


def judged(setting: Setting, arguments: Namespace, out: Path) -> int:
    """Judge the subjects of a setting under it, and return the exit code."""
    words = ["run", "--out", str(out), "--jobs", str(setting.jobs or arguments.jobs)]
    words += [word for glob in GROUPS[setting.group] if glob != "*" for word in ("-a", glob)]
    words += [word for glob in arguments.case for word in ("-k", glob)]
    words += ["--thorough"] if arguments.thorough else []
    return conformance(words, setting.env).returncode


def told(setting: Setting, base: Path, arguments: Namespace) -> tuple[bool, str]:
    """Return whether a setting conforms, and a text about what it changes."""
    out = arguments.out / setting.name
    code = judged(setting, arguments, out / "run")
    conformance(["compare", str(base), str(out / "run"), "--out", str(out)], {})
    if not (out / "comparison.json").is_file():
        return False, f"exit code {code}, and nothing to compare"
    found: dict[str, Any] = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    changed = sum(found["counts"].values())
    different = f"{changed:,} of {found['judged']:,} cells differ" if changed else "no cell differs"
    return code == 0, f"exit code {code}; {different}; {found['headline']}"


def main() -> int:
    """Run every chosen setting and print a line for each; return 1 if one does not conform or none was chosen."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", metavar="NAME", help="settings by glob (default: all)")
    parser.add_argument("--out", type=Path, default=Path("reports") / "portability", help="where the run folders go")
    parser.add_argument("-j", "--jobs", type=int, default=3, help="how many workers live at once")
    parser.add_argument(
        "-k", "--case", action="append", default=[], metavar="GLOB", help="cases by glob (default: all)"
    )
    parser.add_argument("--thorough", action="store_true", help="every case, dense forms included")
    arguments = parser.parse_args()
    globs = arguments.settings or ["*"]
    settings = [each for each in SETTINGS if any(fnmatchcase(each.name, glob) for glob in globs)]
    lines = list(_lines(settings, arguments))
    print(f"{len(settings)} settings, {lines.count(False)} runs that do not conform")
    return 0 if all(lines) and settings else 1


def _lines(settings: Sequence[Setting], arguments: Namespace) -> Iterator[bool]:
    """Print a line for each run when it ends, and yield whether it conforms."""
    for group in dict.fromkeys(each.group for each in settings):
        base = arguments.out / f"base_{group}"
        yield _print(
            f"{group}, without a setting", "", conforms=judged(Setting("base", {}, group), arguments, base) == 0
        )
        for setting in (each for each in settings if each.group == group):
            lacking = [feature for feature in setting.needs if feature not in cpu_features()]
            if lacking:
                print(f"not tried         {setting.name}: this CPU has no {', '.join(lacking)}", flush=True)
            else:
                conforms, said = told(setting, base, arguments)
                yield _print(setting.name, said, conforms=conforms)


def _print(name: str, said: str, *, conforms: bool) -> bool:
    """Print one line of the table, and return whether the run conforms."""
    print(f"{'conforms' if conforms else 'DOES NOT CONFORM':16}  {name}{said and f': {said}'}", flush=True)
    return conforms


if __name__ == "__main__":
    sys.exit(main())
