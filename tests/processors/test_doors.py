"""What is no processor, and no choice of one, is refused where it is given, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eventproc.processors import App, RetryPolicy
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import AlreadyExists, InvalidArgument
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event
from eventproc.windows import Tumbling
from tests.processors.support import GROUP, OUT, STREAM, system


async def test_what_a_processor_cannot_be_is_refused_when_it_is_declared() -> None:
    async def handle(event: Event) -> None:
        pass

    app = App()
    with pytest.raises(InvalidArgument, match="batch"):
        app.add(handle, STREAM, linger_ms=5)
    with pytest.raises(InvalidArgument, match="linger_ms"):
        app.add(handle, STREAM, batch=2, linger_ms=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="timeout_ms"):
        app.add(handle, STREAM, exactly_once=True, timeout_ms=None)
    with pytest.raises(InvalidArgument, match="on_commit"):
        app.add(handle, STREAM, on_commit=lambda tx, batch: None)
    with pytest.raises(InvalidArgument, match=r"retry\.frees_key.*waits for all events of a round"):
        app.add(handle, STREAM, exactly_once=True, retry=RetryPolicy(frees_key=True))
    with pytest.raises(InvalidArgument, match="order"):
        app.add(handle, STREAM, order="keys")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="at least one"):
        app.add(handle)
    with pytest.raises(InvalidArgument, match="only exactly_once=True processes in rounds"):
        app.add(handle, STREAM, round_events=5)
    with pytest.raises(InvalidArgument, match="no dead letters are written"):
        app.add(handle, STREAM, on_failure="skip", dead_letters="s/dead")
    with pytest.raises(InvalidArgument, match="a type"):
        app.add(handle, STREAM, payload="text")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="named twice"):
        app.add(handle, STREAM, STREAM)
    with pytest.raises(InvalidArgument, match="must be str"):
        app.add(handle, STREAM, name=5, group=GROUP)  # type: ignore[call-overload]


async def _decide(_: object, __: object = None) -> None:
    raise AssertionError("it is never awaited")


def test_setup_on_commit_and_supervise_must_be_plain_functions() -> None:
    async def handle(event: Event) -> None:
        pass

    app = App()
    with pytest.raises(InvalidArgument, match=r"supervise.*plain function"):
        app.add(handle, STREAM, supervise=_decide)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"on_commit.*plain function"):
        app.add(handle, STREAM, exactly_once=True, on_commit=_decide)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"setup.*plain function"):
        app.setup(_decide)


def test_two_processors_of_an_app_do_not_share_a_stream_of_dead_letters() -> None:
    async def handle(event: Event) -> None:
        pass

    app = App()
    app.add(handle, STREAM, name="one", dead_letters="s/dead")
    with pytest.raises(AlreadyExists, match="s/dead"):
        app.add(handle, STREAM, name="two", dead_letters="s/dead")


@pytest.mark.parametrize("other", ["skip", "stop"])
def test_who_writes_no_dead_letters_shares_no_stream_of_them(other: Any) -> None:
    async def handle(event: Event) -> None:
        pass

    app = App()
    app.add(handle, STREAM, name="one", group="s/one", on_failure=other)
    app.add(handle, STREAM, name="two", dead_letters="s/one-dead-letters")
    app.add(handle, STREAM, name="three", on_failure=other)
    with pytest.raises(AlreadyExists, match="s/one-dead-letters"):
        app.add(handle, STREAM, name="four", dead_letters="s/one-dead-letters")


CUT = StreamCut(OUT, 1, {SegmentId(0): 0})


@pytest.mark.parametrize(
    "start", ["zz", "", b"head", 3.5, True, None, ["head"], CUT, {STREAM: "head"}, {OUT: CUT}]
)
def test_a_processor_begins_at_a_place(start: Any) -> None:
    app = App()
    with pytest.raises(InvalidArgument, match="start"):
        app.add(lambda _event: None, STREAM, name="p", start=start)
    assert app.processors == ()


@pytest.mark.parametrize("exactly_once", ["yes", 1, 0, None])
def test_exactly_once_is_yes_or_no(exactly_once: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"exactly_once.*True or False"):
        App().add(lambda _event: None, STREAM, name="p", exactly_once=exactly_once)


@pytest.mark.parametrize("retry", [3, 0, False, None, {}])
def test_a_retry_policy_is_one_or_is_not_given(retry: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"retry.*RetryPolicy"):
        App().add(lambda _event: None, STREAM, name="p", retry=retry)


def test_a_first_pause_beyond_the_longest_one_is_refused_as_the_one_that_was_given() -> None:
    with pytest.raises(
        InvalidArgument, match=r"retry.wait_ms '60000': it must be at most wait_ms_max, which is 10000"
    ):
        RetryPolicy(wait_ms=60_000)


@pytest.mark.parametrize(
    "permanent", [[ValueError], ValueError, None, (ValueError("x"),), (int,), (KeyboardInterrupt,), "x"]
)
def test_what_no_repetition_mends_is_a_tuple_of_exception_classes(permanent: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"retry.permanent.*a tuple of exception classes"):
        RetryPolicy(permanent=permanent)


@pytest.mark.parametrize("wrong", ["x", -1, 1.5, True])
async def test_who_waits_or_stops_says_for_how_many_ms(wrong: Any) -> None:
    async def handle(event: Event) -> None:
        pass

    app = App()
    app.add(handle, STREAM)
    async with system() as ep, ep.run(app) as running:
        await running.wait_idle()
        with pytest.raises(InvalidArgument, match="timeout_ms"):
            await running.wait_idle(timeout_ms=wrong)
        with pytest.raises(InvalidArgument, match="grace_ms"):
            await running.stop(grace_ms=wrong)


@pytest.mark.parametrize(
    ("declares", "option"),
    [
        (lambda app, **given: app.worker(STREAM, **given), {"on_truncated": "error"}),
        (lambda app, **given: app.worker(STREAM, **given), {"idle_ms": 5}),
        (lambda app, **given: app.projection(STREAM, **given), {"timeout_ms": 5}),
        (lambda app, **given: app.window(STREAM, Tumbling(5), value=dict, **given), {"order": "segment"}),
        (lambda app, **given: app.join(STREAM, is_left=bool, within_ms=5, **given), {"state": int}),
        (lambda app, **given: app.periodic(STREAM, cron="* * * * *", **given), {"batch": 5}),
    ],
)
def test_option_that_nothing_would_follow_is_refused(
    declares: Callable[..., Any], option: dict[str, Any]
) -> None:
    def handle(event: Event, window: Any) -> None:
        pass

    (name,) = option
    with pytest.raises(TypeError, match=rf"App\.\w+\(\) got an unexpected keyword argument '{name}'"):
        declares(App(), **option)(handle)


def test_handler_of_a_window_that_takes_an_event_only_is_refused_with_what_it_gets() -> None:
    with pytest.raises(InvalidArgument, match="an event, its Window, and a Context if it wants one"):
        App().window(STREAM, Tumbling(5), value=dict, name="w")(lambda event: None)
