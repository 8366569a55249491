"""A disk that is full or read-only, and what the doctor finds.

The real disks are small ones of their own, mounted in a private namespace; where the machine does not
allow that, only the simulated ones are tried.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from eventproc.cli import session
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.store.database import Tx
from eventproc.testing import disk_full
from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, PATIENCE_S, environment, started
from tests.cli.test_streams import everything
from tests.cli.test_transactions import begin

ROW = b"x" * 99_999 + b"\n"


def _private_mounts() -> list[str]:
    """Return the command that may mount: as root, or as root of a user namespace; empty when neither may."""
    for command in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        try:
            trial = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
            if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
                return command
        except OSError:
            return []
    return []


MOUNTS: Final = _private_mounts()


def on_a_disk(script: str, place: Path) -> list[str]:
    """Run a shell script that may mount, with `ev` for the command line; return its lines."""
    program = " ".join(f"'{word}'" for word in COMMAND)
    shell = f"set -eu; cd '{place}'; ev() {{ {program} \"$@\"; }}\n{script}"
    done = subprocess.run(
        [*MOUNTS, "bash", "-c", shell],
        capture_output=True,
        env=environment(),
        timeout=PATIENCE_S,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


IN_ONE_PROCESS: Final = """
import contextlib, io, json, os, subprocess
from eventproc.cli.main import run

def shell(script):
    subprocess.run(["bash", "-euc", script], check=True)

def ev(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(arguments))
    return code, out.getvalue(), err.getvalue()

