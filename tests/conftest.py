"""What every test may use: both event loops, trio's in virtual time, and how hard to hunt.

Async tests need no mark: each runs on asyncio and on trio. A test of what exists on asyncio alone (the database in a
file) overrides the fixture, in its module or in its folder's conftest:

    @pytest.fixture
    def anyio_backend() -> str:
        return "asyncio"
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import trio.testing
from hypothesis import HealthCheck, settings

EXAMPLES = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hunt", type=int, default=1, metavar="N", help="N times as many seeds and examples")
    parser.addoption("--hunt-from", type=int, default=0, metavar="SEED", help="the first seed of each hunt")


def pytest_configure(config: pytest.Config) -> None:
    factor = _number(config, "--hunt")
    settings.register_profile(
        "eventproc",
        max_examples=EXAMPLES * factor,
        deadline=None,  # two cores that others use too: time says nothing about correctness
        derandomize=factor
        == 1,  # the slice within `make test` is the same for everyone; a hunt looks further
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("eventproc")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test marked `hunt(seeds=N)` its `seed`, one run each; `--hunt-from 17 --hunt 1` finds seed 17 again."""
    hunt = metafunc.definition.get_closest_marker("hunt")
    if hunt is None:
        return
    (count,) = (*hunt.args, *hunt.kwargs.values())
    first = _number(metafunc.config, "--hunt-from")
    factor = _number(metafunc.config, "--hunt")
    metafunc.parametrize("seed", range(first, first + count * factor), ids=lambda seed: f"seed{seed}")


def _number(config: pytest.Config, option: str) -> int:
    value = config.getoption(option)
    assert isinstance(value, int), f"{option} is {value!r}"
    return value


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """Run each async test on asyncio, and on trio in virtual time.

    The clock is made here, one per test: a clock shared by tests carries its offset from one into the next.
    """
    if request.param == "trio":
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}
    return "asyncio", {}


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
