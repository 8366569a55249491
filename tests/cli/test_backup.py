"""`backup`, `restore` and `verify` at the shell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NoReturn

import pytest

from eventproc.store.database import standalone
from eventproc.store.database.files import disk_error
from tests.backup.support import files_of, flip_byte, listed
from tests.cli.conftest import Cli
from tests.cli.support import PATIENCE_S, started
from tests.cli.test_streams import everything


def restored(cli: Cli, backup: Path, to: Path) -> Path:
    before, cli.directory = cli.directory, to
    try:
        cli("restore", backup).ok()
    finally:
        cli.directory = before
    return to


def test_backup_verify_and_restore(shop: Cli, tmp_path: Path) -> None:
    before = everything(shop)
    done = shop("backup", tmp_path / "monday")
    assert (done.code, done.out) == (0, "")
    assert re.search(r"monday is a complete backup: [0-9.]+ [KM]iB\n$", done.err)
    found = shop("verify", tmp_path / "monday", "-o", "json").json()
    assert (found["kind"], found["healthy"], found["problems"]) == ("backup", True, [])
    shop.directory = restored(shop, tmp_path / "monday", tmp_path / "new")
    assert everything(shop) == before
    found = shop("verify", "-o", "json").json()
    assert (found["kind"], found["healthy"]) == ("directory", True)
    assert shop("doctor").ok().endswith("healthy\n")


def test_backup_and_restore_print_objects_for_programs(shop: Cli, tmp_path: Path) -> None:
    plan = shop("backup", tmp_path / "monday", "--dry-run", "-o", "json").json()
    assert (plan["dry_run"], plan["would"], plan["target"]) == (True, "backup", str(tmp_path / "monday"))
    assert plan["free_bytes"] > plan["bytes"] > 0
    assert listed(tmp_path) == ["home"]
    made = shop("backup", tmp_path / "monday", "-o", "json").json()
    assert (made["done"], made["target"], made["files"]) == ("backup", str(tmp_path / "monday"), 0)
    shop.directory = tmp_path / "new"
    dry = shop("restore", tmp_path / "monday", "--dry-run", "-o", "json").json()
    assert (dry["dry_run"], dry["bytes"]) == (True, made["bytes"])
    assert not shop.directory.exists()
    done = shop("restore", tmp_path / "monday", "-o", "json").json()
    assert (done["done"], done["target"], done["created_ms"]) == (
        "restore",
        str(tmp_path / "new"),
        made["created_ms"],
    )


def test_restore_prefers_its_argument_to_the_option_and_the_variable(shop: Cli, tmp_path: Path) -> None:
    shop("backup", tmp_path / "monday").ok()  # `shop` passes -C
    made = shop("restore", tmp_path / "monday", tmp_path / "new", "-o", "json").json()
    assert made["target"] == str(tmp_path / "new")
    assert listed(tmp_path) == ["home", "monday", "new"]


@pytest.mark.subprocess
def test_a_directory_that_is_served_is_backed_up(shop: Cli, tmp_path: Path) -> None:
    with started("-C", shop.directory, "run") as server:
        assert server.stderr is not None
        server.stderr.readline()
        shop("backup", tmp_path / "monday").ok()
        server.terminate()
        server.wait(PATIENCE_S)
    shop("verify", tmp_path / "monday").ok()


def test_refusals_name_the_object_and_the_remedy(shop: Cli, tmp_path: Path) -> None:
    shop("backup", tmp_path / "monday").ok()
    assert "exists already; name a new folder" in shop("backup", tmp_path / "monday").refused(4)
    assert "create it first" in shop("backup", tmp_path / "no" / "monday").refused(6)
    assert "the directory itself" in shop("backup", shop.directory / "monday").refused(6)
    assert "it is not empty" in shop("restore", tmp_path / "monday").refused(4)
    assert "it has no backup.json" in shop("restore", shop.directory).refused(6)
    assert "the directory is empty" in shop("backup", "").refused(2)
    shop.directory = tmp_path / "monday"
    assert "is a backup; make a directory of it with `eventproc restore`" in shop("stream", "list").refused(6)


def test_restoring_on_a_failing_device_is_an_error_of_the_device(
    shop: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> NoReturn:
        raise disk_error("fail", "injected")

    shop("backup", tmp_path / "monday").ok()
    monkeypatch.setattr(standalone, "connect", fail)
    said = shop("restore", tmp_path / "monday", tmp_path / "new").refused(6)
    assert "its disk is full, or fails (disk I/O error (injected))" in said
    assert "bug" not in said
    assert listed(tmp_path) == ["home", "monday"]


def test_verify_finds_a_damaged_byte_of_a_backup_anywhere(shop: Cli, tmp_path: Path) -> None:
    shop("backup", tmp_path / "monday").ok()
    database = tmp_path / "monday" / "eventproc.db"
    size = database.stat().st_size
    for at in range(50, size, size // 10):
        flip_byte(database, at)
        done = shop("verify", tmp_path / "monday", "-o", "json")
        flip_byte(database, at)
        assert (done.code, done.err) == (1, ""), at
        found = json.loads(done.out)
        assert not found["healthy"]
        assert f"{database} is not what was written; use another backup" in found["problems"]
    shop("verify", tmp_path / "monday").ok()


def test_verify_of_a_backup_changes_nothing(shop: Cli, tmp_path: Path) -> None:
    shop("backup", tmp_path / "monday").ok()
    before = {file: file.read_bytes() for file in files_of(tmp_path / "monday")}
    shop("verify", tmp_path / "monday").ok()
    assert {file: file.read_bytes() for file in files_of(tmp_path / "monday")} == before


def test_a_backup_in_the_background_is_a_task(shop: Cli, tmp_path: Path) -> None:
    made = shop("backup", tmp_path / "monday", "--background", "-o", "json").json()
    ended = shop("task", "wait", made["task_id"], "-o", "json").json()
    assert (ended["kind"], ended["status"], ended["result"]["path"]) == (
        "backup",
        "done",
        str(tmp_path / "monday"),
    )
    assert [each["id"] for each in shop("task", "list", "-o", "jsonl").rows()] == [made["task_id"]]
    assert shop("task", "cancel", made["task_id"], "-o", "json").json()["status"] == "done"
    assert shop("verify", tmp_path / "monday", "-o", "json").json()["healthy"]
    assert "buckets" in shop("cluster", "describe", "-o", "json").json()


def test_a_check_in_the_background_is_a_task(shop: Cli, tmp_path: Path) -> None:
    made = shop("verify", "--background", "-o", "json").json()
    ended = shop("task", "wait", made["task_id"], "-o", "json").json()
    assert (ended["kind"], ended["status"], ended["done"]) == ("verify", "done", ended["total"])
    shop("backup", tmp_path / "monday").ok()
    assert "--background checks directories" in shop("verify", tmp_path / "monday", "--background").refused(2)
