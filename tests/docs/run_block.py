"""What a reader does beside typing: complete fragments to a program, and press Ctrl-C. Run by the script of a page.

python run_block.py fragments FILE            runs FILE in an `async def` with `ep`
python run_block.py until-interrupt COMMAND   interrupts COMMAND when it serves; its exit code must be 0
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import signal
import subprocess
import sys
from pathlib import Path

import eventproc


async def run_fragments(name: str, source: str) -> None:
    """Run fragments of a program, in which `await` is allowed and `ep` is the open directory `data/`."""
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with eventproc.open("data/") as ep:
        result = eval(code, {"ep": ep, "eventproc": eventproc})
        if inspect.iscoroutine(result):
            await result


def run_until_interrupt(command: list[str]) -> int:
    """Run a command, press Ctrl-C when it says that it serves, and return its exit code."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        interrupted = False
        for line in process.stderr:
            sys.stderr.write(line)
            if "serving" in line and not interrupted:  # each worker says so
                interrupted = True
                process.send_signal(signal.SIGINT)
        return process.wait()


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    if action == "fragments":
        (name,) = arguments
        asyncio.run(run_fragments(name, Path(name).read_text(encoding="utf-8")))
    else:
        sys.exit(run_until_interrupt(arguments))
