"""One call of an OpenVINO model in a new process, because some calls leave their process in an unusable state."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import openvino

# The program of the new process. `alone` adds a first line that sets CPU to the settings.
ALONE = """
import os, sys
import numpy as np, openvino
folder = sys.argv[1]
given = np.load(f"{folder}/inputs.npz")
compiled = openvino.Core().compile_model(f"{folder}/model.xml", "CPU", CPU)
np.save(f"{folder}/output.npy", compiled([given[name] for name in given.files])[0])
os._exit(0)
"""


def alone(model: Any, arrays: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    """
    Return the output of one call that is made in a new process.

    If a signal kills the new process, this process sends the same signal to itself.

    Raises:
        RuntimeError: the new process ends with an error; the text is its standard error.
    """
    with TemporaryDirectory() as place:
        openvino.save_model(model, f"{place}/model.xml", compress_to_fp16=False)
        np.savez(f"{place}/inputs.npz", *arrays)
        words = [sys.executable, "-c", f"CPU = {dict(settings)!r}{ALONE}", place]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode < 0:
            os.kill(os.getpid(), -done.returncode)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return np.load(Path(place) / "output.npy")
