"""The contract of file stores: both forms keep the same promises, and an object store also when requests fail."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from eventproc.store.file_store import FileStore, LocalFiles, object_files, open_file_store
from eventproc.store.file_store.object_files import ObjectFiles
from eventproc.store.model.errors import InvalidArgument, Unreachable
from tests.support.child_process import run
from tests.support.s3_server import S3Server

PATH = "7/0.0/0.arrow"


@pytest.fixture(params=["folder", pytest.param("objects", marks=pytest.mark.subprocess)])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    if request.param == "folder":
        return LocalFiles(tmp_path / "files")
    found: str = request.getfixturevalue("url")
    return open_file_store(found)


def put(files: FileStore, path: str, *parts: bytes) -> None:
    new = files.create(path)
    for each in parts:
        new.write(each)
    new.finish()


def test_file_exists_complete_or_not_at_all(files: FileStore) -> None:
    new = files.create(PATH)
    new.write(b"first, ")
    assert files.size(PATH) is None
    new.write(memoryview(b"second"))
    new.finish()
    files.sync(PATH)
    assert (files.size(PATH), b"".join(files.blocks(PATH))) == (13, b"first, second")
    assert list(files.paths()) == [PATH]


def test_abandoned_file_leaves_nothing(files: FileStore) -> None:
    new = files.create(PATH)
    new.write(b"x")
    new.abandon()
    assert list(files.paths()) == []


def test_file_that_cannot_get_its_name_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    files = LocalFiles(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="full"):
            put(files, PATH, b"x")
    assert list(files.paths()) == []


def test_name_is_not_given_twice(files: FileStore) -> None:
    put(files, PATH, b"first")
    with pytest.raises(FileExistsError):
        put(files, PATH, b"second")
    assert files.read(PATH, 0, 10) == b"first"
    assert list(files.paths()) == [PATH]


def test_ranges_are_read_up_to_the_end(files: FileStore) -> None:
    put(files, PATH, bytes(range(100)))
    assert files.read(PATH, 10, 3) == bytes([10, 11, 12])
    assert files.read(PATH, 98, 10) == bytes([98, 99])
    assert files.read(PATH, 100, 10) == files.read(PATH, 500, 1) == files.read(PATH, 5, 0) == b""


def test_missing_file_has_no_size_and_no_content(files: FileStore) -> None:
    put(files, PATH, b"x")
    files.delete(PATH)
    files.delete(PATH)
    assert files.size(PATH) is None
    with pytest.raises(FileNotFoundError):
        files.read(PATH, 0, 1)
    with pytest.raises(FileNotFoundError):
        files.open_arrow(PATH)


def test_paths_come_in_order_and_only_from_the_place(files: FileStore) -> None:
    paths = [f"{stream}/0.0/{name}.arrow" for stream in (1, 2, 10) for name in "cab"]
    for each in paths:
        put(files, each, b"x")
    assert list(files.paths()) == sorted(paths)
    assert list(files.paths("1/0.0")) == list(files.paths("1")) == [f"1/0.0/{name}.arrow" for name in "abc"]


def test_files_are_made_beside_the_deletion_of_the_last_one_of_their_folder(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)

    def come_and_go(name: str) -> None:
        for number in range(300):
            put(files, f"t/0/{name}-{number}", b"x")
            files.delete(f"t/0/{name}-{number}")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(come_and_go, name) for name in "abcd"]:
            done.result()
    assert list(files.paths()) == []


def test_arrow_files_are_read_by_record_batch(files: FileStore) -> None:
    batches = [pa.record_batch({"a": pa.array(range(start, start + 50_000))}) for start in (0, 50_000)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for each in batches:
            writer.write_batch(each)
    put(files, PATH, sink.getvalue().to_pybytes())
    with files.open_arrow(PATH) as opened:
        assert pa.ipc.open_file(opened).get_batch(1).equals(batches[1])


@pytest.mark.subprocess
@pytest.mark.parametrize("fault", ["503", "cut", "lost"])
def test_failed_requests_are_repeated(s3: S3Server, url: str, fault: str) -> None:
    files = open_file_store(url)
    s3.faults += [fault, fault]
    put(files, PATH, b"x" * 100_000)
    s3.faults += [fault, fault]
    assert files.read(PATH, 10, 50_000) == b"x" * 50_000
    s3.faults += [fault, fault]
    assert files.size(PATH) == 100_000
    # An answer to HEAD has nothing to cut, and sweeps repeat lists and deletions.
    faults = [] if fault == "cut" else [fault, fault]
    s3.faults[:] = faults
    assert list(files.paths()) == [PATH]
    s3.faults[:] = faults
    files.delete(PATH)
    assert files.size(PATH) is None


@pytest.mark.subprocess
def test_requests_that_stall_are_repeated(s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(object_files._CLIENT, "read_timeout", timedelta(seconds=0.3))
    files = ObjectFiles(url)
    put(files, PATH, b"x" * 100)
    s3.faults += ["stall"]
    assert files.size(PATH) == 100
    s3.faults += ["stall"]
    assert files.read(PATH, 0, 1000) == b"x" * 100


@pytest.mark.subprocess
def test_storage_that_stays_away_is_a_clear_error(
    s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(object_files._RETRY, "max_retries", 2)
    files = ObjectFiles(url)
    s3.faults += ["503"] * 9
    with pytest.raises(Unreachable, match=r"it answers 503 Service Unavailable \(SlowDown\)") as met:
        files.read(PATH, 0, 1)
    assert met.value.place == url and "hidden-secret" not in f"{met.value!r}{met.value}"
    s3.faults.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="no connection; check the network"):
        ObjectFiles(url).read(PATH, 0, 1)


@pytest.mark.subprocess
def test_bucket_that_does_not_exist_is_named(s3: S3Server) -> None:
    files = open_file_store("s3://no-such-bucket/p")
    for fails in (lambda: list(files.paths()), lambda: put(files, PATH, b"x")):
        with pytest.raises(Unreachable, match=r"s3://no-such-bucket/p .*does not exist; create it"):
            fails()


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "s3://", "s3://user:word@bucket/x", "az://container/x?sig=word", "s3://bucket/x#y"],
)
def test_url_that_is_no_place_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidArgument, match="it must be s3://BUCKET/PREFIX") as met:
        open_file_store(url)
    assert "word" not in str(met.value)


_FORKS = """
import os, sys
from eventproc.errors import NotSupported
from eventproc.store.file_store import open_file_store

files = open_file_store(sys.argv[1])
assert files.size("a/b/c") is None
if os.fork():
    os.wait()
else:
    try:
        files.size("a/b/c")
    except NotSupported as why:
        print(why, flush=True)
    os._exit(0)
"""


@pytest.mark.subprocess
def test_child_that_is_forked_after_a_request_is_refused(url: str) -> None:
    assert "forked after its parent used object storage" in run(_FORKS, url)
