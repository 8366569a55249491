"""The pytest plugin: the marker `seeds`, and the fixtures `eventproc_runtime`, `_world`, `_crash` and `_kafka`.

It imports nothing until it is used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from eventproc.testing import CrashDirectory, KafkaEndpoint, SimulatedWorld, VirtualRuntime

FIXTURE = "eventproc_runtime"
WORLD = "eventproc_world"

_PARAMETER = "_eventproc_run"
"""Name of the fixture whose value is the seed and the backend of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting."""
    group = parser.getgroup("eventproc")
    group.addoption(
        "--eventproc-seed", type=int, metavar="N", help="run tests marked `seeds` with this seed only"
    )
    group.addoption(
        "--eventproc-seeds", type=int, metavar="N", help="run tests marked `seeds` with seeds 0 to N-1"
    )
    parser.addini(
        "eventproc_backends",
        "event loops for tests with eventproc_runtime: asyncio, trio",
        "args",
        ["asyncio"],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "seeds(n): run the test with n seeds, on trio, where a seed gives one schedule"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test with the fixture its event loops or seeds, one run each."""
    marker = metafunc.definition.get_closest_marker("seeds")
    if FIXTURE not in metafunc.fixturenames:
        if marker is not None:
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: marker seeds needs the fixture {FIXTURE}")
        return
    if marker is not None:
        runs = [(seed, "trio") for seed in _seeds(metafunc.definition.nodeid, marker, metafunc.config)]
        ids = [f"seed{seed}" for seed, _ in runs]
    else:
        ids = metafunc.config.getini("eventproc_backends")
        runs = [(0, backend) for backend in ids]
    metafunc.parametrize(_PARAMETER, runs, ids=ids, indirect=True)


def _seeds(test: str, marker: pytest.Mark, config: pytest.Config) -> range:
    try:
        (count,) = (*marker.args, *marker.kwargs.values())
        count = int(count)
    except (TypeError, ValueError):
        raise pytest.UsageError(f"{test}: write the marker with a number, such as seeds(20)") from None
    seed, seeds = config.getoption("--eventproc-seed"), config.getoption("--eventproc-seeds")
    if seed is not None:
        return range(seed, seed + 1)
    return range(count if seeds is None else seeds)


@pytest.fixture
def _eventproc_run(request: pytest.FixtureRequest) -> tuple[int, str]:
    """Return the seed and the event loop of this run of the test."""
    seed, backend = request.param
    return seed, backend


@pytest.fixture
def eventproc_runtime(_eventproc_run: tuple[int, str]) -> VirtualRuntime:
    """A runtime in memory and in virtual time. An `async def` test that takes it runs in it."""
    from eventproc.testing import VirtualRuntime

    seed, backend = _eventproc_run
    return VirtualRuntime(seed=seed, backend=backend)  # type: ignore[arg-type]


@pytest.fixture
def eventproc_crash(tmp_path: Path) -> Iterator[CrashDirectory]:
    """A new directory, and processes on it that the test kills and suspends. They are killed at its end."""
    from eventproc.testing import CrashDirectory

    with CrashDirectory(tmp_path / "eventproc") as crash:
        yield crash


@pytest.fixture
def eventproc_kafka() -> Iterator[KafkaEndpoint]:
    """An endpoint for Kafka's clients, on a new system in memory. Needs the extras `server` and `kafka`."""
    from eventproc.testing import KafkaEndpoint

    with KafkaEndpoint() as kafka:
        yield kafka


@pytest.fixture
def eventproc_world(eventproc_runtime: VirtualRuntime) -> SimulatedWorld:
    """A world of several instances in memory. An `async def` test that takes it runs in it, in virtual time."""
    from eventproc.testing import SimulatedWorld

    return SimulatedWorld(seed=eventproc_runtime.seed)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run an `async def` test that takes the fixture on its runtime, before other plugins look at the test."""
    test = pyfuncitem.obj
    if FIXTURE not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(test):
        return (yield)
    runtime = cast("VirtualRuntime", pyfuncitem.funcargs[FIXTURE])
    world = cast("SimulatedWorld | None", pyfuncitem.funcargs.get(WORLD))  # perhaps of another fixture

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        runtime.run(_in_world, world, functools.partial(test, **arguments))

    pyfuncitem.obj = run
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test


async def _in_world(
    world: SimulatedWorld | None, test: Callable[[], Coroutine[object, object, object]]
) -> None:
    if world is None:
        await test()
        return
    async with world:
        await test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how to replay a failure with a seed."""
    report = yield
    if report.failed and item.get_closest_marker("seeds") is not None:
        seed, _ = getattr(item, "funcargs", {}).get(_PARAMETER, (None, None))
        test = item.nodeid.partition("[")[0]
        report.sections.append(("eventproc", f"seed {seed}; again: pytest '{test}' --eventproc-seed {seed}"))
    return report
