"""`conformance check`: judge a function of the user without a hand-written adapter."""

import argparse
import sys
from pathlib import Path

from conformance.checking.declarations import parse_pairs
from conformance.checking.function_check import Checked, CheckRequest, see_writable_folder
from conformance.checking.function_check import check as judge
from conformance.checking.target import CheckError, parse_target
from conformance.cli.argument_parser import QUIET, UsageError, see_writable_files
from conformance.cli.baseline_option import BaselineOption
from conformance.cli.case_choice import load_cases
from conformance.cli.command_check import calling_of
from conformance.cli.output_folder import new_folder, point_latest
from conformance.cli.progress import Progress, open_page, print_slowest
from conformance.disk import write_asked
from conformance.engine.cell_records import RunListener
from conformance.gate.decision import CONFORMS, INCOMPLETE, REJECTED
from conformance.report import print_summary
from conformance.report.annotations import run_annotations
from conformance.report.junit import junit_xml

_SDPA = '''\
"""Attention in plain NumPy, with one mistake in it. Check it: {command}"""

import numpy as np


def attention(query, key, value, mask=None, *, is_causal=False, scale=None):
    """
    Arrays are (batch, num_heads, seq_len, head_dim).

    mask is None or boolean, with four axes of which any may be 1: True = attend.
    is_causal: query i attends keys 0 to i.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = query @ key.swapaxes(-1, -2) * factor
    if mask is not None:
        logits = np.where(mask, -np.inf, logits)
    if is_causal:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value  # a fully masked row is zero
'''

_MHA = '''\
"""Multi-head attention in plain NumPy, with one mistake in it. Check it: {command}"""

import numpy as np


def multi_head_attention(query, key, value, params, num_heads, mask=None):
    """
    Arrays are (batch, seq_len, width); params has wq wk wv wo, (in, out), and bq bk bv bo, 1-D or None.

    mask is None or boolean, with four axes of which any may be 1: True = attend.
    """
    q, k, v = (
        split(linear(rows, params["w" + name], params["b" + name]), num_heads)
        for name, rows in (("q", query), ("k", key), ("v", value))
    )
    logits = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    context = weights / np.where(total == 0, 1, total) @ v  # a fully masked row is zero
    batch, _, queries, _ = context.shape
    merged = context.transpose(0, 2, 1, 3).reshape(batch, queries, -1)
    return linear(merged, params["wo"], params["bo"])


def linear(rows, weight, bias):
    """Rows times weight, plus bias."""
    return rows @ weight if bias is None else rows @ weight + bias


def split(rows, num_heads):
    """(batch, seq_len, num_heads * dim) to (batch, num_heads, seq_len, dim)."""
    batch, length, width = rows.shape
    return rows.reshape(batch, length, width // num_heads, num_heads).transpose(0, 3, 1, 2)
'''

# Operator -> name of the function and source text.
EXAMPLES = {"sdpa": ("attention", _SDPA), "mha": ("multi_head_attention", _MHA)}


def write_example(operator: str, folder: Path) -> tuple[Path, str]:
    """
    Write the example, and return its path and the command that checks it.

    Raises:
        CheckError: the file exists already, or cannot be written.
    """
    function, text = EXAMPLES[operator]
    path = folder / f"my_{function}.py"
    command = f"conformance check {path.name}:{function}"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.format(command=command))
    except FileExistsError:
        raise CheckError(f"{path.name} exists already and was not changed") from None
    except OSError as error:
        raise CheckError(f"{path.name} cannot be written: {error}") from None
    return path, command


def check(arguments: argparse.Namespace) -> int:
    """Judge the function, or write an example function, and return the exit code."""
    try:
        if arguments.example is not None:
            return _example(arguments)
        see_writable_files(arguments.junit)
        baseline = BaselineOption(arguments)
        checked = _judged(arguments, baseline)
    except CheckError as error:
        raise UsageError(str(error)) from error
    for line in checked.lines():
        print(line)
    print()
    print_slowest(checked.run.cells.values(), arguments.durations)
    print_summary(checked.run, sys.stdout, with_findings=False, brief=arguments.level == QUIET)
    if arguments.open:
        open_page(checked.run.folder)
    if arguments.junit is not None:
        write_asked(arguments.junit, junit_xml(checked.run))
    if arguments.annotations:
        for line in run_annotations(checked.run, Path.cwd()):
            print(line)
    code = checked.decision.exit_code
    baseline.finish(complete=code != INCOMPLETE and not (arguments.stop and code == REJECTED))
    return CONFORMS if code == REJECTED and arguments.exit_zero else code


def _example(arguments: argparse.Namespace) -> int:
    if arguments.target is not None:
        raise CheckError("--example writes its own function: leave FILE:FUNCTION out")
    path, command = write_example(arguments.example, Path.cwd())
    print(f"Written: {path.name}, attention in NumPy with one mistake in it. Find it with:")
    print(command)
    return CONFORMS


def _judged(arguments: argparse.Namespace, baseline: BaselineOption) -> Checked:
    if arguments.target is None:
        raise CheckError("no function given: expected FILE:FUNCTION, such as mine.py:attention, or --example")
    request = CheckRequest(
        target=parse_target(arguments.target),
        like=arguments.like,
        calling=calling_of(arguments),
        profile=arguments.profile,
        declare=parse_pairs(arguments.declare),
        globs=tuple(arguments.case),
        dtypes=tuple(arguments.dtype),
        timeout=arguments.timeout,
        min_judged=arguments.min_judged,
        stop=arguments.stop,
        jobs=arguments.jobs,
        inspection=arguments.inspection,
        own_cases=load_cases(arguments.cases, (), None) if arguments.cases else (),
        case_paths=tuple(arguments.cases),
    )
    folder = _folder(arguments.out)
    try:
        first = "finding out how the function is called"
        with Progress(sys.stderr, name_red=False, level=arguments.level, first=first) as progress:
            watch = RunListener(cell=progress.cell, worker=progress.worker, search=progress.search, total=progress.plan)
            return judge(request, folder, watch, lambda whole: baseline.problems(folder, whole=whole))
    finally:
        _tidy(folder, arguments.out)


def _folder(out: Path | None) -> Path:
    """
    Create the run folder.

    Raises:
        CheckError: it cannot be written.
    """
    folder = out or new_folder()
    see_writable_folder(folder)
    return folder


def _tidy(folder: Path, out: Path | None) -> None:
    """Remove the folder if the check wrote nothing; otherwise point reports/latest to it."""
    if out is not None:
        return
    if any(folder.iterdir()):
        point_latest(folder)
    else:
        folder.rmdir()
