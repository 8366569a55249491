"""Events at the shell: what a row becomes, what was acknowledged, and what is read again."""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, environment, started

CSV = b'\xef\xbb\xbfid,name,note\n1,Ann,"says ""hi"", twice"\n2,,"two\nlines"\n3,Ann,\xe2\x82\xac\n'


@pytest.fixture
def stream(cli: Cli) -> Cli:
    """A directory with the empty stream s/x."""
    cli("scope", "create", "s").ok()
    cli("stream", "create", "s/x").ok()
    return cli


def test_lines_become_events_byte_by_byte(stream: Cli) -> None:
    assert stream("write", "s/x", stdin=b"one\r\n\n\xff\xfe\nlast\n").ok() == "written 4\n"
    rows = stream("read", "s/x").rows()
    assert [row.get("payload") for row in rows] == ["one\r", "", None, "last"]
    assert base64.b64decode(rows[2]["payload_base64"]) == b"\xff\xfe"
    assert "payload" not in rows[2]


def test_a_line_of_read_has_everything_about_an_event(shop: Cli) -> None:
    rows = shop("read", "shop/orders", "-o", "jsonl").rows()
    times = [row.pop("timestamp") for row in rows]
    assert times == sorted(times)
    assert rows == [
        {
            "scope": "shop",
            "stream": "orders",
            "segment": "0.0",
            "offset": number * (8 + len(payload)),
            "number": number,
            "key": "customer-42",
            "event_time": None,
            "headers": {},
            "payload": payload,
        }
        for number in range(3)
        for payload in [f'{{"k":"customer-42","n":{number}}}']
    ]


def test_the_other_forms_of_read_hold_the_same(shop: Cli) -> None:
    assert shop("read", "shop/orders", "-o", "json").json() == shop("read", "shop/orders").rows()
    table = shop("read", "shop/orders", "-o", "table").ok().splitlines()
    assert table[0].split("  ")[1:] == [
        "0.0@0",
        "customer-42",
        '{"k":"customer-42","n":0}',
    ]
    assert shop("read", "shop/orders", "--from", "tail", "-o", "json").json() == []


def test_a_table_of_events_lets_no_event_command_the_terminal(stream: Cli) -> None:
    stream("write", "s/x", stdin=b"\x1b[2J\x07").ok()
    assert "\x1b" not in stream("read", "s/x", "-o", "table").ok()


def test_a_csv_row_becomes_a_json_object_keyed_by_a_column(stream: Cli) -> None:
    assert stream("write", "s/x", "--format", "csv", "--key", "name", stdin=CSV).ok() == "written 3\n"
    rows = stream("read", "s/x").rows()
    assert [row["key"] for row in rows] == ["Ann", None, "Ann"]  # an empty cell is no key
    assert [json.loads(row["payload"]) for row in rows] == [
        {"id": "1", "name": "Ann", "note": 'says "hi", twice'},
        {"id": "2", "name": "", "note": "two\nlines"},
        {"id": "3", "name": "Ann", "note": "€"},
    ]


def test_json_lines_stay_as_they_are_keyed_by_a_field(stream: Cli) -> None:
    lines = b'{"k": "a",  "v": 1}\n\n{"v": 2, "k": null}\n{"k": 7}\n'
    stream("write", "s/x", "--format", "jsonl", "--key", "k", stdin=lines).ok()
    rows = stream("read", "s/x").rows()
    assert [row["key"] for row in rows] == ["a", None, "7"]
    assert [row["payload"] for row in rows] == ['{"k": "a",  "v": 1}', '{"v": 2, "k": null}', '{"k": 7}']


def test_a_byte_order_mark_is_of_the_file_and_not_of_its_first_json_line(stream: Cli) -> None:
    stream("write", "s/x", "--format", "jsonl", stdin=b'\xef\xbb\xbf{"v":1}\n{"v":2}\n').ok()
    assert [row["payload"] for row in stream("read", "s/x").rows()] == ['{"v":1}', '{"v":2}']