tried = []
"""
"""A program that may mount with `shell`, runs commands with `ev`, and prints what it put into `tried`."""


def on_a_disk_in_one_process(program: str, place: Path) -> Any:
    """Run Python that may mount; return its list `tried`. It is quicker than a process for each command."""
    code = f"{IN_ONE_PROCESS}{textwrap.dedent(program)}\nprint(json.dumps(tried))"
    done = subprocess.run(
        [*MOUNTS, sys.executable, "-c", code],
        capture_output=True,
        cwd=place,
        env=environment(),
        timeout=PATIENCE_S,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if MOUNTS:

    @pytest.mark.subprocess
    def test_full_disk_is_reported_in_one_line_and_keeps_written_rows(tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        (tmp_path / "rows").write_bytes(ROW * 40)
        lines = on_a_disk(
            """
            mount -t tmpfs -o size=2m none disk
            export EVENTPROC_DIR=disk/home
            ev -q init; ev -q scope create s; ev -q stream create s/x
            code=0; ev write s/x rows >acknowledged 2>error || code=$?
            echo $code; wc -l <error; cat error
            tail -n 1 acknowledged || true; ev read s/x | wc -l
            mount -o remount,size=20m disk
            ev write s/x rows | tail -n 1; ev read s/x | wc -l
            """,
            tmp_path,
        )
        assert lines[:2] == ["6", "1"]
        assert "the disk is full" in lines[2]
        kept = int(lines[-3])
        acknowledged = int(lines[3].removeprefix("written ")) if len(lines) == 7 else 0
        assert (acknowledged, lines[-2], int(lines[-1])) == (kept, "written 40", kept + 40)

    @pytest.mark.subprocess
    def test_a_disk_too_small_for_a_directory_is_full_and_left_empty(tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        tried = on_a_disk_in_one_process(
            """
            for size_kb in (20, 40, 100, 200, 300):
                shell(f"mount -t tmpfs -o size={size_kb}k none disk; mkdir disk/home")
                refused = ev("-C", "disk/home/deep/inside", "init")
                left = os.listdir("disk/home")
                shell("mount -o remount,size=20m disk")
                ev("-q", "-C", "disk/home", "init")
                tried.append([refused, left, ev("-C", "disk/home", "scope", "list", "-o", "json")])
            """,
            tmp_path,
        )
        assert len(tried) == 5
        for (code, out, err), left, (_, listed, _) in tried:
            assert (code, out, err.count("\n"), left, listed) == (6, "", 1, [], "[]\n")
            assert "full" in err

    @pytest.mark.subprocess
    def test_a_read_only_disk_is_refused_and_left_alone(tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        tried = on_a_disk_in_one_process(
            """
            shell("mount -t tmpfs none disk")
            ev("-q", "-C", "disk/home", "init")
            ev("-q", "-C", "disk/home", "scope", "create", "s")
            shell("mount -o remount,ro disk; find disk -type f | sort | xargs cksum >before")
            for command in ("stream list", "init", "doctor", "scope create t", "run"):
                tried.append(ev("-C", "disk/home", *command.split()))
            tried.append(ev("-C", "disk/new", "init"))
            shell("find disk -type f | sort | xargs cksum | diff before -")
            """,
            tmp_path,
        )
        assert [(code, err.count("\n")) for code, _, err in tried] == [(6, 1)] * 6
        assert all("is on a read-only file system; choose" in err for _, _, err in tried)


def test_a_database_that_cannot_grow_refuses_what_does_not_fit(
    shop: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def open_full(
        path: str | os.PathLike[str], *, create: bool, host: bool
    ) -> AsyncIterator[Eventproc]:
        async with open_directory(path, create=create, host=host) as ep, disk_full(ep.db):
            yield ep

    before = everything(shop)
    with monkeypatch.context() as patch:
        patch.setattr(session, "open_store", open_full)
        done = shop("write", "shop/orders", stdin=ROW)
    assert (done.code, done.out) == (6, "")
    assert "the disk is full" in done.err
    assert done.err.count("\n") == 1
    assert everything(shop) == before


def test_a_disk_that_is_full_in_the_middle_of_a_file_says_which_rows_are_written(
    shop: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_a_little(tx: Tx) -> None:
        ((pages,),) = tx.execute("PRAGMA page_count").fetchall()
        tx.execute(f"PRAGMA max_page_count = {int(pages) + 1000}").fetchall()

    @asynccontextmanager
    async def open_almost_full(
        path: str | os.PathLike[str], *, create: bool, host: bool
    ) -> AsyncIterator[Eventproc]:
        async with open_directory(path, create=create, host=host) as ep:
            await ep.db.write(leave_a_little)
            yield ep

    shop("stream", "create", "shop/x").ok()
    with monkeypatch.context() as patch:
        patch.setattr(session, "open_store", open_almost_full)
        done = shop("write", "shop/x", stdin=ROW * 300)
    assert done.code == 6
    written = int(done.out.split()[-1])
    assert 0 < written < 300
    assert (
        f"the disk is full; nothing was written. Free some space and try again; wrote {written} row"
        in done.err
    )
    assert "continue with the rows after them" in done.err
    assert done.err.count("\n") == 1
    assert shop("stream", "describe", "shop/x", "-o", "json").json()["events"] == written


def test_the_doctor_finds_a_healthy_directory_healthy(shop: Cli) -> None:
    found = shop("doctor", "-o", "json").json()
    assert (found["healthy"], found["integrity_check"], found["journal_mode"]) == (True, "ok", "wal")
    assert found["schema"] == found["schema_known"]
    assert found["problems"] == []
    assert shop("doctor").ok().endswith("healthy\n")


@pytest.mark.subprocess
def test_doctor_lists_live_and_dead_instances(shop: Cli) -> None:
    with started("-C", shop.directory, "run") as server:
        assert server.stderr is not None
        server.stderr.readline()
        server.kill()
        server.wait()
        with started("-C", shop.directory, "run") as other:
            assert other.stderr is not None
            other.stderr.readline()
            (shop.directory / "instances" / "0123.lock").write_text("4711\n")
            # On a loaded machine the new host may not have beaten yet, and the doctor says so by its exit code.
            found = json.loads(shop("doctor", "-o", "json").out)
            states = {row["pid"]: row["state"] for row in found["instances"]}
            assert states == {4711: "dead", other.pid: "alive"}
            assert f"{other.pid}" in shop("doctor").out
            other.terminate()


@pytest.mark.subprocess
def test_the_doctor_names_the_process_that_is_stopped_inside_the_write_lock(shop: Cli) -> None:
    code = (
        "import os, sys; from pathlib import Path; from eventproc.base.clock import SystemClock;"
        "from eventproc.store.database.locks import WriteLock;"
        "clock = SystemClock(); lock = WriteLock(Path(sys.argv[1]), clock);"
        "clock.monotonic_ms = lambda: SystemClock().monotonic_ms() - 5000;"
        "lock.acquire(); print('held', flush=True); sys.stdin.read()"
    )
    command = [COMMAND[0], "-c", code, str(shop.directory / "write.lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        done = shop("doctor")
        assert done.code == 1
        assert f"process {holder.pid} has held write.lock for 5." in done.out
        assert done.out.endswith("not healthy\n")
        holder.kill()


def test_the_doctor_finds_bytes_that_are_gone(shop: Cli) -> None:
    shop("write", "shop/orders", stdin=ROW).ok()
    broken = sqlite3.connect(shop.directory / "eventproc.db")
    broken.execute("DELETE FROM blob")
    broken.commit()
    broken.close()
    done = shop("doctor", "-o", "json")
    assert done.code == 1
    assert "1 extents refer to bytes that were not found" in done.out


def test_doctor_accepts_the_bytes_of_open_transactions(shop: Cli) -> None:
    begin(shop, ROW)
    found = shop("doctor", "-o", "json").json()
    assert (found["healthy"], found["problems"]) == (True, [])
    change_tables(shop, "DELETE FROM staged")
    assert "1 blobs belong to no events" in shop("doctor").out


def test_doctor_names_a_failing_commit_and_its_remedy(shop: Cli) -> None:
    failing, behind = begin(shop, b"1"), begin(shop, b"2")
    for txn_id in (failing, behind):
        shop("txn", "commit", "shop/orders", txn_id, "--no-wait").ok()
    assert shop("doctor", "-o", "json").json()["commits_failing"] == 0
    change_tables(
        shop, f"UPDATE txn SET reason = 'LookupError(7)' WHERE id = '{failing}'"
    )  # as the host notes it
    done = shop("doctor", "-o", "json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["commits_failing"] == 1
    (problem,) = found["problems"]
    assert "its commit fails (LookupError(7))" in problem
    assert f"`eventproc txn abort --force shop/orders {failing}`" in problem
    shop("txn", "abort", "--force", "shop/orders", failing, "--yes").ok()
    assert shop("doctor", "-o", "json").json()["healthy"]


def change_tables(cli: Cli, statement: str) -> None:
    """Do to the database what no program of ours does."""
    broken = sqlite3.connect(cli.directory / "eventproc.db")
    broken.execute(statement)
    broken.commit()
    broken.close()


@pytest.mark.parametrize(
    "statement, said",
    [
        ("DROP TABLE joined", "the table joined is missing"),
        ("DROP TABLE record", "the table record is missing"),
        ("DROP TABLE extent", "the table extent is missing"),
        ("DROP INDEX joined_request", "the index joined_request is missing"),
        ("ALTER TABLE owner ADD COLUMN more TEXT", "the table owner has a column too many, more TEXT"),
        ("ALTER TABLE reap DROP COLUMN deleted", "the table reap lacks the column deleted INTEGER"),
        ("CREATE TABLE stranger (x)", "the table stranger is not of this version"),
    ],
)
def test_the_doctor_names_tables_that_are_not_of_this_version(shop: Cli, statement: str, said: str) -> None:
    change_tables(shop, statement)
    done = shop("doctor", "-o", "json")
    assert (done.code, done.err) == (6, "")
    found = json.loads(done.out)
    assert (found["healthy"], found["usable"]) == (False, False)
    assert said in found["problems"][0]


def test_the_doctor_lets_the_tables_of_handlers_be(shop: Cli) -> None:
    change_tables(shop, "CREATE TABLE app_totals (customer TEXT PRIMARY KEY, total INTEGER)")
    assert shop("doctor", "-o", "json").json()["healthy"]


def test_a_command_that_misses_a_table_sends_to_the_doctor(shop: Cli) -> None:
    change_tables(shop, "DROP TABLE record")
    assert "no such table: record; `eventproc doctor`" in shop("stream", "list").refused(6)


def test_the_doctor_finds_a_damaged_page(shop: Cli) -> None:
    for _ in range(10):
        shop("write", "shop/orders", stdin=ROW).ok()
    database = sqlite3.connect(shop.directory / "eventproc.db")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'extent'").fetchone()
    (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    with open(shop.directory / "eventproc.db", "r+b") as file:
        file.seek((root - 1) * page_bytes)
        file.write(b"\xff" * 100)
    done = shop("doctor", "-o", "json")
    assert done.code == 1
    assert '"healthy": false' in done.out
    assert "Traceback" not in done.err
