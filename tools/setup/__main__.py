"""Make `.venv/` hold what `uv.lock` says, and the project itself, editable."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tools.setup.indexes import Indexes
from tools.setup.uv import find_uv

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "set-up"


def main() -> None:
    """Do nothing when the stamp is that of the present files; else install, and stamp."""
    if _is_current():
        return
    tools = ROOT / ".tools"
    tools.mkdir(exist_ok=True)
    with (tools / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two concurrent `make`, the second finds the work done
        if not _is_current():
            _install()
            STAMP.write_text(_wanted_stamp())


def _install() -> None:
    if VENV.is_symlink():  # to the environment of another checkout, which must stay as it is
        VENV.unlink()
    made_for = _made_for()
    STAMP.unlink(missing_ok=True)  # what is interrupted from here on is none of what was there, nor whole
    print(f"set-up: installing into {VENV}", file=sys.stderr)
    indexes = Indexes.configured(os.environ)
    uv = find_uv(ROOT, indexes)
    environment = {
        **os.environ,
        **indexes.environment_for_uv(),
        "UV_PYTHON_DOWNLOADS": "never",
        "VIRTUAL_ENV": str(VENV),
    }

    def run(*arguments: str | Path, stdout: int = sys.stderr.fileno()) -> str:
        done = subprocess.run(
            [uv, *arguments, "--quiet"], cwd=ROOT, env=environment, stdout=stdout, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"set-up: uv {arguments[0]} failed, see above")
        return done.stdout or ""

    if not PYTHON.exists() or made_for != _place():  # the scripts in it name the place
        run("venv", "--clear", "--python", sys.executable, VENV)
    # Through requirements with hashes instead of `uv sync`, because that one fetches from the addresses in the
    # lock file, and a machine behind a mirror cannot reach them.
    locked = run(
        "export", "--frozen", "--no-emit-project", "--all-groups", "--all-extras", stdout=subprocess.PIPE
    )
    requirements = ROOT / ".tools" / "requirements.txt"
    requirements.write_text(locked, encoding="utf-8")
    run("pip", "sync", "--python", PYTHON, "--require-hashes", requirements)
    # hatchling is among the requirements: nothing is fetched that the lock file does not name.
    run("pip", "install", "--python", PYTHON, "--no-deps", "--no-build-isolation", "--editable", ROOT)


def _is_current() -> bool:
    try:
        return PYTHON.exists() and STAMP.read_text() == _wanted_stamp()
    except FileNotFoundError:
        return False


def _wanted_stamp() -> str:
    """Return where the environment is, for which Python, and a digest of everything that it is made from."""
    sources = [(ROOT / name).read_bytes() for name in ("uv.lock", "pyproject.toml")]
    return f"{_place()}\n{hashlib.sha256(bytes(1).join(sources)).hexdigest()}\n"


def _place() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor} {ROOT}"


def _made_for() -> str | None:
    """Return the place of the environment that is there; None when its set-up was interrupted, or there is none."""
    try:
        return STAMP.read_text().splitlines()[0]
    except (FileNotFoundError, IndexError):
        return None


if __name__ == "__main__":
    main()
