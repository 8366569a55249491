"""What every test may use: both event loops (trio in virtual time), the number of seeds, and the marks of slow tests.

Async tests need no mark: each runs on asyncio and on trio. For tests of what exists on asyncio alone (the database in a
file), their module or their folder's conftest imports the fixture of `tests.support.asyncio_alone`.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sqlite3
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from tempfile import TemporaryFile
from typing import Any, Final, TypeAlias

import pytest
from _pytest.capture import CaptureManager
from hypothesis import HealthCheck, settings
from pytest_timeout import Settings

from eventproc.base.kernel import LINUX
from tests.support.commit_path import commit_path as commit_path  # a fixture
from tests.support.hunt_counts import counted_line
from tests.support.postgres import server as server  # a fixture
from tests.support.virtual_time import virtual_time

EXAMPLES = 100

FOLDER_MARKS = {
    "tests/system/": "torture",
    "tests/torture/": "torture",
    "tests/spark/": "spark",
    "tests/page/": "subprocess",
    "tests/packaging/": "packaging",
}
"""The mark of every test in these folders. Elsewhere a module or a test carries its mark itself."""

PROCESS_MARKS = frozenset({"subprocess", *FOLDER_MARKS.values()})
"""Tests with one of these marks may start processes; `make test-fast` leaves them out."""

LIMIT_S: Final = 300
"""How long a test may take, with its fixtures. The waits inside a test end sooner (`PATIENCE_S`), and say more.
Lower: a busy machine fails tests; higher: a test that hangs is seen later. `--timeout 0` ends none, for a debugger."""

LIMITS_S: Final = {"subprocess": 600, **dict.fromkeys(FOLDER_MARKS.values(), 1_800)}
"""The limits of tests with these marks: each process, and Spark even more, takes long to start on a busy machine."""

FORMS: Final = frozenset({"anyio_backend", "form", "runtime"})
"""Fixtures that repeat a test on another event loop, or on a database in a file; `--one-form` chooses one repeat."""

STDERR: Final = pytest.StashKey[int]()
"""The standard error of the process itself, where nothing captures it; that of a worker is that of the run."""

TIMER: Final = pytest.StashKey[threading.Timer]()
"""What ends the process of a test that hangs."""

# PySpark would make these loggers of a class of its own, which pass nothing on, and make every handler that they get
# write JSON: those of pytest, too, for all later tests.
for each in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
    logging.getLogger(each).setLevel(logging.CRITICAL)

Variant: TypeAlias = tuple[str, Mapping[str, object]]
"""A test as it is collected: its name without parameters, and its parameters."""

STARTS_A_PROCESS = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
)
"""Python's audit events of a process that starts another one."""

SYSTEM_PROGRAMS: Final = frozenset({"/sbin/mount", "/usr/sbin/sysctl", "fc-list"})
"""What `eventproc.base.kernel` asks on macOS, and what matplotlib asks for fonts, once on each machine."""


def _is_of_this_test(record: logging.LogRecord) -> bool:
    """Return False for what asyncio says, tests later, of a process whose end its transport noticed first."""
    return not str(record.msg).startswith("Unknown child process pid")


logging.getLogger("asyncio").addFilter(_is_of_this_test)


