"""Where a store lies, and opening it there: a directory, or a schema of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument, NotSupported
from eventproc.store.postgres.address import ServerAddress, is_server_url

if TYPE_CHECKING:
    from eventproc.base.clock import Clock
    from eventproc.store.database import Database, Durability, Migration

StoreAddress: TypeAlias = "Path | ServerAddress"

A_PATH: Final = "it must be a path, as str or pathlib.Path"


def store_address(path: str | PathLike[str], *, schema: str | None = None) -> StoreAddress:
    """Return where a store lies: the directory of a path, or the database of a URL. Its `str` has no password.

    Args:
        path: as for `open`.
        schema: as for `open`.

    Raises:
        InvalidArgument: it is no path and no URL of a PostgreSQL database, or the schema is not valid.
    """
    if not isinstance(cast("object", path), (str, PathLike)):
        raise invalid_argument("directory", path, A_PATH)
    text = str(path)
    if is_server_url(text):
        return ServerAddress.parse(text, schema)
    if text in ("memory", ":memory:"):
        raise InvalidArgument(what="directory", value=text, reason="use eventproc.open_memory() for memory")
    scheme, is_url, _ = text.partition("://")
    if is_url:
        reason = "a store lies in a directory, or at postgresql://USER@HOST/DATABASE"
        raise invalid_argument("directory", f"{scheme}://...", reason)
    if schema is not None:
        raise invalid_argument("schema", schema, "a directory has none; leave it out")
    return Path(path)


async def start_store(
    address: StoreAddress,
    *,
    migrations: Sequence[Migration],
    durability: Durability | None = None,
    create: bool = True,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> Database:
    """Open the store at an address until `close`, as `start_database` and `start_server_database` do.

    Raises NotSupported without the extra `postgres`, and what these raise.
    """
    start: Callable[..., Awaitable[Database]]
    if isinstance(address, Path):
        from eventproc.store.database import start_database  # a task of Spark needs the address only

        start = partial(start_database, address)
    else:
        try:
            from eventproc.store.postgres.server_database import start_server_database  # psycopg is an extra
        except ImportError as why:
            what, remedy = "a PostgreSQL database without psycopg", 'pip install "eventproc[postgres]"'
            raise NotSupported(what=what, remedy=remedy) from why
        start = partial(start_server_database, address)
    return await start(
        migrations=migrations, durability=durability, create=create, clock=clock, faults=faults
    )
