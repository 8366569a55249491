"""Real processes that a test kills and suspends: what users build their tests of crashes from."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.store import faults
from eventproc.store.model.errors import InvalidArgument, StoreMissing
from eventproc.testing import CrashDirectory, CrashProcess, check_directory, kill_now
from tests.support.reading import payloads_of

pytestmark = pytest.mark.subprocess


async def create(ep: eventproc.Eventproc) -> None:
    await ep.create_scope("shop")
    await ep.create_stream("shop/orders")


async def write(ep: eventproc.Eventproc, *payloads: bytes) -> None:
    async with (await ep.stream("shop/orders")).writer() as writer:
        for payload in payloads:
            await writer.write(payload)
            os.write(1, b"wrote " + payload + b"\n")


async def write_and_die(ep: eventproc.Eventproc, payload: bytes) -> None:
    await write(ep, payload)
    kill_now()


async def write_what_is_asked(ep: eventproc.Eventproc, payload: bytes) -> None:
    async with (await ep.stream("shop/orders")).writer() as writer:
        await writer.write(payload)
        await writer.write(os.read(0, 100))


async def read(ep: eventproc.Eventproc) -> list[bytes]:
    return await payloads_of(await ep.stream("shop/orders"))


def test_what_was_acknowledged_before_a_kill_is_read_after_it(eventproc_crash: CrashDirectory) -> None:
    eventproc_crash.run(create)
    process = eventproc_crash.start(write_and_die, b"2 apples")
    assert process.wait_for("wrote") == "wrote 2 apples"
    process.wait_killed()
    assert eventproc_crash.run(read) == [b"2 apples"]
    eventproc_crash.check()


def test_a_process_gets_large_arguments_and_the_lines_behind_them(eventproc_crash: CrashDirectory) -> None:
    eventproc_crash.run(create)
    process = eventproc_crash.start(write_what_is_asked, b"2 apples " * 100_000)
    process.say("now")
    assert process.finish() == 0
    assert eventproc_crash.run(read) == [b"2 apples " * 100_000, b"now\n"]


@pytest.mark.parametrize(("point", "kept"), [(faults.WRITE_COMMIT, 0), (faults.WRITE_COMMITTED, 1)])
def test_a_kill_around_a_commit_keeps_it_exactly_if_it_was_made(
    eventproc_crash: CrashDirectory, point: str, kept: int
) -> None:
    eventproc_crash.run(create)
    process = eventproc_crash.start(write, b"2 apples", at=point, host=False)
    process.wait_killed()
    assert process.hear() == "", "it was not acknowledged"
    assert len(eventproc_crash.run(read)) == kept
    eventproc_crash.check()


def test_a_process_that_is_suspended_at_a_point_continues_when_it_is_told(
    eventproc_crash: CrashDirectory,
) -> None:
    eventproc_crash.run(create)
    process = eventproc_crash.start(write, b"2 apples", at=faults.WRITE_COMMITTED, signal="stop", host=False)
    process.wait_stopped()
    assert eventproc_crash.run(read) == [b"2 apples"], "durable, and not acknowledged yet"
    process.resume()
    assert process.hear() == "wrote 2 apples"
    assert process.finish() == 0


def test_a_process_that_ends_before_the_point_was_not_suspended(eventproc_crash: CrashDirectory) -> None:
    process = eventproc_crash.start(create, at="processor.progress.commit", signal="stop")
    with pytest.raises(AssertionError, match="was not suspended: it ended with 0"):
        process.wait_stopped()


def test_a_program_that_opens_the_directory_itself_is_killed_by_the_test(
    eventproc_crash: CrashDirectory, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text("""
import anyio, eventproc, sys
async def main():
    async with eventproc.open(sys.argv[1]) as ep:
        print("open")
        await anyio.sleep_forever()
anyio.run(main)
""")
    process = eventproc_crash.start_program(script, eventproc_crash.path)
    process.wait_for("open")
    process.kill()
    eventproc_crash.check()


def test_a_process_that_ends_otherwise_was_not_killed(eventproc_crash: CrashDirectory) -> None:
    eventproc_crash.run(create)
    process = eventproc_crash.start(write, b"2 apples", at=faults.WRITE_COMMIT, nth=1000)
    with pytest.raises(AssertionError, match="was not killed: it ended with 0"):
        process.wait_killed()


PROGRAM = """
import os
from pathlib import Path
from eventproc.testing import CrashDirectory

class Order(str):
    pass

async def take(ep, order):
    os.write(1, f"took {type(order).__name__} {order}\\n".encode())

if __name__ == "__main__":
    os.write(1, b"began\\n")
    Path("runs").mkdir()  # fails in a second run
    with CrashDirectory("data") as crash:
        os.write(1, crash.start(take, Order("2 apples")).wait_for("took").encode() + b"\\n")
"""


def test_a_program_may_start_its_own_functions(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with CrashProcess([tmp_path / "program.py"], cwd=tmp_path) as process:
        assert process.hear() == "began"
        assert process.hear() == "took Order 2 apples"
        assert process.finish() == 0


def test_a_line_behind_an_empty_one_is_heard(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print(); print('begins'); print(); print('ready')")
    with CrashProcess([program]) as process:
        assert process.wait_for("ready") == "ready"
        assert process.hear() == ""
        with pytest.raises(AssertionError, match="ended"):
            process.wait_for("more")


def test_a_line_that_never_comes_is_reported_with_those_that_came(eventproc_crash: CrashDirectory) -> None:
    eventproc_crash.run(create)
    process = eventproc_crash.start(write, b"2 apples")
    with pytest.raises(AssertionError, match=r"without printing 'sold'; it printed \['wrote 2 apples'\]"):
        process.wait_for("sold")


def test_apps_run_until_the_events_that_they_emit_to_each_other_are_handled(
    eventproc_crash: CrashDirectory,
) -> None:
    packing, paying, packed = eventproc.App(), eventproc.App(), list[bytes]()

    @packing.processor("shop/parcels", group="pack")
    async def pack(event: eventproc.Event) -> None:
        await anyio.sleep(0.1)
        packed.append(event.payload)

    @paying.processor("shop/orders", group="pay")
    async def pay(event: eventproc.Event, context: eventproc.Context) -> None:
        for _ in range(3):
            context.emit("shop/parcels", event.payload, key="ana")

    eventproc_crash.write("shop/orders", b"2 apples")
    eventproc_crash.run_app(packing, paying)
    assert packed == [b"2 apples"] * 3


def test_a_function_that_another_process_cannot_import_is_refused(eventproc_crash: CrashDirectory) -> None:
    async def inner(ep: eventproc.Eventproc) -> None:
        await create(ep)

    with pytest.raises(InvalidArgument, match="top level of a module"):
        eventproc_crash.start(inner)
    with pytest.raises(InvalidArgument, match="at least 1"):
        eventproc_crash.start(create, at=faults.WRITE_COMMIT, nth=0)
    assert not eventproc_crash.path.exists()


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_new_directory_gets_the_durability_that_was_chosen(name: str, tmp_path: Path) -> None:
    async def chosen(ep: eventproc.Eventproc) -> str:
        return ep.durability

    with CrashDirectory(tmp_path / name, durability="os") as crash:
        assert [crash.run(chosen), crash.run(chosen)] == ["os", "os"]


def test_a_directory_that_does_not_exist_is_not_checked(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        anyio.run(check_directory, tmp_path / "missing")
