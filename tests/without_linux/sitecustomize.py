"""Takes what only Linux has from every Python that starts with this folder in PYTHONPATH: `make test-without-linux`.

`eventproc.base.kernel` is imported as on macOS. The calls that macOS lacks are removed from the modules of the standard
library, and code of eventproc finds no file in /proc and /dev/shm. The rest stays that of Linux: sys.platform, because
other libraries choose their files by it, and epoll, which trio imports for it.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = tuple(f"{ROOT / layer}/" for layer in ("eventproc", "store", "workflows", "cli"))
HIDDEN: Final = ("/proc/", "/dev/shm/")
OPENING: Final = frozenset({"open", "os.listdir", "os.scandir"})
"""Python's audit events whose first argument is a path."""

KERNEL: Final = "eventproc.base.kernel"

REMOVED: Final = {
    fcntl: "F_GETPIPE_SZ F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETPIPE_SZ",
    os: "O_DIRECT O_NOATIME O_PATH O_TMPFILE copy_file_range eventfd fdatasync getrandom getresuid memfd_create"
    " pidfd_open pipe2 posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity setns splice unshare waitid",
    resource: "RUSAGE_THREAD prlimit",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "SO_PEERCRED TCP_CORK TCP_KEEPIDLE TCP_QUICKACK TCP_USER_TIMEOUT",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}

PRINTED: Final = {
    ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"): "6E1B2A0C-6C3B-4D5A-9E57-0B1A7C2D3E4F\n",
    ("/sbin/mount",): "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
    "/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect)\n",
}
"""What programs of macOS print, by their command."""


def _hide(event: str, arguments: tuple[object, ...]) -> None:
    if event in OPENING and str(arguments[0]).startswith(HIDDEN):
        caller = sys._getframe(1)
        while caller.f_back is not None and caller.f_code.co_filename.endswith("/pathlib.py"):
            caller = caller.f_back
        if caller.f_code.co_filename.startswith(PRODUCT):
            raise FileNotFoundError(2, "not on macOS", arguments[0])


def _import_kernel() -> ModuleType:
    """Import it as on macOS, and none of what it imports."""
    spec = spec_from_file_location(KERNEL, ROOT / "eventproc/base/kernel.py")
    assert spec is not None and spec.loader is not None
    sys.modules[KERNEL] = kernel = module_from_spec(spec)
    linux, sys.platform = sys.platform, "darwin"
    try:
        spec.loader.exec_module(kernel)
    finally:
        sys.platform = linux
    return kernel


def _become() -> None:
    full_sync = 51  # Linux refuses the request, as some file systems of macOS do
    for module, name, value in (
        (socket, "TCP_KEEPALIVE", vars(socket)["TCP_KEEPIDLE"]),
        (fcntl, "F_FULLFSYNC", full_sync),
    ):
        setattr(module, name, value)
    for module, names in REMOVED.items():
        listed = vars(module).get("__all__", [])
        for name in names.split():
            vars(module).pop(name, None)
            if name in listed:
                listed.remove(name)
    vars(_import_kernel())["_output"] = lambda *command: PRINTED[command]
    sys.addaudithook(_hide)


_become()
