"""Which directories are refused, and that the check changes nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

import pytest

from eventproc.base.kernel import Mounts, file_system_of, parse_mount, parse_mountinfo
from eventproc.store.database.files import check_directory, remove_created_on_error
from eventproc.store.model.errors import StoreMissing, StoreUnusable
from tests.support.child_process import run

MAC: Final = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
//guest@nas/work on /Volumes/work on nas (smbfs, nodev, nosuid, mounted by ana)
"""


def mounts(kind: str, point: Path | str) -> Mounts:
    escaped = str(point).replace("\\", "\\134").replace(" ", "\\040")
    return parse_mountinfo(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        f"40 22 0:40 / {escaped} rw,relatime shared:2 master:1 - {kind} source rw\n"
    )


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs", "fuse", "fuseblk"]
)
def test_network_and_virtual_file_systems_are_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StoreUnusable) as caught:
        check_directory(tmp_path / "new", create=True, mounts=mounts(kind, tmp_path))
    assert str(caught.value) == (
        f"{tmp_path / 'new'}: is on a {kind} file system, "
        "where several processes cannot share a database; use a local disk"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "f2fs"])
def test_local_file_systems_are_fine(tmp_path: Path, kind: str) -> None:
    assert check_directory(tmp_path, create=True, mounts=mounts(kind, tmp_path))


def test_a_link_is_followed_to_the_file_system_behind_it(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "share")
    with pytest.raises(StoreUnusable, match="nfs4"):
        check_directory(tmp_path / "link", create=True, mounts=mounts("nfs4", tmp_path / "share"))


def test_the_longest_and_last_mount_point_holds_a_path() -> None:
    places = {"tmpfs": "/a", "xfs": "/a/b", "nfs": "/a/b", "cifs": "/a/b c"}
    table = [each for kind, point in places.items() for each in mounts(kind, point)]
    assert file_system_of(Path("/a/b/c"), table) == "nfs"
    assert file_system_of(Path("/a/bb"), table) == "tmpfs"
    assert file_system_of(Path("/a/b c/d"), table) == "cifs"
    assert file_system_of(Path("/"), table) == "ext4"
    assert file_system_of(Path("/a"), parse_mountinfo("nonsense\n")) == ""


def test_the_mounts_that_macos_prints_are_read() -> None:
    assert file_system_of(Path("/Users/ana/work"), parse_mount(MAC)) == "apfs"
    assert file_system_of(Path("/Volumes/work on nas/shop"), parse_mount(MAC)) == "smbfs"
    assert file_system_of(Path("/Users"), parse_mount("nonsense\n")) == ""


def test_a_missing_directory_is_created_only_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "inside"
    with pytest.raises(StoreMissing):
        check_directory(path, create=False)
    assert not path.parent.exists()
    assert check_directory(path, create=True)
    assert path.is_dir()


def test_a_failed_creation_of_a_directory_removes_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def no_room_for_the_last(path: Path, mode: int = 0o777) -> None:
        if path.name == "last":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", no_room_for_the_last)
    path = tmp_path / "first" / "second" / "last"
    with pytest.raises(StoreUnusable, match="No space left"), remove_created_on_error(path):
        check_directory(path, create=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    for path in (tmp_path / "first" / "second", tmp_path):
        with pytest.raises(StoreUnusable, match="not writable"), remove_created_on_error(path):
            check_directory(path, create=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("used", [False, True])
def test_directories_created_by_a_failed_block_stay_if_they_are_in_use(tmp_path: Path, used: bool) -> None:
    path = tmp_path / "deep" / "inside"

    @remove_created_on_error(path)
    def fail() -> None:
        path.mkdir(parents=True)
        if used:
            (path.parent / "thesis.tex").touch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (path.exists(), path.parent.exists()) == (False, used)
    assert tmp_path.exists()


def test_an_empty_directory_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match="no eventproc directory"):
        check_directory(tmp_path, create=False)
    assert check_directory(tmp_path, create=True)


def test_a_directory_with_a_database_is_not_fresh(tmp_path: Path) -> None:
    (tmp_path / "eventproc.db").write_bytes(b"SQLite format 3\0")
    (tmp_path / "notes.txt").touch()
    assert not check_directory(tmp_path, create=False)
    assert not check_directory(tmp_path, create=True)


@pytest.mark.parametrize(
    "left", [["write.lock", "format.lock"], ["eventproc.db"], ["eventproc.db", "eventproc.db-wal"]]
)
def test_what_an_init_that_died_left_is_fresh(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).touch()
    (tmp_path / "instances").mkdir()
    assert check_directory(tmp_path, create=True)
    with pytest.raises(StoreMissing):
        check_directory(tmp_path, create=False)


def test_the_root_of_a_fresh_disk_is_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert check_directory(tmp_path, create=True)


def test_a_directory_in_place_of_the_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "eventproc.db").mkdir()
    with pytest.raises(StoreUnusable, match=r"eventproc\.db in it is not a file"):
        check_directory(tmp_path, create=True)


@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("locked", "reason"),
    [
        ("directory", "is not writable for this user"),
        ("database", "eventproc.db in it is not writable for this user"),
    ],
)
def test_what_cannot_be_written_is_refused(locked: str, reason: str) -> None:
    # In /tmp and in its own process: root may write everywhere, so the process changes its user first.
    printed = run(
        """
        import os, sys, tempfile
        from pathlib import Path
        from eventproc.store.database.files import check_directory
        from eventproc.store.model.errors import StoreUnusable
        with tempfile.TemporaryDirectory() as name:
            path = Path(name)
            database = path / "eventproc.db"
            database.write_bytes(b"SQLite format 3")
            database.chmod(0o444)
            path.chmod(0o555 if sys.argv[1] == "directory" else 0o777)
            if is_root := os.geteuid() == 0:
                os.setreuid(65534, -1)  # `os.access` asks about the real user
            try:
                check_directory(path, create=True)
            except StoreUnusable as why:
                print(why.reason)
            if is_root:
                os.setreuid(0, -1)
            path.chmod(0o777)
        """,
        locked,
    )
    assert printed == reason


def test_a_read_only_file_system_has_its_own_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = os.statvfs(tmp_path)
    monkeypatch.setattr(
        os, "statvfs", lambda _: os.statvfs_result([*flags[:8], flags.f_flag | os.ST_RDONLY, *flags[9:]])
    )
    said = "is on a read-only file system; choose a directory that can be written"
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StoreUnusable, match=f": {said}"):
        check_directory(tmp_path, create=True)
    (tmp_path / "eventproc.db").touch()
    monkeypatch.setattr(os, "access", lambda path, _: path == tmp_path)
    with pytest.raises(StoreUnusable, match=rf": eventproc\.db in it {said}"):
        check_directory(tmp_path, create=True)


def test_checking_a_database_opens_no_descriptor_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eventproc.db").write_bytes(b"SQLite format 3\0")

    def refuse(*_: object, **__: object) -> int:
        raise AssertionError("closing a descriptor of the database drops the locks of this process")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    check_directory(tmp_path, create=False, mounts=())