@pytest.mark.parametrize(
    "kind, rows",
    [("jsonl", b'{"k":"a","n":1}\n{"k":"b","n":"2"}\n{"k":"a","n":"1"}\n'), ("csv", b"k,n\na,1\nb,2\na,1\n")],
)
def test_rows_whose_ids_are_known_are_not_written_again(stream: Cli, kind: str, rows: bytes) -> None:
    arguments = ("write", "s/x", "--format", kind, "--key", "k", "--id", "n")
    assert stream(*arguments, stdin=rows).ok() == "written 2\n"
    assert stream(*arguments, "--delay", "60", stdin=rows).ok() == "written 0\n"
    assert [(row["id"], row["key"], row["headers"]) for row in stream("read", "s/x").rows()] == [
        ("1", "a", {}),
        ("2", "b", {}),
    ]


@pytest.mark.parametrize(
    "row, why",
    [
        (b'{"b":1}', "no field 'n' for the id"),
        (b'{"n":[1]}', "an id is text or an integer"),
        (b'{"n":""}', "id '': it must have 1 to 200 characters"),
        (b'{"n":"' + b"x" * 201 + b'"}', "it must have 1 to 200 characters"),
    ],
)
def test_a_row_without_a_proper_id_is_refused(stream: Cli, row: bytes, why: str) -> None:
    done = stream("write", "s/x", "--format", "jsonl", "--id", "n", stdin=row + b"\n")
    assert (done.code, done.out) == (1, "")
    assert why in done.err


def test_a_stream_remembers_ids_for_as_long_as_it_is_asked_to(stream: Cli) -> None:
    def window_ms(name: str) -> int:
        return int(stream("stream", "describe", name, "-o", "json").json()["config"]["id_window_ms"])

    assert window_ms("s/x") == 86_400_000
    stream("stream", "update", "s/x", "--id-window", "2.5").ok()
    stream("topic", "create", "s/y", "--id-window", "60").ok()
    assert (window_ms("s/x"), window_ms("s/y")) == (2_500, 60_000)


def test_an_integer_of_json_may_have_any_length(stream: Cli) -> None:
    digits = "7" * 1000
    line = f'{{"k":{digits},"v":{"9" * 5000}}}'
    stream("write", "s/x", "--format", "jsonl", "--key", "k", stdin=line.encode()).ok()
    (row,) = stream("read", "s/x").rows()
    assert (row["key"], row["payload"]) == (digits, line)


@pytest.mark.parametrize(
    "name, pack", [("a.csv", bytes), ("a.csv.gz", gzip.compress), ("a.csv.xz", lzma.compress)]
)
def test_file_suffix_determines_compression_and_format(
    stream: Cli, tmp_path: Path, name: str, pack: type[bytes]
) -> None:
    (tmp_path / name).write_bytes(pack(CSV))
    assert stream("write", "s/x", tmp_path / name, "--key", "name").ok() == "written 3\n"
    assert json.loads(stream("read", "s/x").rows()[0]["payload"])["id"] == "1"


def test_an_empty_input_writes_nothing(stream: Cli) -> None:
    assert stream("write", "s/x").ok() == "written 0\n"


@pytest.mark.parametrize(
    "kind, rows, line, why",
    [
        ("csv", b"a,b\n1,2\n3,4\n5\n6,7\n", 4, "1 column, the header has 2"),
        ("csv", b'a,b\n1,2\n3,4\n"x"y,5\n', 4, "not CSV"),
        ("csv", b"a,b\n1,2\n3,4\n\xff,5\n", 4, "not UTF-8"),
        ("csv", b'a,b\n1,2\n3,4\n"open,5\n', 4, "not CSV"),
        ("jsonl", b"1\n2\n{nonsense\n", 3, "not JSON"),
        ("jsonl", b'{"a":1}\n{"a":2}\n' + b"[" * 100_000 + b"\n", 3, "not JSON"),
        ("jsonl", b"1\n2\nNaN\n", 3, "not JSON: NaN is not a JSON number"),
        ("jsonl", b'1\n2\n{"a":-Infinity}\n', 3, "not JSON: -Infinity"),
        ("jsonl", b"1\n2\n" + '{"a":1}'.encode("utf-16-le") + b"\n", 3, "not JSON"),
        ("jsonl", b'1\n2\n"\xff"\n', 3, "not UTF-8"),
        ("jsonl", b"1\n2\n\xef\xbb\xbf3\n", 3, "not JSON"),
    ],
)
def test_a_bad_row_is_named_and_those_before_it_are_written(
    stream: Cli, kind: str, rows: bytes, line: int, why: str
) -> None:
    done = stream("write", "s/x", "--format", kind, stdin=rows)
    assert (done.code, done.out) == (1, "written 2\n")
    assert done.err.startswith(f"eventproc: standard input: line {line}: {why}")
    assert done.err.count("\n") == 1
    assert len(stream("read", "s/x").rows()) == 2


