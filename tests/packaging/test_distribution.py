"""What people install: the sdist, the wheel built from it, and that wheel alone in an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from eventproc import __version__
from tests.tidy.source import ROOT, SHIPPED, files, name_of
from tools.setup.indexes import Indexes

BIN = Path(sys.executable).parent
LAYERS_BEHIND_LINKS = ("cli", "store", "workflows")


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist from the repository, and the wheel from the sdist: the default of `build`."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    return built / f"eventproc-{__version__}.tar.gz"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"eventproc-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and the locked versions of what it needs, nothing else, and return its command."""
    folder = tmp_path_factory.mktemp("installed")
    uv, python = BIN / "uv", folder / "venv" / "bin" / "python"
    locked = folder / "requirements.txt"
    run(
        uv,
        "export",
        "--frozen",
        "--no-dev",
        "--no-emit-project",
        "--quiet",
        "--output-file",
        locked,
        cwd=ROOT,
    )
    run(uv, "venv", "--python", sys.executable, folder / "venv", cwd=folder)
    run(uv, "pip", "install", "--python", python, "--require-hashes", "--requirements", locked, cwd=folder)
    run(uv, "pip", "install", "--python", python, "--no-deps", wheel, cwd=folder)
    run(uv, "pip", "check", "--python", python, cwd=folder)
    return folder / "venv" / "bin" / "eventproc"


def test_the_sdist_holds_each_source_once_and_no_link(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = [member for member in archive if member.name.endswith(".py")]
    assert all(member.isfile() for member in members)
    assert sorted(member.name.split("/", 1)[1] for member in members) == packaged_sources()


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"eventproc", f"eventproc-{__version__}.dist-info"}
    assert sorted(name for name in names if name.endswith(".py")) == packaged_sources()
    assert "eventproc/py.typed" in names


def test_the_installed_command_tells_its_version(program: Path, tmp_path: Path) -> None:
    assert __version__ in run(program, "--version", cwd=tmp_path)


def test_the_installed_command_writes_and_reads(program: Path, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(20)]
    source = tmp_path / "lines.txt"
    source.write_text("".join(f"{line}\n" for line in lines))
    for arguments in (
        ("init",),
        ("scope", "create", "s"),
        ("stream", "create", "s/t", "--segments", "2"),
        ("write", "s/t", str(source), "--format", "lines"),
    ):
        run(program, "-C", "store", *arguments, cwd=tmp_path)
    read = run(program, "-C", "store", "read", "s/t", "--output", "jsonl", cwd=tmp_path)
    assert sorted(json.loads(line)["payload"] for line in read.splitlines()) == sorted(lines)


def packaged_sources() -> list[str]:
    """Return the path inside the package of every source file in the repository."""
    names = (name_of(path) for path in files(*SHIPPED, suffix=".py"))
    return sorted(
        f"eventproc/{name}" if name.split("/")[0] in LAYERS_BEHIND_LINKS else name for name in names
    )
