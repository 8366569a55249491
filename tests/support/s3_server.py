"""An S3 server in a process of its own, and a proxy in front of it that fails as asked."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from unittest.mock import patch

import attrs
import pytest

from eventproc.base.clock import SystemClock, new_id
from eventproc.store.file_store import object_files

BUCKET: Final = "bucket"

_SERVE: Final = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@attrs.define
class S3Server:
    """A running server. faults: what happens to the next requests through the proxy, and then no more.

    "503": the server asks to slow down. "403": it refuses the credentials.
    "cut": the connection breaks in the middle of the answer.
    "lost": the request is carried out, and the connection breaks before the answer.
    "stall": no answer comes until it is `released`; `stalled` says that one waits.
    "pass": nothing happens to it.
    "stall PUT", "stall .arrow": the same for the next request with this method, or this in its path.

    stall_s: how long a request stalls at most. on_fault: called with a request and its fault, before this happens.
    """

    port: int
    host: str = "127.0.0.1"
    proxy_port: int = 0
    faults: list[str] = attrs.field(factory=list)
    requests: list[tuple[str, str]] = attrs.field(factory=list)
    stalled: threading.Event = attrs.field(factory=threading.Event)
    released: threading.Event = attrs.field(factory=threading.Event)
    stall_s: float | None = None
    on_fault: Callable[[str, str], None] = lambda _, __: None

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach the server through the proxy."""
        return {
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": "hidden-secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self.host}:{self.proxy_port}",
        }

    def next_fault(self, request: str) -> str:
        """Take the first fault that a request meets; "" if there is none."""
        for place, each in enumerate(self.faults):
            fault, _, only = each.partition(" ")
            if only in request:
                del self.faults[place]
                return fault
        return ""


class _Proxy(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients are killed, and leave their connections."""


@contextmanager
def running_s3(host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run a server with an empty bucket, reached at an address. It ends with the block, or with this process."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None and child.stdin is not None, "both are pipes"
        server = S3Server(int(child.stdout.readline()), host)
        _send(server.port, "PUT", f"/{BUCKET}", b"", {})
        proxy = _Proxy((host, 0), _handler(server))
        server.proxy_port = proxy.server_address[1]
        thread = threading.Thread(target=_serve, args=(proxy,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            proxy.shutdown()
            proxy.server_close()
            child.stdin.close()


def _serve(proxy: ThreadingHTTPServer) -> None:
    """Answer until `shutdown`, also beside a test that lets the process use no descriptors for a moment."""
    while True:
        with suppress(OSError):
            proxy.serve_forever(poll_interval=0.05)
            return


def _send(
    port: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def _handler(server: S3Server) -> type[BaseHTTPRequestHandler]:
    class FaultyProxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.requests.append((self.command, self.path))
            request = f"{self.command} {self.path}"
            fault = server.next_fault(request)
            if fault not in ("", "pass"):
                server.on_fault(request, fault)
            if fault == "503":
                self._answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
                return
            if fault == "403":
                self._answer(403, [], b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
                return
            if fault == "stall":
                server.stalled.set()
                server.released.wait(server.stall_s)
                self.close_connection = True
                return
            status, headers, content = _send(
                server.port, self.command, self.path, body, dict(self.headers.items())
            )
            if fault == "lost":
                self.close_connection = True
                return
            self._answer(status, headers, content, cut=fault == "cut")

        def _answer(
            self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False
        ) -> None:
            self.send_response_only(status)
            given = {name.lower(): value for name, value in headers}
            length = given.get("content-length") if self.command == "HEAD" else str(len(content))
            for name, value in given.items():
                if name not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
            self.wfile.flush()
            if cut:
                self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815  # names of http.server

        def log_message(self, format: str, *_: Any) -> None:  # a name of http.server
            """Print nothing."""

    return FaultyProxy


def new_place() -> str:
    """Return the URL of a place that no other test uses."""
    return f"s3://{BUCKET}/{new_id(SystemClock())}"


def objects_of(place: str) -> set[str]:
    """Return the paths of all objects of a place. Patient, unless `impatient_requests` surrounds the call."""
    return set(object_files.ObjectFiles(place).paths())


@contextmanager
def impatient_requests(*, retries: int, stalled_s: float) -> Iterator[None]:
    """Let requests of this process, at places that it opens within the block, become errors sooner."""
    with (
        patch.dict(object_files._RETRY, max_retries=retries),
        patch.dict(object_files._CLIENT, read_timeout=timedelta(seconds=stalled_s)),
    ):
        yield


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """An S3 server, whose credentials are in the environment."""
    for name, value in s3_process.environment.items():
        monkeypatch.setenv(name, value)
    s3_process.faults.clear()
    s3_process.requests.clear()
    s3_process.stalled.clear()
    s3_process.released.clear()
    return s3_process


@pytest.fixture
def url(s3: S3Server) -> str:
    """A place that no other test uses."""
    return new_place()
