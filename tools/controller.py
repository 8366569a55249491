"""Make the Python module of `controller.proto`: `python -m tools.controller`."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run
from typing import Final

FOLDER: Final = Path(__file__).parent.parent / "eventproc" / "server" / "controller"
"""The folder of the definition, and of what is made from it."""


def generate(into: Path) -> None:
    """Write `controller_pb2.py` and `controller_pb2.pyi` into a folder. Takes a second, in a process of its own."""
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{FOLDER}"]
    run([*compiler, f"--python_out={into}", f"--pyi_out={into}", "controller.proto"], check=True)


if __name__ == "__main__":
    generate(FOLDER)
