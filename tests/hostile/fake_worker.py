"""
A fake interpreter: as a worker, it follows the protocol except for one attack (attacks.py).

A shell script starts it. If the tool lists the installed distributions, the script starts the real interpreter instead.
"""

import json
import os
import sys
import time
from typing import Any

ATTACK, WHEN, CODE = sys.argv[1:4]
BRIDGE, OPTIONS = sys.argv[-2:]
sys.path.insert(0, BRIDGE)

import numpy as np  # noqa: E402 - sys.path needs the bridge's folder first

from conformance.bridge import worker  # noqa: E402
from conformance.bridge.messages import answer_message, read_request  # noqa: E402
from conformance.bridge.serving import answer  # noqa: E402
from conformance.bridge.tensor import Tensor  # noqa: E402
from conformance.bridge.wire import MAGIC, PREFIX, Message, read, write  # noqa: E402

EMPTY: dict[str, Any] = {
    "declaration": None,
    "reason": "",
    "error": None,
    "evidence": {},
    "seconds": {},
    "peak": 0,
}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Attacker:
    """Sends the messages of an attack through the private descriptors of a worker."""

    def __init__(self) -> None:
        self.requests, self.answers = worker._private_channel()

    def send(self, kind: str, fields: Any, tensors: Any) -> None:
        write(self.answers, Message(kind, fields, tensors))

    def raw(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[self.answers.write(left) or 0 :]

    def header(self, text: str) -> None:
        self.raw(PREFIX.pack(MAGIC, len(text), 0) + text.encode())

    def say(self, honest: Message, number: int) -> None:
        """Run the code of the attack instead of sending an honest message."""
        fields, declaration = dict(honest.fields), honest.fields.get("declaration") or {}

        def declared(**parts: Any) -> dict[str, Any]:
            return fields | {"declaration": {**declaration, **parts}}

        def frame(listing: Any, body: bytes) -> None:
            head = json.dumps({"kind": "reply", "fields": fields, "tensors": listing}).encode()
            self.raw(PREFIX.pack(MAGIC, len(head), len(body)) + head + body)

        names = {
            "fields": fields,
            "tensors": dict(honest.tensors),
            "number": number,
            "profile": declaration.get("profile"),
            "declared": declared,
            "frame": frame,
            "send": self.send,
            "raw": self.raw,
            "header": self.header,
            "answers": self.answers,
            "nested": nested,
            "EMPTY": EMPTY,
            "Tensor": Tensor,
            "np": np,
            "os": os,
            "time": time,
            "MAGIC": MAGIC,
            "PREFIX": PREFIX,
        }
        exec(CODE, names)  # noqa: S102 - the table of attacks is our own

    def serve(self) -> None:
        options = json.loads(OPTIONS)
        worker._tie_to_coordinator(options["coordinator"])
        adapter, hello = worker._prepared(options)
        if WHEN == "hello":
            self.say(hello, 0)
            return
        write(self.answers, hello)
        while (message := read(self.requests)) is not None:
            request = read_request(message)
            attacked = request.call.facts.sizes["batch"] == 13
            began = Message("began", {"number": request.number})
            if attacked and WHEN == "began":
                self.say(began, request.number)
            write(self.answers, began)
            honest = answer_message(answer(adapter, request))
            if attacked and WHEN == "answer":
                self.say(honest, request.number)
            else:
                write(self.answers, honest)
        bye = Message("bye", worker._usage())
        if WHEN == "bye":
            self.say(bye, 0)
        else:
            write(self.answers, bye)


if __name__ == "__main__":
    Attacker().serve()
