"""Certificates: all listeners use them, and a new one is used without a restart."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
import trustme
from anyio import to_thread
from anyio.abc import SocketStream

from eventproc.runtime import Eventproc
from eventproc.server.access import certificates as certificates_module
from eventproc.server.access.certificates import CertificateFiles, Certificates
from eventproc.server.controller import serving
from eventproc.server.endpoints import Addresses, serve_endpoints
from eventproc.server.rest import listener
from eventproc.server.wire.greeting import greets, unverified_tls
from eventproc.store.model.errors import InvalidArgument
from eventproc.testing.crash import PATIENCE_S

ADDRESSES = Addresses(controller_port=0, segment_store_port=0, rest=("127.0.0.1", 0))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> CertificateFiles:
    found = CertificateFiles(tmp_path / "cert.pem", tmp_path / "key.pem")
    write(found, authority.issue_cert("localhost"))
    return found


def write(files: CertificateFiles, issued: trustme.LeafCert) -> None:
    files.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files.key)


def serial_at(port: int, authority: trustme.CA, *protocols: str) -> tuple[str, str | None]:
    """Return the serial number of the certificate at a port, and the protocol that was agreed on."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if protocols:
        context.set_alpn_protocols([*protocols])
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        found = encrypted.getpeercert()
        assert found is not None
        return str(found["serialNumber"]), encrypted.selected_alpn_protocol()


async def test_all_listeners_use_a_new_certificate_when_its_files_change(
    ep: Eventproc, authority: trustme.CA, files: CertificateFiles
) -> None:
    certificates = Certificates(files)
    async with serve_endpoints(ep, ADDRESSES, certificates) as bound:
        assert bound.rest is not None
        assert bound.advertised == "localhost"
        ports = {bound.controller_port: "h2", bound.rest[1]: "http/1.1", bound.segment_store_port: None}

        async def serials() -> set[str]:
            seen = set()
            for port, protocol in ports.items():
                offered = [] if protocol is None else [protocol]
                look = lambda: serial_at(port, authority, *offered)  # noqa: B023, E731
                serial, agreed = await to_thread.run_sync(look)
                assert agreed == protocol
                seen.add(serial)
            return seen

        before = await serials()
        write(files, authority.issue_cert("localhost"))
        assert certificates.reload()
        after = await serials()
        assert len(before) == len(after) == 1
        assert before != after
        assert not certificates.reload()


async def until_closed(stream: SocketStream) -> bytes | None:
    """Read until the peer closes, and return the response, if one came that is not an alert of TLS."""
    found = b""
    try:
        while True:
            found += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return found if found.startswith(b"HTTP") else None


async def test_a_connection_without_encryption_or_with_another_authority_is_closed_and_others_go_on(
    ep: Eventproc, authority: trustme.CA, files: CertificateFiles
) -> None:
    async with serve_endpoints(ep, ADDRESSES, Certificates(files)) as bound:
        assert bound.rest is not None
        for port in (bound.controller_port, bound.rest[1], bound.segment_store_port):
            async with await anyio.connect_tcp("127.0.0.1", port) as plain:
                await plain.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" + bytes(100))
                with anyio.fail_after(PATIENCE_S):
                    assert await until_closed(plain) is None
            with pytest.raises(ssl.SSLError):
                await to_thread.run_sync(lambda at: serial_at(at, trustme.CA()), port)
            await to_thread.run_sync(lambda at: serial_at(at, authority), port)


async def test_a_connection_without_a_handshake_is_closed(
    ep: Eventproc, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HANDSHAKE_S", 0.05)
    monkeypatch.setattr(listener, "HANDSHAKE_S", 0.05)
    async with serve_endpoints(ep, ADDRESSES, Certificates(files)) as bound:
        assert bound.rest is not None
        for port in (bound.controller_port, bound.rest[1]):
            async with await anyio.connect_tcp("127.0.0.1", port) as silent:
                with anyio.fail_after(PATIENCE_S):
                    assert await until_closed(silent) is None


@pytest.mark.parametrize("encrypts", [True, False])
async def test_a_server_is_seen_to_answer_by_the_other_servers(
    ep: Eventproc, files: CertificateFiles, encrypts: bool
) -> None:
    certificates, tls = (Certificates(files), unverified_tls()) if encrypts else (None, None)
    async with serve_endpoints(ep, ADDRESSES, certificates) as bound:
        address = ("127.0.0.1", bound.segment_store_port)
        assert await greets(address, tls)
    assert not await greets(address, tls)


def damaged(files: CertificateFiles, authority: trustme.CA) -> None:
    files.certificate.write_text("no certificate")


def missing(files: CertificateFiles, authority: trustme.CA) -> None:
    files.key.unlink()


def mismatched(files: CertificateFiles, authority: trustme.CA) -> None:
    authority.issue_cert("localhost").private_key_pem.write_to_path(files.key)


@pytest.mark.parametrize("change", [damaged, missing, mismatched])
def test_files_that_do_not_fit_together_are_refused_at_the_start_and_ignored_later(
    authority: trustme.CA, files: CertificateFiles, change: Callable[[CertificateFiles, trustme.CA], None]
) -> None:
    certificates = Certificates(files)
    context = certificates.context()
    change(files, authority)
    assert not certificates.reload()
    assert certificates._newest[()] is context
    with pytest.raises((InvalidArgument, OSError)):
        Certificates(files)
    write(files, authority.issue_cert("localhost"))
    assert certificates.reload()


def test_a_listener_may_begin_while_a_new_certificate_is_read(
    authority: trustme.CA, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates, load = Certificates(files), CertificateFiles.load
    certificates.context("h2")
    begun: list[ssl.SSLContext] = []

    def load_while_a_listener_begins(files: CertificateFiles, protocols: Sequence[str]) -> ssl.SSLContext:
        if not begun:
            begun.append(load(files, ()))
            certificates.context("http/1.1")
        return load(files, protocols)

    write(files, authority.issue_cert("localhost"))
    monkeypatch.setattr(CertificateFiles, "load", load_while_a_listener_begins)
    assert certificates.reload()
    assert certificates._newest.keys() == {("h2",), ("http/1.1",)}


def test_a_key_with_a_password_is_refused_without_asking_for_it(
    authority: trustme.CA, files: CertificateFiles
) -> None:
    from cryptography.hazmat.primitives import serialization as form

    key = form.load_pem_private_key(files.key.read_bytes(), None)
    locked = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret")
    )
    files.key.write_bytes(locked)
    with pytest.raises(InvalidArgument, match="without a password"):
        Certificates(files)


async def test_files_that_are_replaced_are_seen_by_the_watch(
    authority: trustme.CA, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates_module, "LOOK_AGAIN_S", 0.01)
    certificates, reloaded = Certificates(files), anyio.Event()
    reload = certificates.reload

    def note() -> bool:
        found = reload()
        if found:
            from anyio import from_thread

            from_thread.run_sync(reloaded.set)
        return found

    monkeypatch.setattr(certificates, "reload", note)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(certificates.watch)
            newer = CertificateFiles(files.certificate.with_suffix(".new"), files.key.with_suffix(".new"))
            write(newer, authority.issue_cert("localhost"))
            os.replace(newer.key, files.key)  # noqa: PTH105
            os.replace(newer.certificate, files.certificate)  # noqa: PTH105
            await reloaded.wait()
            tasks.cancel_scope.cancel()
