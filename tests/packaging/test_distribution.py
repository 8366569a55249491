"""What people install: the sdist, the wheel built from it, and that wheel in an empty environment, by pip."""

from __future__ import annotations

import email
import json
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from eventproc import __version__
from tests.docs.page import README, check_readme, run_page, turns
from tests.packaging.conftest import build, make_environment, run
from tests.tidy.source import ROOT, SHIPPED, files, name_of

LAYERS_BEHIND_LINKS = ("cli", "store", "workflows")

WHEEL_BYTES_MAX: Final = 3_000_000

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what it needs, nothing else, and return its command."""
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
    assert [name for name in names if re.search(r"(^|/)(tests?/|test_|conftest)", name)] == []
    assert wheel.stat().st_size < WHEEL_BYTES_MAX


def test_a_second_build_has_the_same_bytes(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert {path.name for path in again.iterdir()} == {sdist.name, wheel.name}
    assert (again / sdist.name).read_bytes() == sdist.read_bytes()
    assert (again / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_wheel_says_for_which_pythons_it_is_and_the_changelog_what_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_bytes(archive.read(f"eventproc-{__version__}.dist-info/METADATA"))
    named = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", [])]
    assert [name for name in named if re.fullmatch(r"3\.\d+", name)] == list(PYTHONS)
    assert metadata["Requires-Python"] == f">={PYTHONS[0]}"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0] == __version__


def test_the_installed_command_tells_its_version(program: Path, tmp_path: Path) -> None:
    assert __version__ in run(program, "--version", cwd=tmp_path)


def test_the_tours_of_the_readme_run(program: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    for _ in range(turns(pytestconfig)):
        check_readme(run_page(README, tmp_path, program.parent))


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
