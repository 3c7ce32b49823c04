"""`conformance` alone: what to type first."""

import argparse

from conformance.gate.decide import CONFORMS

FIRST = """\
conformance decides whether attention implementations mean the same thing.

  conformance list adapters              what can be judged here, and what is missing for the rest
  conformance smoke                      judge a few cases of everything: about a minute
  conformance check mine.py:attention    judge a function of your own
  conformance run -a 'torch.*'           judge subjects, and write a report
  conformance port torch.mha 'keras.mha[jax]'   what to change where calls move to another framework

conformance --help lists every command, conformance COMMAND --help its options."""


def greet(_: argparse.Namespace) -> int:
    """Print the commands that most people need first."""
    print(FIRST)
    return CONFORMS
