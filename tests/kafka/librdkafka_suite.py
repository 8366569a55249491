"""The tests of librdkafka itself against a serving process, compared with what is expected of each.

    python -m tests.kafka.librdkafka_suite [NAME...]

Fetches the source of librdkafka from Debian, and builds it below `build/librdkafka/`. Each test that needs a server
runs by itself; a NAME is the begin of a test's name. `client_scripts/librdkafka.txt` says why some do not pass. The
tests expect a cluster that creates topics when they are used; the patch beside that file creates them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from eventproc import open_blocking
from tests.server.support import ServerProcess
from tools.kafka_clients import PINS, ROOT

BUILT = ROOT / "build" / "librdkafka"
SOURCE = BUILT / "source"
RUNNER = SOURCE / "tests" / "test-runner"
SOURCES = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
TEST = re.compile(r'_TEST\((\d{4}_\w+),\s*([A-Z_0-9| ]+?)\s*[,)]((?:(?!_TEST)[^;])*scenario = "noauto)?')
NO_SERVER = "TEST_F_LOCAL", "TEST_F_MANUAL", "TEST_F_KNOWN_ISSUE"
PATIENCE_S = 600


def fetch() -> None:
    """Fetch the source with lists of packages of its own, and unpack it as its authors have published it."""
    shutil.rmtree(BUILT, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "source"):
        (BUILT / folder).mkdir(parents=True)
    (BUILT / "debian.sources").write_text(SOURCES)
    settings = {
        "Dir::Etc::SourceList": "debian.sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": "lists",
        "Dir::Cache": "cache",
    }
    options = [f"-o{name}={BUILT / value}" for name, value in settings.items()]
    run("apt-get", "-qq", *options, "update", where=BUILT)
    run("apt-get", "-qq", *options, "source", "--download-only", "librdkafka", where=BUILT)
    (archive,) = BUILT.glob("*.orig.tar.gz")
    run("tar", "-xzf", str(archive), "-C", str(SOURCE), "--strip-components=1", where=BUILT)


def build() -> None:
    run("patch", "-p1", "-i", str(PINS / "librdkafka.patch"), where=SOURCE)
    run("./configure", "--disable-gssapi", "--disable-curl", where=SOURCE)
    run("make", "-j2", "libs", where=SOURCE)
    run("make", "-j2", "-C", "tests", "test-runner", where=SOURCE)


def run(*command: str, where: Path) -> None:
    with (BUILT / "build.log").open("ab") as log:
        subprocess.run(command, cwd=where, stdout=log, stderr=log, check=True)


def tests_of(source: str, wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each test that needs a server, and how it wants topics to be created."""
    for name, flags, scenario in TEST.findall(source):
        is_wanted = not wanted or any(name.startswith(each) for each in wanted)
        if is_wanted and not name.endswith("_mock") and not any(each in flags for each in NO_SERVER):
            yield name, "noautocreate" if scenario else "default"


def outcome(name: str, scenario: str, settings: Path) -> str:
    """Run a test, and return `passed`, or what became of it."""
    libraries = f"{SOURCE / 'src'}:{SOURCE / 'src-cpp'}"
    more = {"LD_LIBRARY_PATH": libraries, "RDKAFKA_TEST_CONF": str(settings), "TEST_KAFKA_VERSION": "2.8.0.0"}
    environment = os.environ | more | {"TESTS": name, "TEST_SCENARIO": scenario}
    command = ("timeout", str(PATIENCE_S), RUNNER, "-p1", "-L", "-K")
    with (BUILT / f"{name}.log").open("wb+") as log:
        subprocess.run(command, cwd=RUNNER.parent, env=environment, stdout=log, stderr=log, check=False)
        log.seek(0)
        found = re.findall(rb"Test %b (PASSED|SKIPPED|FAILED)" % name.encode(), log.read())
    return found[-1].decode().lower() if found else "failed"


def main(wanted: Collection[str]) -> int:
    """Return the number of tests whose outcome is not the expected one."""
    if not RUNNER.exists():
        fetch()
        build()
    lines = (PINS / "librdkafka.txt").read_text().splitlines()
    reasons = dict(line.split(maxsplit=1) for line in lines if line[:1].isdigit())
    surprises = 0
    with TemporaryDirectory() as folder:
        settings = Path(folder) / "test.conf"
        with open_blocking(Path(folder) / "served", durability="os") as ep:
            ep.create_scope("shop")
        with ServerProcess(Path(folder) / "served", kafka_scope="shop") as server:
            settings.write_text(f"bootstrap.servers={server.kafka}\ntest.timeout.multiplier=3\n")
            for name, scenario in tests_of((SOURCE / "tests" / "test.c").read_text(), wanted):
                found = outcome(name, scenario, settings)
                reason = next((why for each, why in reasons.items() if name.startswith(each)), "")
                is_expected = (found == "passed") is not bool(reason)
                surprises += not is_expected
                mark = "" if is_expected else "  NOT EXPECTED"
                sys.stdout.write(f"{name} {found} {reason}{mark}\n")
                sys.stdout.flush()
    return surprises


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
