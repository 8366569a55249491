"""SASL: by which mechanism a client shows who it is, and who it is at each of its requests.

PLAIN sends the password. SCRAM proves that the client knows it: the client sends its name and a nonce, the server salt,
iterations and a longer nonce, the client a proof for all of it, and the server its own one.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from scramp import ScramException, ScramMechanism

from eventproc.server.access.authority import Authority, Caller, NotAuthenticated, TooManyPasswords
from eventproc.server.frames import ConnectionOver
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.store.access.scram import SCRAM_MECHANISMS, ScramVerifier

SASL_BYTES_MAX: Final = 2_048
"""Longest message of a mechanism: two names and the longest password. Higher: a stranger's message costs more time."""

NONCE_BYTES: Final = 24
"""Random bytes of the server's part of a nonce, so that no proof can be repeated."""

PLAIN: Final = "PLAIN"

RandomBytes: TypeAlias = Callable[[int], bytes]

Identity: TypeAlias = Callable[[], Awaitable[Caller]]
"""Returns who a client is, each time it is called: the user may have been changed or deleted. Raises NotAuthenticated,
TooManyPasswords."""


class _Step(NamedTuple):
    """What a message led to. reply: for the client. identity: of a client that has shown who it is."""

    reply: bytes
    identity: Identity | None = None


class _Exchange(Protocol):
    """The messages of one mechanism until the client has shown who it is."""

    async def take(self, data: bytes) -> _Step:
        """Take the next message of the client. Raises NotAuthenticated, TooManyPasswords, which end the exchange."""
        ...


class _PlainExchange:
    """One message: another user's name (none), the user's name, and its password or one of its tokens."""

    def __init__(self, authority: Authority, random_bytes: RandomBytes) -> None:
        self._authority = authority

    async def take(self, data: bytes) -> _Step:
        """See `_Exchange.take`."""
        parts = data.split(b"\0")
        if len(parts) != 3 or b":" in parts[1]:
            raise NotAuthenticated("PLAIN wants a user and a password")
        credentials = "Basic " + b64encode(b":".join(parts[1:])).decode()
        identity = partial(self._authority.authenticate, credentials)
        await identity()
        return _Step(b"", identity)


class _ScramExchange:
    """Two messages: the user's name, and the proof."""

    def __init__(self, authority: Authority, random_bytes: RandomBytes, mechanism: str) -> None:
        self._authority = authority
        self._mechanism = mechanism
        self._nonce = b64encode(random_bytes(NONCE_BYTES)).decode()
        self._server: Any = ScramMechanism(mechanism).make_server(self._look_up, s_nonce=self._nonce)
        self._user: tuple[str, ScramVerifier] | None = None

    async def take(self, data: bytes) -> _Step:
        """See `_Exchange.take`."""
        if self._user is None:
            try:
                self._server.set_client_first(data.decode())
                return _Step(self._server.get_server_first().encode())
            except (ScramException, UnicodeDecodeError):
                raise NotAuthenticated(f"{self._mechanism} wants another first message") from None
        name, verifier = self._user
        await self._authority.authenticate_proof(name, verifier, partial(self._is_right, data))
        return _Step(self._server.get_server_final().encode(), self._identity)

    def _look_up(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        verifier = self._authority.verifier_of(name, self._mechanism)
        self._user = name, verifier
        salt, stored, server = map(b64decode, (verifier.salt, verifier.stored_key, verifier.server_key))
        return salt, stored, server, verifier.iterations

    def _is_right(self, data: bytes) -> bool:
        try:
            proof = data.decode()
            self._admit_repeated_nonce(proof)
            self._server.set_client_final(proof)
        except (ScramException, UnicodeDecodeError):
            return False
        return True

    def _admit_repeated_nonce(self, proof: str) -> None:
        """Take a nonce that repeats the client's part: librdkafka before 2.6.1 sends it, and Kafka takes it."""
        nonce = self._server.nonce
        repeated = f"{str(nonce).removesuffix(self._nonce)}{nonce}"
        if f",r={repeated}," in proof:
            self._server.nonce = type(nonce)(repeated)

    async def _identity(self) -> Caller:
        assert self._user is not None, "asked before the proof"
        return self._authority.proved(*self._user)


_EXCHANGES: Final[Mapping[str, Callable[[Authority, RandomBytes], _Exchange]]] = MappingProxyType(
    {PLAIN: _PlainExchange, **{each: partial(_ScramExchange, mechanism=each) for each in SCRAM_MECHANISMS}}
)

SASL_MECHANISMS: Final = tuple(_EXCHANGES)
"""What the answer to a client's handshake names."""


class SaslSession:
    """Who the client of one connection is. A client may authenticate again; what fails then changes nothing."""

    def __init__(self, authority: Authority, random_bytes: RandomBytes) -> None:
        self._authority = authority
        self._random_bytes = random_bytes
        self._identity: Identity = partial(authority.authenticate, None)
        self._mechanism = PLAIN
        self._exchange: _Exchange | None = None

    @property
    def is_required(self) -> bool:
        """Whether the client must show who it is."""
        return self._authority.is_required

    def choose(self, mechanism: str) -> KafkaCode:
        """Take the next messages for this mechanism, and begin with the first one; return whether it is served."""
        if mechanism not in _EXCHANGES:
            return KafkaCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism, self._exchange = mechanism, None
        return KafkaCode.NONE

    async def take(self, data: bytes) -> tuple[bytes, bool]:
        """Take a message of the mechanism; return the reply, and whether the client has now shown who it is.

        Raises NotAuthenticated, TooManyPasswords; the next message then is the first one again.
        """
        exchange = self._exchange or _EXCHANGES[self._mechanism](self._authority, self._random_bytes)
        self._exchange = None
        if len(data) > SASL_BYTES_MAX:
            raise NotAuthenticated(f"a message of {len(data):,} bytes; {SASL_BYTES_MAX:,} are possible")
        reply, identity = await exchange.take(data)
        if identity is None:
            self._exchange = exchange
        else:
            self._identity = identity
        return reply, identity is not None

    async def caller(self) -> Caller:
        """Return who calls: the user may have been changed or deleted since. Raises ConnectionOver."""
        try:
            return await self._identity()
        except (NotAuthenticated, TooManyPasswords) as why:
            raise ConnectionOver(str(why)) from None
