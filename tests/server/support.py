"""A serving process, and a process of the unmodified client."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from types import MappingProxyType, TracebackType
from typing import Any, Self

from eventproc.testing.crash import PATIENCE_S, environment
from tests.support.child_process import REPOSITORY
from tests.support.torture import EndedEarly

_PORTS = re.compile(r"controller (?:tcp|tls)://[^:]*:(\d+), segment store port (\d+)")
_KAFKA = re.compile(r"clients of Kafka: (\S*:\d+),")
_REST = re.compile(r"REST: (https?://[^/]*)/openapi.json")

_SAID = "> "

PREFIX = "pravega_client_"
"""Begins the variables of the environment that the client reads."""

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class ServerProcess:
    """`eventproc serve` on a directory, or on a store on a server; killed at the end of its block.

    port: of its controller. rest: address of REST, if it was asked for. kafka: address for Kafka's clients, if a scope
    is served to them.
    """

    def __init__(
        self,
        directory: Path | str,
        *more: str,
        ports: tuple[int, int] = (0, 0),
        rest: bool = False,
        kafka_scope: str = "",
        kafka_port: int = 0,
    ) -> None:
        options = ["--controller-port", str(ports[0]), "--segment-store-port", str(ports[1]), *more]
        options += ["--rest", "0"] if rest else []
        options += ["--kafka", str(kafka_port), "--kafka-scope", kafka_scope] if kafka_scope else []
        self.rest = self.kafka = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "eventproc", "-C", str(directory), "serve", *options],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a scheduler that shares the processors between sessions treats it as a server
        )
        assert self._process.stderr is not None
        heard = []
        for line in self._process.stderr:
            heard.append(line)
            if match := _REST.search(line):
                self.rest = match[1]
            if match := _KAFKA.search(line):
                self.kafka = match[1]
            if match := _PORTS.search(line):
                self.ports = int(match[1]), int(match[2])
                break
        else:
            raise EndedEarly("".join(heard))
        self.port = self.ports[0]
        # Read on: a full pipe would let the server wait.
        self._reading = Thread(target=self._process.stderr.read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGKILL)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code

    def kill(self) -> None:
        """Kill it with SIGKILL, and return when it has ended."""
        self.end(signal.SIGKILL)

    def suspend(self) -> None:
        """Suspend it until `resume`, or its end by SIGKILL."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended process continue."""
        self._process.send_signal(signal.SIGCONT)


class ClientProcess:
    """A scenario of `tests.server.client`; killed at the end of its block. settings: of the client, by name."""

    def __init__(
        self, port: int, scenario: str, *arguments: object, settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        command = [sys.executable, "-m", "tests.server.client", scenario, str(port), *map(str, arguments)]
        self._errors = TemporaryFile()  # noqa: SIM115  # closed at the end of the block
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**environment(), **{f"{PREFIX}{name}": value for name, value in settings.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE_S)
        self._errors.close()

    def hear(self) -> Any:
        """Return the next thing that the client says."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_SAID):
                return json.loads(line.removeprefix(_SAID))
        self._errors.seek(0)
        raise AssertionError(f"the client ended early: {self._errors.read().decode()[-2000:]}")

    def go_on(self) -> None:
        """Let the client continue."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


def run_client(
    port: int, scenario: str, *arguments: object, lines: int, settings: Mapping[str, str] = NO_SETTINGS
) -> list[Any]:
    """Run a scenario to its end, and return what it says."""
    with ClientProcess(port, scenario, *arguments, settings=settings) as client:
        return [client.hear() for _ in range(lines)]
