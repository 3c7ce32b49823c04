"""`conformance completion`, and what a shell is answered: argcomplete does both, from the parser."""

import argparse
import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from conformance.cli.case_choice import load_cases
from conformance.cli.errors import UsageError
from conformance.cli.provisioning import named_subjects
from conformance.gate.decision import CONFORMS

_WHERE = {
    "bash": 'eval "$(conformance completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(conformance completion zsh)" in ~/.zshrc, after compinit',
    "fish": "conformance completion fish | source in ~/.config/fish/config.fish",
}


def completion(arguments: argparse.Namespace) -> int:
    """Print the script of a shell, and where it goes."""
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
    """Answer a shell, which asks through variables, and leave."""
    library = _library()
    library.autocomplete(parser, default_completer=_Values(library.FilesCompleter()))


class _Values:
    """The values of an option: subjects, ids of cases by their parts, else files."""

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
    """The ids that begin so, up to their next slash."""
    begun = (case for case in ids if case.startswith(prefix))
    ends = ((case, case.find("/", len(prefix))) for case in begun)
    return list(dict.fromkeys(case if end < 0 else case[: end + 1] for case, end in ends))
