"""Write docs/porting/: for each pair, the page that `conformance port` generates with the installed frameworks."""

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "porting"
PAIRS = (
    ("torch.mha", "keras.mha[jax]"),
    ("keras.mha[jax]", "torch.mha"),
    ("torch.mha", "flax.mha[linen]"),
    ("torch.sdpa", "jax.sdpa"),
    ("torch.sdpa", "keras.sdpa[jax]"),
    ("torch.sdpa", "ort.attention"),
)


def page(here: str, there: str) -> Path:
    """Return the path of the page of a pair."""
    return FOLDER / f"{here.partition('[')[0]}-to-{there.partition('[')[0]}.md"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for pair in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "conformance", "port", *pair, "--quiet", "--out", f"{folder}/port"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            page(*pair).write_text((Path(folder) / "port" / "port.md").read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()
