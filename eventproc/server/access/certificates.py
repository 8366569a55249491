"""Certificates of the listeners: read from files, and read again when the files change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import attrs
from anyio import to_thread

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument

LOG = logging.getLogger("eventproc.server.access")

LOOK_AGAIN_S: Final = 10
"""How often the files are looked at. Higher: a new certificate is used later; lower: more calls of `stat`."""


@attrs.frozen
class CertificateFiles:
    """Files in the form PEM: a certificate with those that lead to its authority, and its private key."""

    certificate: Path
    key: Path

    def state(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when a file is replaced or written. Raises OSError."""
        found = [each.stat() for each in (self.certificate, self.key)]
        return tuple([(each.st_ino, each.st_size, each.st_mtime_ns) for each in found])

    def load(self, protocols: Sequence[str]) -> ssl.SSLContext:
        """Return a context of a server with TLS 1.2 or newer. protocols: of ALPN. Raises OSError, InvalidArgument."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (ssl.SSLError, ValueError) as why:
            reason = f"it must be a certificate in PEM whose key is {self.key}, without a password ({why})"
            raise invalid_argument("certificate", str(self.certificate), reason) from None
        if protocols:
            context.set_alpn_protocols([*protocols])
        return context


def _no_password() -> str:
    raise ValueError("the key has a password")


class Certificates:
    """The contexts of all listeners, which use the newest certificate for each handshake."""

    def __init__(self, files: CertificateFiles) -> None:
        """Raises OSError, InvalidArgument."""
        self._files = files
        self._loaded = files.state()
        self._newest: dict[tuple[str, ...], ssl.SSLContext] = {}
        files.load(())

    def context(self, *protocols: str) -> ssl.SSLContext:
        """Return the context for a listener that speaks these protocols of ALPN."""
        made = self._files.load(protocols)
        self._newest[protocols] = made

        def choose(handshake: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            handshake.context = self._newest[protocols]

        made.sni_callback = choose
        return made

    async def watch(self) -> None:
        """Read the files again when they have changed, until cancelled."""
        while True:
            await anyio.sleep(LOOK_AGAIN_S)
            await to_thread.run_sync(self.reload)

    def reload(self) -> bool:
        """Use the files if they have changed; return whether a new certificate is used.

        Until both files are there and fit together, the previous certificate stays.
        """
        try:
            state = self._files.state()
            if state == self._loaded:
                return False
            known = [*self._newest]  # a listener may begin meanwhile: this runs on a thread
            self._newest |= {protocols: self._files.load(protocols) for protocols in known}
        except (OSError, InvalidArgument) as why:
            LOG.warning("keeping the previous certificate: %s", why)
            return False
        self._loaded = state
        LOG.info("new certificate: %s", self._files.certificate)
        return True
