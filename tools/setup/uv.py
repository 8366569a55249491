"""uv: the one on PATH, or the one that `uv.lock` pins, fetched into `.tools/` and checked against its hash there."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools.setup.indexes import Indexes, fetch

# Older ones cannot read the lock file or lack an option used here.
VERSION_MIN = (0, 5, 14)


@dataclass(frozen=True)
class LockedUv:
    """The version of uv in the lock file and the SHA-256 of each of its wheels, by file name."""

    version: str
    hashes: dict[str, str]

    @classmethod
    def read(cls, lock: Path) -> LockedUv:
        """Return what the lock file says about uv."""
        packages = tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
        (uv,) = (package for package in packages if package["name"] == "uv")
        hashes = {PurePosixPath(w["url"]).name: w["hash"].removeprefix("sha256:") for w in uv["wheels"]}
        return cls(uv["version"], hashes)

    def wheel_for_this_machine(self) -> str:
        """Return the name of the wheel that runs here; SystemExit when uv is not made for this machine."""
        for filename in sorted(self.hashes):
            if any(map(_runs_here, filename.removesuffix(".whl").rsplit("-", 1)[-1].split("."))):
                return filename
        raise SystemExit(
            f"uv {self.version} has no wheel for this machine: install uv yourself, then try again"
        )


def find_uv(root: Path, indexes: Indexes) -> Path:
    """Return a uv that works: the one on PATH if new enough, else the locked one, fetched if it is not here."""
    if (found := shutil.which("uv")) and _version_of(found) >= VERSION_MIN:
        return Path(found)
    locked = LockedUv.read(root / "uv.lock")
    program = root / ".tools" / f"uv-{locked.version}" / "uv"
    if not program.exists():
        _install(locked, program, indexes)
    return program


def _install(locked: LockedUv, program: Path, indexes: Indexes) -> None:
    filename = locked.wheel_for_this_machine()
    print(f"set-up: fetching {filename}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder) / filename
        if not _download_with_pip(locked, wheel):
            try:
                wheel.write_bytes(fetch(indexes.find_file("uv", filename)))
            except OSError as error:
                raise SystemExit(f"set-up: {error}. Name an index in PIP_INDEX_URL, or install uv.") from None
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != locked.hashes[filename]:
            raise SystemExit(f"{filename}: SHA-256 is {found}, uv.lock says {locked.hashes[filename]}")
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".part")
        with zipfile.ZipFile(wheel) as archive:
            unfinished.write_bytes(archive.read(f"uv-{locked.version}.data/scripts/uv"))
    unfinished.chmod(0o755)
    unfinished.rename(program)


def _download_with_pip(locked: LockedUv, wheel: Path) -> bool:
    """Let pip fetch the wheel, if there is a pip: it knows logins, proxies and mirrors that we do not."""
    if importlib.util.find_spec("pip") is None:
        return False
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(wheel.parent), f"uv=={locked.version}"]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0 and wheel.exists()


def _version_of(program: str) -> tuple[int, ...]:
    try:
        command = [program, "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(map(int, numbers.groups())) if (numbers := re.match(r"uv (\d+)\.(\d+)\.(\d+)", said)) else ()


def _runs_here(tag: str) -> bool:
    """Whether a wheel with platform `tag` (PEP 600, 656) runs on this machine."""
    wanted = re.fullmatch(r"(manylinux|musllinux|macosx)_(\d+)_(\d+)_(\w+)", tag)
    if wanted is None or wanted[4] != platform.machine():
        return False
    libc, libc_version = platform.libc_ver()
    if sys.platform == "darwin":
        system, version = "macosx", platform.mac_ver()[0]
    elif libc == "glibc":
        system, version = "manylinux", libc_version
    else:
        system, version = "musllinux", "1.2"
    numbers = tuple(map(int, version.split(".")[:2]))
    return wanted[1] == system and (int(wanted[2]), int(wanted[3])) <= numbers
