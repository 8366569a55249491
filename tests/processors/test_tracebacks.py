"""The stack trace of the user's code: in the log, in the dead letter, and as the cause of ProcessorFailed."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import attrs
import pytest

from eventproc.processors import App, AppTx, Directive, Failure, ProcessorFailed, RetryPolicy
from eventproc.processors.dead_letters.operations import DeadLetter
from eventproc.processors.tracebacks import TRACEBACK_BYTES_MAX, user_traceback
from eventproc.runtime import Eventproc
from eventproc.store.segments import Event
from tests.processors.support import GROUP, STREAM, finish, system, write
from tests.support.virtual_time import in_virtual_time

TWICE = RetryPolicy(attempts=2, wait_ms=0, wait_ms_max=0, jitter_ms=0)
POSITION = "s/t segment 0.0 event 0 (key 'ana')"


def lookup(prices: dict[str, int]) -> int:
    return prices["missing"]


def charge() -> None:
    try:
        lookup({})
    except KeyError as why:
        raise ValueError("no price") from why


async def on_loop(event: Event) -> None:
    charge()


def on_thread(event: Event) -> None:
    charge()


async def in_batch(events: list[Event]) -> None:
    charge()


def batch_on_thread(events: list[Event]) -> None:
    charge()


async def in_task_group(event: Event) -> None:
    async def part() -> None:
        charge()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(part)


def app_with(handler: object, **options: object) -> App:
    app = App()
    app.add(handler, STREAM, name="p", group=GROUP, **{"retry": TWICE, **options})  # type: ignore[call-overload]
    return app


async def letter_of(ep: Eventproc) -> DeadLetter:
    (letter,) = await ep.dead_letters(GROUP).list()
    return letter


def frames(text: str) -> list[str]:
    """Return the functions of a traceback, all of which must be of this file."""
    lines = [line.strip(" |") for line in text.splitlines() if 'File "' in line]
    assert all(f'File "{__file__}"' in line for line in lines), text
    return [line.rpartition(" in ")[2] for line in lines]


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize(
    "handler, batch", [(on_loop, None), (on_thread, None), (in_batch, 5), (batch_on_thread, 5)]
)
async def test_dead_letter_and_log_have_the_users_frames_and_the_cause(
    handler: object, batch: int | None, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with system() as ep:
        await write(ep, ["ana"])
        await finish(ep, app_with(handler, batch=batch, exactly_once=exactly_once))
        letter = await letter_of(ep)
    assert (letter.error_type, letter.error) == ("ValueError", "no price")
    text = letter.traceback or ""
    assert frames(text) == ["charge", "lookup", getattr(handler, "__name__", ""), "charge"]
    assert "KeyError: 'missing'\n\nThe above exception was the direct cause" in text
    assert text.endswith("\nValueError: no price")
    retried, gone = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert retried.getMessage() == f"processor p: attempt 1 of 2 failed for {POSITION}: ValueError: no price"
    assert retried.exc_info is None
    assert (
        gone.getMessage()
        == f"processor p: {POSITION} became a dead letter after 2 attempts: ValueError: no price"
    )
    assert logging.Formatter().format(gone).endswith(text)


async def test_at_debug_level_each_attempt_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="eventproc")
    async with system() as ep:
        await write(ep, ["ana"])
        await finish(ep, app_with(on_loop))
    shown = [logging.Formatter().format(each) for each in caplog.records if each.levelno >= logging.WARNING]
    assert [frames(text) for text in shown] == [["charge", "lookup", "on_loop", "charge"]] * 2


async def test_the_errors_in_a_group_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as ep:
        await write(ep, ["ana"])
        await finish(ep, app_with(in_task_group))
        letter = await letter_of(ep)
    assert letter.error_type == "ExceptionGroup"
    assert str(letter.error).endswith(": ValueError: no price")
    assert {"in_task_group", "part", "charge", "lookup"} == set(frames(letter.traceback or ""))
    assert caplog.records[-1].getMessage().endswith(": ValueError: no price")


async def test_a_permanent_error_in_a_group_spends_all_attempts() -> None:
    policy = RetryPolicy(permanent=(ValueError,))
    async with system() as ep:
        await write(ep, ["ana"])
        await finish(ep, app_with(in_task_group, retry=policy))
        assert (await letter_of(ep)).attempts == 1


async def test_a_stopped_processor_raises_the_error_of_its_handler_as_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with system() as ep:
        await write(ep, ["ana"])
        with pytest.raises(ProcessorFailed, match=r"event 0 .* failed 2 times") as raised:
            await finish(ep, app_with(on_loop, on_failure="stop"))
    assert isinstance(raised.value.__cause__, ValueError)
    assert frames(logging.Formatter().format(caplog.records[-1]))[-2:] == ["on_loop", "charge"]


def fail_hook(tx: AppTx, events: Sequence[Event]) -> None:
    charge()


def fail_to_decide(failure: Failure) -> Directive:
    raise LookupError("no decision")


class Unstartable:
    async def start(self) -> None:
        charge()

    async def process(self, event: Event) -> None: ...


async def accept(event: Event) -> None: ...


@pytest.mark.parametrize(
    "handler, options, kind, last",
    [
        (accept, {"exactly_once": True, "on_commit": fail_hook}, ValueError, "charge"),
        (on_loop, {"supervise": fail_to_decide}, LookupError, "fail_to_decide"),
        (Unstartable, {}, ValueError, "charge"),
    ],
)
async def test_errors_of_other_callbacks_are_causes_with_their_frames(
    handler: object,
    options: dict[str, object],
    kind: type[Exception],
    last: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with system() as ep:
        await write(ep, ["ana"])
        with pytest.raises(ProcessorFailed, match="processor p stopped") as raised:
            async with ep.run(app_with(handler, **options)) as running:
                await running.wait()
    assert type(raised.value.__cause__) is kind
    assert frames(logging.Formatter().format(caplog.records[-1]))[-1] == last


async def test_failing_setup_is_logged_with_its_frames_and_named(caplog: pytest.LogCaptureFixture) -> None:
    app = app_with(accept)

    @app.setup
    def make_tables(tx: AppTx) -> None:
        charge()

    async with system() as ep:
        with pytest.raises(ValueError, match="no price") as raised:
            await finish_nothing(ep, app)
    assert "make_tables of the app" in raised.value.__notes__[0]
    assert "the app could not be set up: ValueError: no price" in caplog.messages
    assert frames(logging.Formatter().format(caplog.records[-1]))[-2:] == ["make_tables", "charge"]


async def finish_nothing(ep: Eventproc, app: App) -> None:
    async with ep.run(app):
        raise AssertionError("it must not start")


@in_virtual_time
async def test_a_timeout_shows_where_the_handler_waited() -> None:
    async def wait_for_ever(event: Event) -> None:
        await anyio.sleep_forever()

    async with system() as ep:
        await write(ep, ["ana"])
        await finish(ep, app_with(wait_for_ever, timeout_ms=1000))
        letter = await letter_of(ep)
    assert str(letter.error_type).endswith("HandlerTimeout")
    assert "wait_for_ever" in frames(letter.traceback or "")


def test_a_call_that_is_stuck_on_a_thread_shows_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    def wait_for_gate(event: Event) -> None:
        gate.wait()

    async def main() -> None:
        async with system() as ep:
            await write(ep, ["ana"])
            with pytest.raises(ProcessorFailed) as raised:
                async with ep.run(app_with(wait_for_gate, timeout_ms=1_000)) as running:
                    await running.wait()
        assert raised.value.__cause__ is not None
        (note,) = raised.value.__cause__.__notes__
        assert "The call is here:" in note
        assert "wait_for_gate" in frames(note)
        assert note in logging.Formatter().format(caplog.records[-1])

    try:
        anyio.run(main)
    finally:
        gate.set()


@attrs.frozen
class Order:
    item: str


class OrderCodec:
    def encode(self, value: Order) -> bytes:
        return value.item.encode()

    def decode(self, payload: bytes) -> Order:
        return Order(json.loads(payload)["missing"])


@pytest.mark.parametrize("codec, shown", [(OrderCodec(), ["decode"]), (None, [])])
async def test_a_payload_that_cannot_be_decoded_shows_the_frames_of_the_users_codec(
    codec: OrderCodec | None, shown: list[str]
) -> None:
    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            await writer.write(b"{}")
        await finish(ep, app_with(accept_order, payload=Order, codec=codec))
        letter = await letter_of(ep)
    assert frames(letter.traceback or "") == shown
    assert (letter.error_type, letter.attempts) == ("eventproc.processors.errors.PayloadUndecodable", 1)
    assert "KeyError: 'missing'" in str(letter.traceback) or codec is None


async def accept_order(event: Event[Order]) -> None: ...


def even(depth: int) -> int:
    return odd(depth + 1)


def odd(depth: int) -> int:
    return even(depth + 1)


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    with pytest.raises(RecursionError) as raised:
        even(0)
    text = user_traceback(raised.value)
    assert len(text.encode()) <= TRACEBACK_BYTES_MAX
    assert text.startswith("Traceback (most recent call last)")
    assert "bytes are left out ..." in text
    assert text.splitlines()[-1].startswith("RecursionError: ")


def test_an_error_with_a_long_text_of_any_characters_is_bounded() -> None:
    text = user_traceback(ValueError("\udcff é" * TRACEBACK_BYTES_MAX))
    assert len(text.encode()) <= TRACEBACK_BYTES_MAX


def test_an_error_within_eventproc_keeps_all_of_its_frames() -> None:
    code = compile("def fail(): raise TypeError('a defect')", str(Path(anyio.__file__)), "exec")
    names: dict[str, object] = {}
    exec(code, names)
    why: Exception | None = None
    try:
        names["fail"]()  # type: ignore[operator]
    except TypeError as error:
        why = error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    assert why is not None
    assert "in fail" in user_traceback(why)


async def test_a_dead_letter_without_a_traceback_is_read() -> None:
    async with system() as ep:
        await write(ep, ["ana"])
        await finish(ep, app_with(on_loop))
        async with (await ep.stream("s/g-dead-letters")).writer() as writer:
            await writer.write(b"by hand", key="ana", headers={"ep-error": "boom"})
        found = await ep.dead_letters(GROUP).list()
    assert [(each.error, each.traceback is None) for each in found] == [("no price", False), ("boom", True)]
