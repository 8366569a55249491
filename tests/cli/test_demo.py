"""The demo on small files of every kind, what it refuses, and what it leaves behind: nothing."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_process
import pytest

import eventproc
from eventproc.cli.demo.cpu_times import CpuTimes
from eventproc.cli.demo.ledger import DemoLedger
from eventproc.cli.demo.producer import Produced
from eventproc.cli.demo.report import DemoReport, DemoTask
from eventproc.cli.demo.topics import CONSUMERS, TopicsRun
from eventproc.cli.main import run
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event

pytestmark = pytest.mark.subprocess  # the producer is a process of its own

KEYS = ["written", "processed", "duplicates", "order_violations", "epochs"]
MEASURED = ["events_per_second", "seconds", "peak_rss_mb"]
STEPS = ["read_csv", "encode_json", "write", "decode_json", "verify", "process"]


def csv_text(rows: int, *, columns: tuple[str, ...] = ("tailnum", "dep_delay", "note")) -> str:
    choose = random.Random(rows)
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(columns)
    for number in range(rows):
        key = choose.choice(["", "N1", "N2", "N3", "日本", 'a"b,c\nd'])
        out.writerow([key, choose.choice(["NA", str(number)]), f"{number} %s é"])
    return text.getvalue()


def pack_plain(data: bytes) -> bytes:
    return data


def pack_with_mark(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the demo makes its directory."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.parametrize(
    "rows, pack",
    [
        *((rows, pack_plain) for rows in (1, 2, 7, 40)),
        *((3000, pack) for pack in (pack_plain, pack_with_mark, gzip.compress, lzma.compress)),
    ],
)
def test_demo_processes_each_csv_row_once_and_in_order_during_scales(
    rows: int,
    pack: Callable[[bytes], bytes],
    tmp_path: Path,
    temporary: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "rows"
    file.write_bytes(pack(csv_text(rows).encode()))
    assert run(["demo", str(file), "--output", "json", "--durability", "os"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [*KEYS, *MEASURED, "cpu_seconds"]
    assert [found[key] for key in KEYS] == [rows, rows, 0, 0, 4]
    assert all(found[key] > 0 for key in ("seconds", "peak_rss_mb"))  # one row a second rounds to 0
    assert list(found["cpu_seconds"]) == STEPS
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("rows", [1, 2_000])
def test_the_demo_of_topics_counts_every_row_once_while_consumers_die(
    rows: int, tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows"
    file.write_text(csv_text(rows))
    assert run(["demo", str(file), "--topics", "--output", "json", "--durability", "os"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[key] for key in KEYS[:-1]] == [rows, rows, 0, 0]
    assert (found["partitions"], found["consumers_killed"], found["consumers_joined"]) == (12, 2, 1)
    assert list(temporary.iterdir()) == []


def test_the_consumers_of_a_topic_work_simultaneously_on_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = DemoTask(tmp_path, "tailnum", None, tmp_path, "os")

    async def run_together() -> None:
        working, together = 0, anyio.Event()

        async def work(limiter: anyio.CapacityLimiter | None) -> None:
            nonlocal working
            async with limiter or anyio.to_process.current_default_process_limiter():
                working += 1
                if working == CONSUMERS:
                    together.set()
                await together.wait()

        monkeypatch.setattr(anyio.to_process, "run_sync", lambda *_, limiter=None, **__: work(limiter))
        async with eventproc.open_memory() as ep:
            demo = TopicsRun(task, ep, "s", lambda _, __: None)
            with anyio.fail_after(10):
                async with anyio.create_task_group() as consumers:
                    for _ in range(CONSUMERS):
                        demo._start_consumer(consumers)

    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    anyio.run(run_together)


def test_the_table_ends_with_the_keys_of_the_largest_means(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("tailnum,dep_delay\n" + "".join(f"N{n % 12},{n}\n" for n in range(24)) + "N0,NA\n")
    assert run(["demo", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-10:]] == [
        [f"N{n}", f"{n + 6:.1f}", "2"] for n in range(11, 1, -1)
    ]


def test_the_table_says_what_took_the_time(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(csv_text(3000))
    assert run(["demo", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("CPU time"))
    steps = [line.rsplit(maxsplit=2) for line in lines[begin + 1 : begin + 1 + len(STEPS)]]
    assert [step.lower().replace(" ", "_") for step, _, _ in steps] == STEPS
    assert abs(sum(float(share.rstrip("%")) for _, _, share in steps) - 100) <= len(STEPS) / 2


def test_demo_keeps_the_given_directory_and_removes_its_scope(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(csv_text(20))
    store = str(tmp_path / "store")
    for _ in range(2):
        assert run(["demo", str(file), "--dir", store, "--output", "json"]) == 0
    capsys.readouterr()
    assert run(["-C", store, "scope", "list", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    "content, options, code, reason",
    [
        (None, (), 2, "does not exist"),
        (b"", (), 1, "the header is missing"),
        (b"\n\n", (), 1, "the header is missing"),
        (b"tailnum,b\n", (), 1, "a header, but no rows"),
        (b"a,b\n1,2\n", (), 2, "column 'tailnum'"),
        (b"tailnum,b\n1,2\n", ("--key", "c"), 2, "has tailnum, b"),
        (b"tailnum,b\n1,2\n", ("--mean", "c"), 2, "column 'c'"),
        (b"tailnum,tailnum\n1,2\n", (), 1, "line 1: two columns are named 'tailnum'"),
        (b"tailnum,b\n1,2\n1,2,3\n", (), 1, "line 3: 3 columns"),
        (b'tailnum,b\n"1"x,2\n', (), 1, "line 2: not CSV"),
        (b"tailnum,b\n\xff\xfe,2\n", (), 1, "line 2: not UTF-8"),
        (b"\x7fELF\x00\x01\x02" * 50, (), 2, r"\x7fELF\x00"),
        (lzma.compress(csv_text(5000).encode())[:-400], (), 1, "cannot be read after line"),
        (b"\x1f\x8b" + b"x" * 40, (), 1, "cannot be read after line 0"),
        (b"tailnum,b\n" + b"k" * 9000 + b",2\n", (), 2, "key"),
    ],
)
def test_invalid_csv_or_key_is_refused_in_one_line(
    content: bytes | None,
    options: tuple[str, ...],
    code: int,
    reason: str,
    tmp_path: Path,
    temporary: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "rows"
    if content is not None:
        file.write_bytes(content)
    assert run(["-q", "demo", str(file), *options]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    assert reason in printed.err
    assert list(temporary.iterdir()) == []


def test_demo_without_a_file_uses_the_flights_or_asks_for_a_file(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "any CSV with a header, such as data/flights.csv.xz" in said
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "flights.csv.xz").write_bytes(lzma.compress(csv_text(20).encode()))
    assert run(["demo", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["processed"] == 20


def test_a_directory_without_a_name_is_no_place_to_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(csv_text(20))
    monkeypatch.chdir(tmp_path)
    assert run(["demo", str(file), "--dir", ""]) == 2
    assert "the directory is empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_is_no_file(tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-q", "demo", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_nothing_behind(ending: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(csv_text(200_000))
    folder = tmp_path / "temporary"
    folder.mkdir()
    program = "from eventproc.cli.entry import main; raise SystemExit(main())"
    command = [sys.executable, "-c", program, "demo", str(file)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        assert "sending the rows" in process.stderr.readline()  # it is about to begin
        process.send_signal(ending)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (128 + ending, "", "")
    assert list(folder.iterdir()) == []


def event(row: int, key: str, **columns: str) -> Event[bytes]:
    payload = json.dumps([row, {"k": key, **columns}]).encode()
    return Event(payload, key, 0, None, "s/t", SegmentId(0), 0, 0, {})


def account(*events: Event[bytes]) -> DemoLedger:
    ledger = DemoLedger(CpuTimes(rest="process"), key="k", mean_of=None)
    anyio.run(ledger.handle, list(events))
    return ledger


def test_what_the_demo_logs_has_a_time_and_a_level(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(csv_text(1), encoding="utf-8")
    program = (
        "import logging; from eventproc.cli.main import run;"
        "run(['demo', 'rows.csv', '--durability', 'os']); logging.getLogger('eventproc').warning('full')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    (line,) = (each for each in found.stderr.splitlines() if each.endswith("full"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z WARNING eventproc: full", line)


def test_the_ledger_counts_a_row_that_comes_twice() -> None:
    ledger = account(event(0, "a"), event(1, "b"), event(0, "a"))
    assert (ledger.processed, ledger.duplicates, ledger.order_violations) == (2, 1, 0)


def test_the_ledger_counts_a_row_that_comes_after_a_later_one_of_its_key() -> None:
    ledger = account(event(5, "a"), event(1, "b"), event(3, "a"), event(9, "a"))
    assert (ledger.processed, ledger.duplicates, ledger.order_violations) == (4, 0, 1)


@pytest.mark.parametrize(
    "bad",
    [
        event(0, "a")._replace(payload=b"{"),
        event(0, "a")._replace(payload=b"{}"),
        event(0, "a")._replace(payload=b"[0,{}]"),
        event(0, "a")._replace(payload=b"0"),
        event(0, "a")._replace(payload=b'["0",{"k":"a"}]'),
        event(0, "a")._replace(key="b"),
        event(0, "a")._replace(key=None),
    ],
)
def test_ledger_refuses_events_that_were_never_written(bad: Event[bytes]) -> None:
    with pytest.raises(CorruptRecord):
        account(event(1, "a"), bad)


@pytest.mark.parametrize(
    "rows, written, flawless", [(2, 2, True), (3, 2, False), (2, 3, False), (3, 3, False)]
)
def test_a_run_is_flawless_only_if_all_rows_were_written_and_processed(
    rows: int, written: int, flawless: bool
) -> None:
    ledger = account(event(0, "a"), event(1, "b"))
    report = DemoReport(Produced(rows, written, {}), ledger, facts={"epochs": 4}, cpu_seconds={})
    assert report.flawless is flawless
