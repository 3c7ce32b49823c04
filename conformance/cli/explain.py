"""`conformance explain`: everything that one case asks."""

import argparse
import json
import sys

from conformance.cli.choice import one_case
from conformance.cli.provisioning import named_subjects
from conformance.gate.decide import CONFORMS
from conformance.report.explanation import explanation, lines


def explain(arguments: argparse.Namespace) -> int:
    """Print it, for a person or as JSON; nothing is asked of a framework."""
    case = one_case(arguments.cases, arguments.case)
    subjects = named_subjects(arguments.subject, "cpu")
    record = explanation(case, [subject for subject in subjects if arguments.subject or subject.counted])
    if arguments.json:
        json.dump(record, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print("\n".join(lines(record)))
    return CONFORMS
