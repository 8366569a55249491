"""`eventproc init`: the directory as an argument, by -C or by EVENTPROC_DIR."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventproc.cli.main import run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVENTPROC_DIR", raising=False)
    return tmp_path


def made(folder: Path) -> list[str]:
    """Return the directories in which a database was created."""
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("eventproc.db"))


def test_init_takes_the_directory_as_an_argument(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "deep/home"]) == 0
    assert made(folder) == ["deep/home"]
    assert capsys.readouterr().err == "deep/home is ready\n"
    assert run(["init", "deep/home"]) == 0
    assert capsys.readouterr().err == "deep/home exists already\n"


@pytest.mark.parametrize(
    "arguments", [["-C", "home", "init"], ["init", "-C", "home"], ["init", "home", "-C", "home"]]
)
def test_init_takes_the_directory_from_the_option(folder: Path, arguments: list[str]) -> None:
    assert run(arguments) == 0
    assert made(folder) == ["home"]


def test_init_takes_the_directory_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPROC_DIR", "home")
    assert run(["init"]) == 0
    assert made(folder) == ["home"]
    assert run(["init", str(folder / "home")]) == 0  # the same one, named in two ways


def test_init_without_a_directory_uses_the_current_one(folder: Path) -> None:
    assert run(["init"]) == 0
    assert made(folder) == ["."]


@pytest.mark.parametrize("by", ["option", "variable"])
def test_init_refuses_two_different_directories(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    if by == "variable":
        monkeypatch.setenv("EVENTPROC_DIR", "other")
    before = ["-C", "other"] if by == "option" else []
    assert run([*before, "init", "home"]) == 2
    said = capsys.readouterr().err
    assert (
        "two different directories are given: home as the argument, and other by -C or EVENTPROC_DIR" in said
    )
    assert made(folder) == []


def test_init_refuses_an_empty_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", ""]) == 2
    assert "the directory is empty" in capsys.readouterr().err
    assert made(folder) == []


def test_init_places_the_chunk_files_in_an_empty_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = folder / "shared"
    for _ in range(2):
        assert run(["init", "home", "--chunks", "shared"]) == 0
    assert (folder / "home" / "chunks").readlink() == shared
    (shared / "1").mkdir()
    for name, said in (("home", "in use"), ("other", "new or empty")):
        target = "elsewhere" if name == "home" else "shared"
        assert run(["init", name, "--chunks", target]) == 2
        assert said in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["home", "shared"]


@pytest.mark.parametrize("chunks", ["home", "home/chunks", "home/a/b", "link/chunks"])
def test_init_refuses_a_folder_of_chunk_files_inside_the_directory(
    folder: Path, capsys: pytest.CaptureFixture[str], chunks: str
) -> None:
    (folder / "link").symlink_to("home")
    assert run(["init", "home", "--chunks", chunks]) == 2
    assert "outside of" in capsys.readouterr().err
    assert not (folder / "home").exists()


def test_directories_cannot_share_a_folder_of_chunk_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", "home", "--chunks", "shared"]) == 0
    (folder / "home" / "chunks").unlink()  # as if init had died before it made the link
    assert run(["init", "other", "--chunks", "shared"]) == 2
    assert "each directory needs one of its own" in capsys.readouterr().err
    assert run(["init", "home", "--chunks", "shared"]) == 0
    assert (folder / "home" / "chunks").readlink() == folder / "shared"
    assert made(folder) == ["home"]
