"""The process that `CrashDirectory.start` starts: `python -m eventproc.testing.crash_child`, with its task as input."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import ModuleType
from typing import cast

import anyio

from eventproc.testing.crash import SIZE_BYTES, ChildTask, run_child


def main() -> None:
    """Run the task that the input begins with."""
    task = cast("ChildTask", pickle.loads(_task_bytes()))
    function = cast("Callable[..., Awaitable[object]]", getattr(_module(task), task.function))
    anyio.run(partial(run_child, task, function))


def _task_bytes() -> bytes:
    """Return what `CrashDirectory.start` sent, and read nothing behind it: that is the function's."""
    with open(0, "rb", buffering=0, closefd=False) as given:
        size, found = int.from_bytes(given.read(SIZE_BYTES)), b""
        while len(found) < size and (more := given.read(size - len(found))):
            found += more
    return found


def _module(task: ChildTask) -> ModuleType:
    """Import the module of the function: by its name, or from its file, as pytest may have done.

    A program gets the name that `multiprocessing` gives it, so that it does not run here, too.
    """
    try:
        module = importlib.import_module(task.module)
        if module.__file__ == task.source:
            return module
    except ModuleNotFoundError as why:
        if why.name is None or why.name.partition(".")[0] != task.module.partition(".")[0]:
            raise
    assert task.source is not None, f"{task.module} has no file"
    name = "__mp_main__" if task.module == "__main__" else task.module
    spec = importlib.util.spec_from_file_location(name, task.source)
    assert spec is not None and spec.loader is not None, f"{task.source} is no module"
    module = sys.modules[task.module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
