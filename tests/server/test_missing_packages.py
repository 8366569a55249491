"""Servers without the packages of their extra: a refusal that names them, before anything is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eventproc.testing.crash import PATIENCE_S, environment

pytestmark = pytest.mark.subprocess

CHILD = """
import sys
sys.modules[sys.argv.pop(1)] = None
from eventproc.cli.entry import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("grpclib", ["serve"]),
        ("hypercorn", ["serve", "--rest", "0"]),
        ("prometheus_client", ["run", "--metrics", "0"]),
    ],
)
def test_a_server_without_its_packages_is_refused_with_the_extra_to_install(
    tmp_path: Path, package: str, command: list[str]
) -> None:
    directory = tmp_path / "data"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, package, "-C", str(directory), *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert package in done.stderr
    assert "pip install 'eventproc[server]'" in done.stderr
    assert not directory.exists()