@pytest.mark.parametrize(
    "row, why",
    [
        (b'{"b":1}', "no field 'k'"),
        (b"[1]", "not an object"),
        (b'{"k":[1]}', "a key is text or an integer"),
        (b'{"k":true}', "a key is text or an integer"),
        (b'{"k":"\\ud800"}', "routing key '\\ud800': it contains half of a surrogate"),
        (b'{"k":"' + b"x" * 1025 + b'"}', "1025 characters"),
    ],
)
def test_a_row_without_a_key_that_routes_is_refused(stream: Cli, row: bytes, why: str) -> None:
    done = stream("write", "s/x", "--format", "jsonl", "--key", "k", stdin=b'{"k":"a"}\n' + row)
    assert (done.code, done.out) == (1, "written 1\n")
    assert "line 2: " in done.err
    assert why in done.err


def test_a_row_larger_than_an_event_is_refused(stream: Cli) -> None:
    done = stream("write", "s/x", stdin=b"fits\n" + b"x" * (8 * 2**20 - 7) + b"\n")
    assert (done.code, done.out) == (1, "written 1\n")
    assert "line 2: " in done.err


@pytest.mark.parametrize("rows", [b"", b"a,a\n1,2\n"])
def test_a_csv_without_a_proper_header_writes_nothing(stream: Cli, rows: bytes) -> None:
    done = stream("write", "s/x", "--format", "csv", stdin=rows)
    assert (done.code, done.out) == (1, "")
    assert "line 1: " in done.err


def test_damaged_archive_is_reported_and_rows_before_are_written(stream: Cli, tmp_path: Path) -> None:
    packed = gzip.compress(os.urandom(300_000).hex().encode() + b"\nsecond")
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    done = stream("write", "s/x", tmp_path / "a.gz")
    assert done.code == 1
    assert "cannot be read" in done.err


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["--key", "k"], "--key needs --format"),
        (["--format", "csv", "--key", "k"], "standard input has a, b"),
        (["--id", "k"], "--id needs --format"),
        (["--format", "csv", "--id", "a", "--transaction"], "leave --id out"),
        (["--format", "xml"], "xml"),
        (["/nonexistent"], "does not exist"),
    ],
)
def test_a_write_that_is_called_wrongly_writes_nothing(stream: Cli, arguments: list[str], why: str) -> None:
    done = stream("write", "s/x", *arguments, stdin=b"a,b\n1,2\n")
    assert done.code == 2
    assert why in done.err
    assert stream("read", "s/x").rows() == []


def test_read_stops_after_so_many_and_at_one_segment(shop: Cli) -> None:
    assert [row["number"] for row in shop("read", "shop/orders", "--max", 2).rows()] == [0, 1]
    assert len(shop("read", "shop/orders", "--segment", "0.0").rows()) == 3
    assert shop("read", "shop/orders", "--segment", "1.0").rows() == []
    assert shop("read", "shop/orders", "--segment", "0", "--from", "tail").rows() == []
    assert "no segment" in shop("read", "shop/orders", "--segment", "7.0").refused(3)


def test_read_goes_on_from_a_cut_and_from_a_time(shop: Cli) -> None:
    cut = shop("stream", "cut", "shop/orders").ok().strip()
    shop("write", "shop/orders", stdin=b"later").ok()
    (later,) = shop("read", "shop/orders", "--from", cut).rows()
    assert later["payload"] == "later"
    assert shop("read", "shop/orders", "--from", later["timestamp"]).rows()[-1] == later
    assert shop("read", "shop/orders", "--from", "2200-01-01").rows() == []


