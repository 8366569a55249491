"""Wrong input at the command line's door: one clear line, the right exit code, and nothing changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eventproc.base.clock import SystemClock
from eventproc.store.database.locks import WriteLock
from tests.cli.conftest import Cli, Templates
from tests.cli.support import shell
from tests.cli.test_streams import everything


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, templates: Templates) -> Path:
    """One directory for all that is refused: what one command changes, all that follow see."""
    return shutil.copytree(templates.shop, tmp_path_factory.mktemp("shared") / "home")


@pytest.fixture(scope="module")
def content(shared: Path) -> list[str]:
    """What the directory holds before the first command."""
    return rows_of(shared)


def rows_of(directory: Path) -> list[str]:
    """Return every row of the database but those that every command writes, also one that only reads."""
    with closing(sqlite3.connect(f"file:{directory / 'eventproc.db'}?mode=ro", uri=True)) as database:
        rows = [line for line in database.iterdump() if line.startswith("INSERT")]
    ours = (
        "INSERT INTO \"owner\" VALUES('controller'",
        'INSERT INTO "owner" VALUES(\'bucket/',
        "INSERT INTO \"record\" VALUES('workers'",
        "INSERT INTO \"meta\" VALUES('log'",
    )
    return [row for row in rows if not row.startswith(ours)]


@pytest.mark.parametrize(
    "arguments, code, why",
    [
        ("stream describe none/orders", 3, "no scope 'none'"),
        ("stream describe shop/none", 3, "no stream 'shop/none'"),
        ("stream create none/orders", 3, "no scope 'none'"),
        ("stream seal shop/none --yes", 3, "no stream 'shop/none'"),
        ("stream update shop/none --segments 2", 3, "no stream"),
        ("read shop/none", 3, "no stream"),
        ("write shop/none", 3, "no stream"),
        ("scope delete none --yes", 3, "no scope"),
        ("scope delete none --recursive --yes", 3, "no scope"),
        ("stream split shop/orders 7.0", 3, "7.0"),
        ("scope create b@d", 2, "only letters"),
        ("scope create _mine", 2, "the system's own"),
        ("scope delete _system --recursive --yes", 2, "the system's own"),
        ("stream create shop/b@d", 2, "only letters"),
        ("stream create orders", 2, "scope/stream"),
        ("stream create shop/orders/x", 2, "scope/stream"),
        ("stream list b@d", 2, "only letters"),
        ("stream create _system/mine", 2, "the system's own"),
        ("stream update _system/request --segments 2", 2, "the system's own"),
        ("stream seal _system/request --yes", 2, "the system's own"),
        ("stream delete _system/request --yes", 2, "the system's own"),
        ("stream create shop/x --segments 0", 2, "1 to 1024"),
        ("stream create shop/x --segments 1025", 2, "1 to 1024"),
        ("stream create shop/x --segments two", 2, "not a valid integer"),
        ("stream create shop/orders --segments 3", 4, "stream update shop/orders --segments 3"),
        ("stream split shop/orders 0.0 --into 1", 2, "2 to 1024"),
        ("stream split shop/orders first", 2, "number.epoch"),
        ("stream merge shop/orders 0.0", 2, "two or more"),
        ("stream merge shop/orders 0.0 7.3", 3, "7.3"),
        ("stream scale shop/orders --seal 0.0 --ranges 0.5-0", 2, "0 <= low < high <= 1"),
        ("stream scale shop/orders --seal 0.0 --ranges 0-0.4", 2, "must cover exactly"),
        ("stream scale shop/orders --seal 0.0 --ranges half", 2, "0.25-0.5"),
        ("stream scale shop/orders --seal 9.0 --ranges 0-0.5", 4, "not active"),
        ("stream scale shop/orders --seal 0.1 --ranges 0-0.5", 4, "not active"),
        ("stream scale shop/orders --seal 0.0,1.0 --ranges 0-1", 4, "would remain"),
        ("stream truncate shop/orders --cut nonsense= --yes", 2, "must look like"),
        ("stream truncate shop/orders --cut yesterday --yes", 2, "head, tail, a cut"),
        ("stream truncate shop/orders --cut 4:0.0=5,1.0=0 --yes", 4, "inside an event"),
        ("stream truncate shop/orders --cut 4:0.0=9999,1.0=0 --yes", 4, "beyond its end"),
        ("stream truncate shop/orders --cut 4:0.0=0 --yes", 4, "covers 0.5-1.0"),
        ("stream truncate shop/orders --cut 4:0.0=0,7.0=0 --yes", 4, "not a segment of this stream"),
        ("stream truncate shop/orders --cut 99:0.0=0,1.0=0 --yes", 4, "`eventproc stream cut shop/orders`"),
        ("read shop/orders --from 4:0.0=5,1.0=0", 4, "inside an event"),
        ("read shop/orders --from 4:0.0=9999,1.0=0", 4, "beyond its end"),
        (
            "read shop/orders --from 99:0.0=0,1.0=0",
            4,
            "belongs to stream 99, which is another one or a deleted",
        ),
        ("read shop/orders --from 4:0.0", 2, "head, tail, a cut"),
        ("read shop/orders --max 0", 2, "0 is not in the range"),
        ("read shop/orders --segment first", 2, "number.epoch"),
        ("read shop/orders --from 0 --segment 0.0", 2, "'head' or 'tail'"),
        ("read shop/orders --follow --output json", 2, "jsonl"),
        ("read", 2, "name what to read"),
        ("read shop/orders --reader r1", 2, "name what to read"),
        ("read shop/orders --group shop/none", 2, "the group determines the streams"),
        ("read --group shop/none --from head", 2, "the group determines the streams"),
        ("read --group shop/none --follow -o json", 2, "jsonl"),
        ("read --group shop/none", 3, "no group"),
        ("read --group none", 2, "scope/"),
        ("group describe shop/none", 3, "no group"),
        ("group lag shop/none", 3, "no group"),
        ("group checkpoint shop/none", 3, "no group"),
        ("group checkpoints shop/none", 3, "no group"),
        ("group offline shop/none r1", 3, "no group"),
        ("group delete shop/none --dry-run", 3, "no group"),
        ("group reset shop/none --to head", 3, "no group"),
        ("group reset shop/none", 2, "the new position is missing"),
        ("group reset shop/none --to head --checkpoint c", 2, "the new position is missing"),
        ("group create b@d --stream shop/orders", 2, "only letters"),
        ("group create shop/g", 2, "--stream"),
        ("group create g --stream shop/orders --from yesterday", 2, "head, tail, a cut"),
        ("group create g --stream shop/orders --to tail", 2, "a cut"),
        ("group create g --stream shop/orders --patience 0.5", 2, "0.5 is not in the range 1<=x"),
        ("group create g --stream shop/orders --checkpoint-every 0", 2, "not in the range"),
        ("share create g --stream shop/orders --lock 0", 2, "0.1<=x"),
        ("stream create shop/x --events-per-second 5 --window 0", 2, "1<=x<=86400"),
        ("stream update shop/orders --id-window 0", 2, "0.001<=x<=31622400"),
        ("stream seal shop/orders --timeout 5s", 2, "'5s' is not a valid number."),
        ("request list --limit many", 2, "'many' is not a valid integer."),
        ("group create g --stream shop/orders --on-truncated never", 2, "never"),
        ("group create g --stream shop/orders --from 4:0.0=5,1.0=0", 4, "inside an event"),
        (
            "group create g --stream shop/orders --from 99:0.0=0,1.0=0",
            4,
            "`eventproc stream cut shop/orders`",
        ),
        ("group create g --stream shop/orders --to 99:0.0=0,1.0=0", 4, "`eventproc stream cut shop/orders`"),
        ("group list b@d", 2, "only letters"),
        ("stream delete shop/orders --yes", 4, "is not sealed"),
        ("scope delete shop --yes", 4, "has 1 stream and 0 groups; delete them first, or all"),
        ("scope delete shop --yes", 4, "`eventproc scope delete shop --recursive`"),
        ("scope delete shop --dry-run", 4, "`eventproc scope delete shop --recursive`"),
        ("run ../shop:app", 2, "change to the module's directory and use shop:app"),
        ("run .shop:app", 2, "change to the module's directory and use shop:app"),
        ("run shop.py:app", 2, "change to the module's directory and use shop:app"),
        ("serve --rest x", 2, "'x' is no HOST:PORT"),
        (
            "schedule create x --cron * --stream shop/orders",
            2,
            "schedule 'x': it must look like scope/schedule",
        ),
        ("delayed list --stream x", 2, "stream name 'x': it must look like scope/stream"),
        ("job list shop/none", 3, "no share group 'shop/none'"),
        ("scope delete shop --no-wait", 2, "needs --recursive"),
        ("request list --limit 0", 2, "x>=1"),
        ("schedule next shop/x --limit 1001", 2, "'--limit': 1001 is not in the range"),
        ("request show nonsense", 3, "no request"),
        ("stream seal shop/orders --timeout -1", 2, "--timeout"),
        ("stream create shop/x --timeout nan", 2, "nan is not a number"),
        ("stream create shop/x --timeout inf", 2, "--timeout"),
        ("stream create shop/x --timeout 1e308", 2, "<=1000000000"),
        ("stream offload shop/orders --older-than nan", 2, "nan is not a number"),
        ("stream offload shop/orders --older-than inf", 2, "--older-than"),
        ("group create g --stream shop/orders --patience nan", 2, "nan is not a number"),
        ("group create g --stream shop/orders --checkpoint-every inf", 2, "--checkpoint-every"),
        ("group checkpoint shop/none --timeout inf", 2, "--timeout"),
        ("run --grace inf", 2, "--grace"),
        ("read shop/orders --max 99999999999999999999999999", 2, "is not in the range"),
        (f"read shop/orders --from {'9' * 5000}", 2, "head, tail, a cut"),
        ("stream frobnicate", 2, "no command 'frobnicate'"),
        ("frobnicate", 2, "no command 'frobnicate'"),
        ("init --durability none", 2, "none"),
        ("init --durability fsync", 4, "exists already with durability 'os', which cannot be changed"),
        ("completion tcsh", 2, "tcsh"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line_and_changes_nothing(
    cli: Cli, shared: Path, content: list[str], arguments: str, code: int, why: str
) -> None:
    cli.directory = shared
    done = cli(*arguments.split())
    assert (done.code, done.err.count("\n")) == (code, 1), done
    assert done.err.startswith("eventproc: ")
    assert why in done.err
    assert done.out == ""
    assert rows_of(shared) == content


@pytest.mark.parametrize(
    "words, code, why",
    [
        ("compact none", 3, "no table 'none'"),
        ("compact none --start soon", 2, "start 'soon'"),
        ("overwrite none SELECT --yes", 3, "no table 'none'"),
        ("query SELECT", 6, "no eventproc directory"),
    ],
)
def test_a_table_is_looked_for_before_spark_starts(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str, code: int, why: str
) -> None:
    def start(_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr("eventproc.spark.sessions.borrowed_session", start)
    if code == 6:
        cli.directory /= "missing"
    assert why in cli("table", *words.split()).refused(code)


def test_a_cut_of_a_deleted_stream_is_refused_by_its_successor(shop: Cli) -> None:
    cut = shop("stream", "cut", "shop/orders").ok().strip()
    shop("stream", "seal", "shop/orders", "--yes").ok()
    shop("stream", "delete", "shop/orders", "--yes").ok()
    assert "no stream" in shop("read", "shop/orders", "--from", cut).refused(3)
    shop("stream", "create", "shop/orders", "--segments", 2).ok()
    before = everything(shop)
    assert "belongs to stream" in shop("read", "shop/orders", "--from", cut).refused(4)
    assert "belongs to stream" in shop("stream", "truncate", "shop/orders", "--cut", cut, "--yes").refused(4)
    assert everything(shop) == before


def test_a_cut_of_another_stream_is_refused(shop: Cli) -> None:
    shop("stream", "create", "shop/other", "--segments", 2).ok()
    cut = shop("stream", "cut", "shop/other").ok().strip()
    assert "belongs to stream" in shop("read", "shop/orders", "--from", cut).refused(4)
    assert "belongs to stream" in shop("stream", "truncate", "shop/orders", "--cut", cut, "--yes").refused(4)


def test_a_cut_before_the_head_is_refused(shop: Cli) -> None:
    head = shop("stream", "cut", "shop/orders", "--at", "head").ok().strip()
    shop("stream", "truncate", "shop/orders", "--cut", "tail", "--yes").ok()
    assert shop("read", "shop/orders", "--from", head).refused(4)
    assert shop("stream", "truncate", "shop/orders", "--cut", head, "--yes").refused(4)


@pytest.mark.parametrize("command", [["stream", "list"], ["doctor"], ["run"], ["scope", "create", "a"]])
def test_only_init_makes_a_directory(tmp_path: Path, cli: Cli, command: list[str]) -> None:
    cli.directory = tmp_path / "missing"
    assert f"`eventproc init {cli.directory}`" in cli(*command).refused(6)
    assert not cli.directory.exists()
    cli.directory = tmp_path / "empty"
    cli.directory.mkdir()
    assert f"`eventproc init {cli.directory}`" in cli(*command).refused(6)
    assert list(cli.directory.iterdir()) == []


@pytest.mark.parametrize("command", [["stream", "list"], ["doctor"], ["init"]])
def test_a_directory_that_is_not_ours_is_refused_and_left_alone(
    tmp_path: Path, cli: Cli, command: list[str]
) -> None:
    cli.directory = tmp_path / "work"
    cli.directory.mkdir()
    (cli.directory / "thesis.txt").write_text("years of work")
    before = contents(cli.directory)
    said = cli(*command).refused(6)
    remedy = "choose a new or empty directory" if command == ["init"] else "with -C DIR or EVENTPROC_DIR"
    assert "holds 'thesis.txt' and no eventproc.db, so it is not ours; " in said
    assert remedy in said
    assert contents(cli.directory) == before


@pytest.mark.parametrize("command", [["stream", "list"], ["doctor"], ["init"]])
def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path, cli: Cli, command: list[str]) -> None:
    cli.directory = tmp_path / "file"
    cli.directory.write_text("")
    remedy = "choose a new or empty directory" if command == ["init"] else "say which directory is meant"
    assert f"is a file; {remedy}" in cli(*command).refused(6)
    assert cli.directory.read_text() == ""


def test_a_directory_cannot_be_made_below_a_file(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("")
    cli.directory = tmp_path / "file" / "below"
    assert f"would lie in {tmp_path / 'file'}, which is a file; choose" in cli("init").refused(6)
    cli("stream", "list").refused(6)


@pytest.mark.subprocess
def test_a_current_folder_that_is_gone_is_refused(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    prepare = f"import os; os.mkdir({gone!r}); os.chdir({gone!r}); os.rmdir({gone!r})"
    assert "the current directory was deleted; name a directory" in shell(
        "stream", "list", prepare=prepare
    ).refused(6)


@pytest.mark.parametrize("content", [b"not a database at all" * 1000, b"\0" * 16384])
@pytest.mark.parametrize("others", [[], ["format.lock"]])
@pytest.mark.parametrize("command", [["stream", "list"], ["init"]])
def test_a_database_that_is_none_is_refused(
    tmp_path: Path, cli: Cli, command: list[str], others: list[str], content: bytes
) -> None:
    cli.directory = tmp_path / "strange"
    cli.directory.mkdir()
    (cli.directory / "eventproc.db").write_bytes(content)
    for name in others:
        (cli.directory / name).touch()
    before = contents(cli.directory)
    assert "not a database; choose another directory, or restore a backup" in cli(*command).refused(6)
    assert contents(cli.directory) == before


def test_database_of_another_program_is_refused(tmp_path: Path, cli: Cli) -> None:
    cli.directory = tmp_path / "theirs"
    cli.directory.mkdir()
    with sqlite3.connect(cli.directory / "eventproc.db") as theirs:
        theirs.execute("CREATE TABLE songs (title TEXT)")
    theirs.close()
    before = contents(cli.directory)
    for command in (["stream", "list"], ["init"], ["doctor"]):
        assert "not made by eventproc; choose another directory" in cli(*command).refused(6)
    assert contents(cli.directory) == before


def test_a_newer_schema_is_refused_and_left_alone(shop: Cli) -> None:
    newer = sqlite3.connect(shop.directory / "eventproc.db")
    newer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = (shop.directory / "eventproc.db").read_bytes()
    for command in (["stream", "list"], ["init"], ["doctor"], ["run"], ["read", "shop/orders"]):
        assert "newer version" in shop(*command).refused(6)
    assert (shop.directory / "eventproc.db").read_bytes() == before


def test_a_traceback_is_shown_only_when_asked_for(shop: Cli) -> None:
    assert "Traceback" not in shop("read", "shop/none").err
    assert "Traceback" in shop("--debug", "read", "shop/none").err
    assert "Traceback" in shop("read", "shop/none", "--debug").err


@pytest.mark.subprocess
def test_the_directory_comes_from_the_environment_too(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPROC_DIR", str(shop.directory))
    assert len(shell("stream", "list", "-o", "jsonl").rows()) == 1


@pytest.mark.subprocess
@pytest.mark.parametrize("before", [True, False])
def test_a_directory_without_a_name_is_refused_wherever_it_stands(
    shop: Cli, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    monkeypatch.setenv("EVENTPROC_DIR", str(shop.directory))
    monkeypatch.chdir(shop.directory)
    nameless, command = ("-C", ""), ("scope", "delete", "shop", "--recursive", "--yes")
    done = shell(*nameless, *command) if before else shell(*command, *nameless)
    assert "'-C'" in done.refused(2)
    assert "the directory is empty" in done.err
    assert len(shop("stream", "list").ok().splitlines()) == 2


@pytest.mark.subprocess
def test_an_empty_variable_counts_as_none(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPROC_DIR", "")
    monkeypatch.chdir(shop.directory)
    assert len(shell("stream", "list", "-o", "jsonl").rows()) == 1


@pytest.mark.subprocess
def test_holder_of_the_write_lock_is_named_within_the_timeout(shop: Cli) -> None:
    lock = WriteLock(shop.directory / "write.lock", SystemClock())
    hasty = "from eventproc.store.database import file_database as f; f.TIMEOUTS = f.DatabaseTimeouts(close_wait_ms=1)"
    arguments = ("-q", "-C", shop.directory, "stream", "seal", "shop/orders", "--yes", "--timeout", 1)
    lock.acquire()
    try:
        done = shell(*arguments, prepare=hasty)
    finally:
        lock.close()
    assert f"write.lock has been held by process {os.getpid()} for 1." in done.refused(6)
    assert shop("stream", "list", "-o", "json").json()[0]["state"] == "active"


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file below `directory` with its bytes."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
