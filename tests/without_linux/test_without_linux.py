"""A small part of `make test-without-linux`, in processes of its own; that one has the fast tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eventproc.testing.crash import PATIENCE_S, environment

SAID = """\
linux False
read ['1 apple', '2 pears']
billed 2 pears
taken over ['2 pears', '3 figs']
mailed 1 apple
mailed 2 pears
mailed 3 figs
file_system apfs
doctor 0
"""


@pytest.mark.subprocess
def test_first_use_and_a_kill_need_no_call_that_only_linux_has(tmp_path: Path) -> None:
    variables = environment([Path(__file__).parent])
    done = subprocess.run(
        [sys.executable, "-c", "from tests.without_linux.first_use import main; main()", tmp_path / "store"],
        env=variables,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == SAID