@pytest.mark.subprocess
def test_follow_prints_events_of_other_processes_until_ctrl_c(stream: Cli) -> None:
    with started("-C", stream.directory, "read", "s/x", "--follow") as reader:
        try:
            for number in range(3):
                stream("write", "s/x", stdin=b"%d" % number).ok()
                assert reader.stdout is not None
                assert json.loads(reader.stdout.readline())["payload"] == str(number)
        finally:
            reader.send_signal(signal.SIGINT)
        out, err = reader.communicate(timeout=60)
    assert (reader.returncode, out, err) == (130, b"", b"")


def say_row(writer: subprocess.Popen[bytes]) -> None:
    assert writer.stdin is not None
    writer.stdin.write(b"row\n")
    writer.stdin.flush()


def write_row(writer: subprocess.Popen[bytes], number: int) -> None:
    """Let the writer have one more row, and hear that these are now `number`."""
    say_row(writer)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"written %d\n" % number


@pytest.mark.subprocess
def test_writer_of_a_sealed_stream_ends_while_its_input_is_open(stream: Cli) -> None:
    with started("-C", stream.directory, "write", "s/x") as writer:
        write_row(writer, 1)
        stream("stream", "seal", "s/x", "--yes").ok()
        say_row(writer)
        assert writer.wait(60) == 4  # with the pipe still open
        assert writer.stderr is not None
        assert b"s/x is sealed" in writer.stderr.read()


@pytest.mark.subprocess
def test_a_stream_that_is_deleted_under_its_writer_is_called_that(stream: Cli) -> None:
    with started("-C", stream.directory, "write", "s/x") as writer:
        write_row(writer, 1)
        for verb in (("seal", "--yes"), ("delete", "--yes"), ("create",)):
            stream("stream", *verb, "s/x").ok()
        _, err = writer.communicate(b"row\n", timeout=60)
    assert writer.returncode == 4
    again = "and created again; run the command again to use the new stream"
    assert err.decode() == f"eventproc: stream 's/x' was deleted meanwhile {again}\n"


@pytest.mark.subprocess
def test_ctrl_c_ends_a_writer_that_waits_for_its_input(stream: Cli) -> None:
    with started("-C", stream.directory, "write", "s/x") as writer:
        write_row(writer, 1)
        writer.send_signal(signal.SIGINT)
        assert writer.wait(60) == 130
        assert writer.stderr is not None
        assert writer.stderr.read() == b""


@pytest.mark.subprocess
def test_a_reader_whose_pipe_is_closed_is_quiet(stream: Cli) -> None:
    stream("write", "s/x", stdin=b"x" * 1000 + b"\n" + b"y\n" * 100_000).ok()
    with started("-C", stream.directory, "read", "s/x") as reader:
        assert reader.stdout is not None
        assert b"xxx" in reader.stdout.readline()
        reader.stdout.close()
        reader.stdout = None
        _, err = reader.communicate(timeout=60)
    assert (reader.returncode, err) == (141, b"")


@pytest.mark.subprocess
def test_a_large_input_is_written_in_little_memory(stream: Cli, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "big.gz", "wb", compresslevel=1) as big:
        for _ in range(100):
            big.write((b"z" * 999 + b"\n") * 1000)
    code = "; ".join(
        [
            "import sys",
            "from eventproc.cli.main import run",
            "code = run(sys.argv[1:])",
            # Not ru_maxrss: a child inherits the peak of the process that started it.
            "print(next(row.split()[1] for row in open('/proc/self/status') if row.startswith('VmHWM')))",
            "sys.exit(code)",
        ]
    )
    command = [COMMAND[0], "-c", code, "-C", str(stream.directory), "write", "s/x", str(tmp_path / "big.gz")]
    done = subprocess.run(command, env=environment(), capture_output=True, check=True, text=True)
    *_, written, peak_kb = done.stdout.split("\n")[:-1]
    assert written == "written 100000"
    assert int(peak_kb) < 200_000
