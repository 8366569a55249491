"""The distribution, built once, and environments outside of the repository in which it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventproc import __version__
from tests.tidy.source import ROOT
from tools.setup.indexes import Indexes

BIN = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path) -> str:
    """Return the stdout of `command`; its stderr is in the failure."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EVENTPROC"))
    }
    environment |= Indexes.configured(os.environ).environment_for_uv()
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (
        f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def make_environment(folder: Path, wheel: Path, *others: str) -> Path:
    """Install the wheel and `others` with pip, in the locked versions, into an empty environment; return its bin."""
    uv, locked, programs = BIN / "uv", folder / "constraints.txt", folder / "venv" / "bin"
    export = ("export", "--frozen", "--no-emit-project", "--all-extras", "--no-hashes", "--quiet")
    run(uv, *export, "--output-file", locked, cwd=ROOT)
    run(uv, "venv", "--seed", "--python", sys.executable, folder / "venv", cwd=folder)
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--constraint", locked, wheel, *others, cwd=folder)
    run(*pip, "check", cwd=folder)
    return programs


def build(folder: Path) -> Path:
    """Build the sdist from the repository, and the wheel from the sdist: the default of `build`."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def sdist(built: Path) -> Path:
    return built / f"eventproc-{__version__}.tar.gz"


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    return built / f"eventproc-{__version__}-py3-none-any.whl"