def _reversing(connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
    """Return `sqlite3.connect` whose connections reverse the order of rows that no ORDER BY gives."""

    def connect_reversed(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA reverse_unordered_selects = ON")
        return connection

    return connect_reversed


sqlite3.connect = _reversing(sqlite3.connect)  # type: ignore[assignment]  # a SELECT whose order matters must say so


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hunt", type=float, default=1.0, metavar="N", help="N times as many seeds and examples"
    )
    parser.addoption("--hunt-from", type=int, default=0, metavar="SEED", help="the first seed of each hunt")
    parser.addoption(
        "--one-form",
        action="store_true",
        help="run each test on one event loop and in one form of the database, by turns",
    )
    parser.addoption(
        "--rewrite", action="store_true", help="write the results that were found into golden scripts"
    )


def pytest_configure(config: pytest.Config) -> None:
    factor = _factor(config)
    settings.register_profile(
        "eventproc",
        max_examples=max(round(EXAMPLES * factor), 1),
        deadline=None,  # two cores that others use too: time says nothing about correctness
        derandomize=factor <= 1,  # without a hunt everyone runs the same examples
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("eventproc")
    # A shell in the background and `nohup` let a process ignore these signals. The processes of tests would inherit
    # that, and a test that interrupts itself would wait forever: a handler, unlike SIG_IGN, is not inherited.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, _stay)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

    capture = config.pluginmanager.getplugin("capturemanager")
    assert isinstance(capture, CaptureManager)
    with capture.global_and_fixture_disabled():
        config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool:
    """End the process of a test at its limit, after its name and the stacks of all threads are printed.

    An exception that a signal handler raises would surface anywhere in the event loop, and leave threads and tasks to
    the tests that follow. Of several workers, the one that ends is replaced, and its test is reported as failed. The
    plugin's own thread prints nothing in a worker, whose output is closed.
    """
    timer = threading.Timer(settings.timeout, _end_hanging, (item.nodeid, item.config.stash[STDERR]))
    timer.daemon = True  # virtual time passes beside daemons only
    item.stash[TIMER] = timer
    timer.start()
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    """Stop the timer of a test; one whose skip mark came first has none."""
    if (timer := item.stash.get(TIMER, None)) is not None:
        timer.cancel()
    return True


def _end_hanging(test: str, stderr: int) -> None:
    said = f"\n{test} has reached its time limit. The stacks of all threads:\n".encode()
    with TemporaryFile() as stacks:
        faulthandler.dump_traceback(stacks)
        stacks.seek(0)
        os.write(stderr, said + stacks.read())  # at once: another worker may end at the same time
    os._exit(1)


def _stay(_number: int, _frame: object) -> None:
    """Handle a signal by going on, as if it was ignored."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test marked `hunt(seeds=N)` its `seed`, one run each; `--hunt-from 17 --hunt 1` finds seed 17 again."""
    hunt = metafunc.definition.get_closest_marker("hunt")
    if hunt is None:
        return
    (count,) = (*hunt.args, *hunt.kwargs.values())
    first = metafunc.config.getoption("--hunt-from")
    assert isinstance(first, int), f"--hunt-from is {first!r}"
    seeds = range(first, first + max(round(count * _factor(metafunc.config)), 1))
    metafunc.parametrize("seed", seeds, ids=lambda seed: f"seed{seed}")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if (line := counted_line(terminalreporter.getreports("passed"))) is not None:
        terminalreporter.write_line(line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for folder, mark in FOLDER_MARKS.items():
            if item.nodeid.startswith(folder):
                item.add_marker(mark)
        if config.getoption("timeout") is None:
            item.add_marker(pytest.mark.timeout(_limit_s(item) * max(_factor(config), 1)))
    if not LINUX:
        _choose(config, items, [item.get_closest_marker("linux") is None for item in items])
    if config.getoption("--one-form"):
        _choose(config, items, choose_forms([_variant(item) for item in items]))
    # First, so that one of several workers has them all when the others begin to take tests from it: one Spark session.
    items.sort(key=lambda item: not item.nodeid.startswith("tests/spark/"))


def _choose(config: pytest.Config, items: list[pytest.Item], chosen: list[bool]) -> None:
    config.hook.pytest_deselected(
        items=[item for item, is_chosen in zip(items, chosen, strict=True) if not is_chosen]
    )
    items[:] = [item for item, is_chosen in zip(items, chosen, strict=True) if is_chosen]


def _limit_s(item: pytest.Item) -> int:
    return max(
        (seconds for mark, seconds in LIMITS_S.items() if item.get_closest_marker(mark)), default=LIMIT_S
    )


def _variant(item: pytest.Item) -> Variant:
    callspec = item.callspec if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return item.nodeid.partition("[")[0], {} if callspec is None else callspec.params


def choose_forms(variants: Iterable[Variant]) -> list[bool]:
    """Return which variants to run: of those that differ in `FORMS` alone one, by turns."""
    keys = [
        (name, *sorted((each, id(value)) for each, value in parameters.items() if each not in FORMS))
        for name, parameters in variants
    ]
    places: dict[tuple[object, ...], list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    chosen = {
        same[(zlib.crc32(str(key[0]).encode()) + turn) % len(same)]
        for turn, (key, same) in enumerate(places.items())
    }
    return [place in chosen for place in range(len(keys))]


def _factor(config: pytest.Config) -> float:
    factor = config.getoption("--hunt")
    assert isinstance(factor, float), f"--hunt is {factor!r}"
    return factor


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """Run each async test on asyncio, and on trio in virtual time."""
    return virtual_time() if request.param == "trio" else ("asyncio", {})


@pytest.fixture
def _eventproc_run(request: pytest.FixtureRequest, anyio_backend: tuple[str, object]) -> tuple[int, str]:
    """Run what takes `eventproc_runtime` on the event loop of this run of the test."""
    return request.param[0], anyio_backend[0]


@pytest.fixture(scope="module", autouse=True)
def _no_idle_pool_is_left() -> Iterator[None]:
    """End the threads of pyiceberg after a module: beside them, each jump of virtual time on asyncio takes 10 ms."""
    yield
    if used := sys.modules.get("pyiceberg.utils.concurrent"):
        used.ExecutorFactory.get_or_create().shutdown()
        used.ExecutorFactory._instance = None


@pytest.fixture(scope="session", autouse=True)
def _children_compile_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let processes that tests start keep what they compile, aside, where the environment says not to keep it.

    Images of containers often say so. Without it each of hundreds of processes takes twice the time to begin.
    """
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        yield


class ProcessGuard:
    """Refuses new processes while a test without one of the `PROCESS_MARKS` runs."""

    def __init__(self) -> None:
        self.refuses = False
        self.refused: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """Receive an audit event of the interpreter."""
        if self.refuses and event in STARTS_A_PROCESS and SYSTEM_PROGRAMS.isdisjoint(arguments[:1]):
            self.refused.append(event)
            raise AssertionError(f"{event}: mark this test with one of {sorted(PROCESS_MARKS)}")


GUARD = ProcessGuard()
sys.addaudithook(GUARD)


@pytest.fixture(autouse=True)
def _only_marked_tests_start_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts a process without a mark: it would slow down `make test-fast`."""
    item = request.node
    assert isinstance(item, pytest.Item)
    GUARD.refuses = not any(item.get_closest_marker(mark) for mark in PROCESS_MARKS)
    yield
    GUARD.refuses = False
    refused, GUARD.refused = GUARD.refused, []
    assert refused == [], f"the test started processes: mark it with one of {sorted(PROCESS_MARKS)}"
