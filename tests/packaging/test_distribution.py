"""What people install: the sdist, the wheel built from it, and that wheel alone in an empty environment."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from eventproc import __version__
from tests.packaging.conftest import make_environment, run
from tests.tidy.source import SHIPPED, files, name_of

LAYERS_BEHIND_LINKS = ("cli", "store", "workflows")


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and the locked versions of what it needs, nothing else, and return its command."""
    return make_environment(tmp_path_factory.mktemp("installed"), wheel) / "eventproc"


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
