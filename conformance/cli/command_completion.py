"""`conformance completion`, and the completions themselves: argcomplete makes both from the parser."""

import argparse
import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from conformance.cli.argument_parser import UsageError
from conformance.cli.case_choice import load_cases
from conformance.cli.provisioning import named_subjects
from conformance.gate.decision import CONFORMS

_WHERE = {
    "bash": 'eval "$(conformance completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(conformance completion zsh)" in ~/.zshrc, after compinit',
    "fish": "conformance completion fish | source in ~/.config/fish/config.fish",
}


def completion(arguments: argparse.Namespace) -> int:
    """Print the completion script of a shell, with a first line that says where to put it."""
    print(f"# {_WHERE[arguments.shell]}")
    print(_library().shellcode(["conformance"], shell=arguments.shell))
    return CONFORMS


def _library() -> ModuleType:
    """
    Import argcomplete.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("argcomplete")
    except ImportError:
        raise UsageError("completion needs argcomplete: python -m pip install argcomplete") from None


def answer(parser: argparse.ArgumentParser) -> None:
    """Print the completions that a shell requests through environment variables, and exit."""
    library = _library()
    library.autocomplete(parser, default_completer=_Values(library.FilesCompleter()))


class _Values:
    """Completes the values of an option: subjects, case ids up to the next slash, or else files."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __call__(self, prefix: str, action: argparse.Action, **others: Any) -> Iterable[str]:
        if action.metavar in ("SUBJECT", "FROM", "TO"):
            return [subject.name for subject in named_subjects((), "cpu")]
        if action.dest == "case":
            return _parts([case.id for case in load_cases((), (), None)], prefix)
        found: Iterable[str] = self._files(prefix=prefix, action=action, **others)
        return found


def _parts(ids: Iterable[str], prefix: str) -> list[str]:
    """Return the ids that begin with the prefix, each up to its next slash."""
    matching = (case for case in ids if case.startswith(prefix))
    ends = ((case, case.find("/", len(prefix))) for case in matching)
    return list(dict.fromkeys(case if end < 0 else case[: end + 1] for case, end in ends))
