"""The tables of a store, as Apache Iceberg has them: pyiceberg writes their metadata, and a row names the newest.

A change is prepared in new files, and takes effect when one transaction moves the pointer of the table. What else must
happen together with it, such as moving the offsets of a supervisor, joins that transaction. If another change was
faster, this one is prepared again. After a crash, files that nothing names are left, which `sweep` deletes. Every call
blocks. Source: docs/design/tables.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import chain
from typing import Final, Protocol, TypeVar, cast

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from eventproc.base import kernel
from eventproc.base.clock import Clock, new_id
from eventproc.store.chunks.index import ABANDONED_MS
from eventproc.store.database import Database, Durability, Tx
from eventproc.store.file_store import FileStore, is_url
from eventproc.store.ingestion.iceberg_files import StoreFiles
from eventproc.store.ingestion.iceberg_manifests import check_readable, entries_of, sizes_of, store_files
from eventproc.store.ingestion.pointers import (
    NAMESPACE,
    all_locations,
    drop_pointer,
    find_pointer,
    forget_dropped,
    move_pointer,
    pointers,
    table_store,
)
from eventproc.store.ingestion.rows import tasks_by_worker
from eventproc.store.ingestion.table_paths import PUBLISH_MS, are_young, is_left_behind
from eventproc.store.ingestion.table_state import (
    REPLACED_MS,
    REPLACES,
    SNAPSHOTS_KEPT,
    TRANSFORMS,
    check_version,
    expired,
    file_of,
    partitioning_of,
    version_of,
    within,
)
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import CorruptRecord, EventprocError, InvalidArgument, NotSupported
from eventproc.store.model.ingestion import (
    TIME,
    PublishOutcome,
    TableColumn,
    TableDescription,
    TableFile,
    TableInfo,
    TablePartitioning,
    intervals_of_files,
    partition_name,
)
from eventproc.store.model.ingestion_errors import TableBusy, TableChanged
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.segments.holds import is_directory_held

T = TypeVar("T")

LOG = logging.getLogger("eventproc.ingestion")

ATTEMPTS: Final = 20
"""How often a change is prepared, if others are faster each time. Each attempt lets one of the others succeed."""

EXPIRE_ABOVE: Final = SNAPSHOTS_KEPT + 2
"""Snapshots beyond which a change forgets old ones, too. Lower: it looks for them more often."""

PROPERTIES: Final[Mapping[str, str]] = {
    "commit.manifest-merge.enabled": "true",  # or each commit adds a manifest, and a query reads one per commit
    "commit.manifest.min-count-to-merge": "20",
    "commit.retry.num-retries": "0",  # a change is prepared again here, with its checks
    "write.delete.isolation-level": "snapshot",  # otherwise whatever is added ends a compaction
    "write.metadata.metrics.default": "counts",  # pyiceberg takes the bounds of some row groups for those of the file
    f"write.metadata.metrics.column.{TIME}": "full",
    "write.metadata.previous-versions-max": "3",
}
"""Properties of a new table."""

_TYPES: Final[Mapping[pa.DataType, IcebergType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
}
"""The types of columns."""

LONGEST_MS: Final[Mapping[TablePartitioning, int]] = {
    TablePartitioning.HOUR: 3_600_000,
    TablePartitioning.DAY: 24 * 3_600_000,
    TablePartitioning.MONTH: 31 * 24 * 3_600_000,
    TablePartitioning.YEAR: 366 * 24 * 3_600_000,
}
"""Longest interval that lies in one partition."""

_METADATA: Final = re.compile(r"[^/]+/metadata/[^/]+")
_NUMBER: Final = re.compile(r"/(\d{5,})-[^/]*\.metadata\.json$")


class Transactions(Protocol):
    """Runs functions in transactions of a store, and waits for them."""

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on a snapshot."""
        ...

    def write(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` in a transaction."""
        ...


class _Declined(ValidationException):
    """What joined the commit of a change let it not happen. pyiceberg deletes what it wrote."""

    def __init__(self, outcome: object) -> None:
        super().__init__(f"not committed: {outcome}")
        self.outcome = outcome


@attrs.frozen
class _Joined:
    """What joins the commits of this thread.

    together: in the transaction; it returns None, or why nothing shall happen. begun_ms: when the change was prepared
    (wall). instead_of: location of the metadata of a table whose place the new one takes.
    """

    together: Callable[[Tx], object] = lambda _: None
    begun_ms: int = 0
    instead_of: str | None = None


_NOTHING: Final = _Joined()
_JOINED: Final[ContextVar[_Joined]] = ContextVar("_JOINED", default=_NOTHING)


class StoreTables:
    """The tables of a store. It has the methods of a catalog that pyiceberg needs."""

    name = "eventproc"

    def __init__(self, store: Transactions, files: FileStore, clock: Clock, *, synced: bool) -> None:
        """files: of `table_store`. synced: whether written files must survive a loss of power."""
        self.files = files
        self._store = store
        self.clock = clock
        self._place = files.place if is_url(files.place) else f"file://{files.place}"
        self._synced = synced

    # Looking.

    def find(self, name: str) -> Table | None:
        """Return a table as it is now; None if nothing was published. Cost: a look-up, and one file."""
        location = self._store.read(partial(find_pointer, name=name))
        return None if location is None else self.at(name, location)

    def locations(self) -> dict[str, str]:
        """Return the metadata files of all tables by name, without those that another engine made elsewhere."""
        return {
            name: location
            for name, location in self._store.read(pointers).items()
            if not self._is_elsewhere(location)
        }

    def _is_elsewhere(self, location: str) -> bool:
        """Whether another engine put a table where this store has no files."""
        if location.startswith(f"{self._place}/"):
            return False
        parts = location.rsplit("/", 3)
        return len(parts) != 4 or parts[2] != "metadata" or self.files.size("/".join(parts[1:])) is None

    def at(self, name: str, location: str) -> Table:
        """Return a table as a metadata file says."""
        base = self._place
        if self._is_elsewhere(location):
            what = f"table {name}, whose metadata lie at {location},"
            raise NotSupported(what=what, remedy="read it with the engine that made it")
        if not location.startswith(f"{base}/"):  # the store was moved, or copied
            base = location.rsplit("/", 3)[0]
        io = StoreFiles(self.files, base, synced=self._synced)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table((NAMESPACE, name), metadata, location, io, cast("Catalog", self))

    def load_table(self, identifier: tuple[str, ...]) -> Table:
        """See `Catalog.load_table`."""
        found = self.find(identifier[-1])
        if found is None:
            raise NoSuchTableError(f"there is no table {identifier[-1]}")
        return found

    def summaries(self, page: ListPage = COMPLETE) -> list[TableInfo]:
        """Return the tables, sorted by name. Cost: the metadata of each one of the page."""
        return [
            TableInfo.of(name, self.files_of(self.at(name, location)), location)
            for name, location in page.of_names(self.locations()).items()
        ]

    def describe(self, name: str, start_ms: int | None = None, end_ms: int | None = None) -> TableDescription:
        """Return what a table has, or its files with rows in [start_ms, end_ms); nothing if none was published."""
        found = self.find(name)
        files = [] if found is None else within(self.files_of(found), start_ms, end_ms)
        fields = () if found is None else found.schema().fields
        return TableDescription.of(
            name,
            files,
            None if found is None else found.metadata_location,
            version=version_of(None if found is None else found.metadata),
            partitioning=None if found is None else partitioning_of(found.spec()),
            columns=tuple(TableColumn(each.name, str(each.field_type)) for each in fields),
            intervals_by_start=intervals_of_files(files),
        )

    def version(self, name: str) -> str:
        """Return the version of a table: a text to compare."""
        found = self.find(name)
        return version_of(None if found is None else found.metadata)

    def used(self, name: str, *, version: str | None = None) -> list[TableFile]:
        """Return the files of a table by interval: those of now, or those of a version that are still used.

        Raises TableChanged if files were compacted, overwritten or dropped since that version.
        """
        found = self.find(name)
        number: int | None = None
        if version is not None:
            metadata = None if found is None else found.metadata
            number = check_version(name, metadata, version, self.clock.wall_ms())
        return [] if found is None else self.readable(found, number)

    def readable(self, table: Table, number: int | None = None) -> list[TableFile]:
        """Return the files of a table whose rows this package can read. Raises NotSupported."""
        check_readable(table)
        return self.files_of(table, number)

    def files_of(self, table: Table, number: int | None = None) -> list[TableFile]:
        """Return the files of a table by interval. number: last sequence number; None: all. Reads its manifests."""
        io = store_files(table)
        found = [
            file_of(io.path_of(each.file_path), each, table.metadata)
            for each, at in entries_of(table)
            if number is None or at <= number
        ]
        return sorted(found, key=lambda each: (each.start_ms, each.min_ms, each.path))

    def contents(self) -> list[tuple[str, int | None]]:
        """Return path and size of each file of all tables as they are now; None: the size of metadata is not noted.

        Raises FileNotFoundError if metadata are missing, CorruptRecord if they are damaged.
        """
        found: dict[str, int | None] = {}
        for name, location in self.locations().items():
            try:
                table = self.at(name, location)
                current = table.metadata.current_snapshot()
                found |= sizes_of(table, [] if current is None else [current])
            except (EventprocError, OSError):
                raise
            except Exception as why:  # of pyiceberg and what it uses
                raise CorruptRecord(key=f"table {name}", reason=f"{type(why).__name__}: {why}") from why
        return sorted(found.items())

    # Changing.

    def append(
        self,
        name: str,
        columns: pa.Schema,
        by: TablePartitioning,
        paths: Sequence[str],
        *,
        together: Callable[[Tx], object] | None = None,
        note: Mapping[str, str] | None = None,
    ) -> object:
        """Add files to a table, which is made, or gets more columns, or another partitioning, as they need it.

        paths: of files in which all rows lie in one partition. together: runs in the transaction; it returns None, or
        why nothing shall happen. note: properties of the snapshot. Returns None, or what `together` did.
        """

        joined = _Joined(together=_if_young(paths, together))
        return self._change(name, self._appending(name, columns, by, paths, note or {}), joined)

    def _appending(
        self,
        name: str,
        columns: pa.Schema,
        by: TablePartitioning,
        paths: Sequence[str],
        note: Mapping[str, str],
    ) -> Callable[[Table | None], Transaction]:
        def prepare(table: Table | None) -> Transaction:
            change = self._created(name, _schema_of(columns), by) if table is None else table.transaction()
            _evolve(change, columns, by)
            io = store_files(change._table)
            locations = [io.location_of(each) for each in paths]
            change.add_files(locations, snapshot_properties=dict(note), check_duplicate_files=False)
            return change

        return prepare

    def replace(
        self,
        name: str,
        old: Sequence[TableFile],
        new: Sequence[str],
        *,
        columns: pa.Schema,
        by: TablePartitioning,
        version: str | None = None,
        together: Callable[[Tx], object] | None = None,
    ) -> bool:
        """Let new files take the place of old ones. Files that were added meanwhile stay beside them.

        version: which the table must have still, apart from added files. Returns whether it did.

        False, and nothing changes, if one of the old files is not used any more, because another call was faster, or if
        `together` returned something else than None.
        """
        gone = {each.path for each in old}

        def prepare(table: Table | None) -> Transaction:
            if version is not None:
                metadata = None if table is None else table.metadata
                check_version(name, metadata, version, self.clock.wall_ms())
            change = self._created(name, _schema_of(columns), by) if table is None else table.transaction()
            _evolve(change, columns, by)
            if more := sorted({*change.table_metadata.schema().column_names} - {*columns.names}):
                what = f"rewriting table {name}, to which another engine added the columns {more},"
                raise NotSupported(what=what, remedy="rewrite it there, or drop these columns")
            io = store_files(change._table)
            # As `add_files` does: the files have no ids of columns.
            if change.table_metadata.name_mapping() is None:
                mapping = change.table_metadata.schema().name_mapping
                change.set_properties({"schema.name-mapping.default": mapping.model_dump_json()})
            with change.update_snapshot({REPLACES: str(len(gone))}).overwrite() as snapshot:
                left = set(gone)
                for each, _ in entries_of(table) if table is not None else ():
                    if (path := io.path_of(each.file_path)) in left:
                        left.remove(path)
                        snapshot.delete_data_file(each)
                if left:
                    raise TableChanged(table=name)
                for path in new:
                    location = io.location_of(path)
                    snapshot.append_data_file(parquet_file_to_data_file(io, change.table_metadata, location))
            return change

        try:
            return self._change(name, prepare, _Joined(_if_young(new, together))) is None
        except (TableChanged, ValidationException):
            return False

    def drop(
        self, name: str, is_gone: Callable[[TableFile], bool], *, dry_run: bool = False
    ) -> Sequence[TableFile]:
        """Remove files from a table; return them. They stay for a while, for queries that run.

        dry_run: only return them.
        """
        gone: Sequence[TableFile] = []

        def prepare(table: Table | None) -> Transaction | None:
            nonlocal gone
            gone = [] if table is None else [each for each in self.files_of(table) if is_gone(each)]
            if table is None or not gone or dry_run:
                return None
            paths = {each.path for each in gone}
            change, io = table.transaction(), store_files(table)
            with change.update_snapshot().overwrite() as snapshot:
                for each, _ in entries_of(table):
                    if io.path_of(each.file_path) in paths:
                        snapshot.delete_data_file(each)
            return change

        self._change(name, prepare)
        return gone

    def remove(self, name: str) -> Sequence[TableFile]:
        """Remove a table; return its files. They stay for a while. One that cannot be read goes, too."""
        while (location := self._store.read(partial(find_pointer, name=name))) is not None:
            try:
                gone = self.files_of(self.at(name, location))
            except (NotSupported, CorruptRecord, FileNotFoundError):  # it cannot be read, but it can go
                gone = []
            if self._store.write(partial(drop_pointer, name=name, before=location)):
                return gone
        return []

    def expire(self, name: str) -> None:
        """Forget the snapshots that nobody needs, so that `sweep` may delete what only they name."""

        self._change(name, lambda table: None if table is None else table.transaction(), expire_above=0)

    def _change(
        self,
        name: str,
        prepare: Callable[[Table | None], Transaction | None],
        joined: _Joined = _NOTHING,
        *,
        expire_above: int = EXPIRE_ABOVE,
    ) -> object:
        """Prepare a change until no other one is faster. Returns None, or what declined it."""
        for _ in range(ATTEMPTS):
            begun_ms, table = self.clock.wall_ms(), self.find(name)
            change = prepare(table)
            if change is None:
                return None
            crowded = table is not None and len(table.metadata.snapshots) > expire_above
            if table is not None and crowded and (ids := expired(table.metadata, begun_ms)):
                ExpireSnapshots(change).by_ids(ids).commit()
            try:
                self._commit(change, attrs.evolve(joined, begun_ms=begun_ms))
            except _Declined as why:
                return why.outcome
            except CommitFailedException:
                continue
            return None
        raise TableBusy(table=name, attempts=ATTEMPTS)

    def _commit(self, change: Transaction, joined: _Joined) -> None:
        token = _JOINED.set(joined)
        try:
            change.commit_transaction()
        finally:
            _JOINED.reset(token)

    def _created(self, name: str, schema: Schema, by: TablePartitioning) -> Transaction:
        place = self._place
        if kernel.FOLDS_CASE and self.files.is_local:
            for other in {path.partition("/")[0] for path in self.files.paths()} - {name}:
                if other.lower() == name.lower():
                    reason = f"on this disk its folder is that of {other}; choose a name that differs by more than case"
                    raise invalid_argument("table", name, reason)
        transform = TRANSFORMS.get(by)
        time = schema.find_field(TIME).field_id
        fields = [] if transform is None else [PartitionField(time, 1000, transform, partition_name(by))]
        metadata = new_table_metadata(
            schema, PartitionSpec(*fields), UNSORTED_SORT_ORDER, f"{place}/{name}", dict(PROPERTIES)
        )
        io = StoreFiles(self.files, place, synced=self._synced)
        return CreateTableTransaction(
            StagedTable(
                (NAMESPACE, name), metadata, f"{place}/{name}/metadata/none", io, cast("Catalog", self)
            )
        )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See `Catalog.commit_table`. What joins the commit of this thread happens in its transaction."""
        name, joined = table.name()[-1], _JOINED.get()
        is_new = isinstance(table, StagedTable)
        # Not what it is by now: moving the pointer compares it with what the change was made from.
        base = None if is_new else table.metadata
        location_before = joined.instead_of if is_new else table.metadata_location
        metadata = update_table_metadata(
            MetastoreCatalog._empty_table_metadata() if base is None else base,
            updates,
            enforce_validation=base is None,
            metadata_location=None if is_new else location_before,
        )
        found = None if location_before is None else _NUMBER.search(location_before)
        number = 0 if found is None else int(found[1]) + 1
        location = f"{metadata.location}/metadata/{number:05d}-{new_id(self.clock)}.metadata.json"
        ToOutputFile.table_metadata(metadata, table.io.new_output(location))

        def commit(tx: Tx) -> object:
            if (declined := joined.together(tx)) is not None:
                return declined
            # Manifests that nothing has named for a day are swept.
            if tx.now_ms - joined.begun_ms > PUBLISH_MS or not move_pointer(
                tx, name, location_before, location
            ):
                raise CommitFailedException(f"table {name} was changed meanwhile")
            return None

        try:
            declined = self._store.write(commit)
        except CommitFailedException:
            table.io.delete(location)
            raise
        if declined is not None:
            table.io.delete(location)
            raise _Declined(declined)
        return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})

    def _delete_old_metadata(self, io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Called by pyiceberg after a commit. `sweep` deletes: another process may have read a pointer just now."""

    # Sweeping.

    def named(self) -> set[str]:
        """Return the paths that the metadata of all tables name, by the snapshots that are kept."""
        found = set[str]()
        for location in self._store.read(all_locations):
            if not self._is_elsewhere(location):
                table = self.at(location, location)
                found.update(sizes_of(table, table.metadata.snapshots))
                found.update(
                    store_files(table).path_of(each.metadata_file) for each in table.metadata.metadata_log
                )
        return found

    def sweep(self, is_alive: Callable[[str], bool], folder: str = "") -> int:
        """Delete what no table names and nobody will publish; return how many files went. folder: "" for all.

        On a server an instance that counts as dead may come back, so only the age of a file counts. Nothing goes while
        a backup copies the files of its snapshot. Cost: the metadata of all tables, and a listing.
        """
        if self._store.read(is_directory_held):
            return 0
        for name in () if folder else self.locations():
            self.expire(name)
        now_ms, count = self.clock.wall_ms(), 0
        if not folder:
            self._store.write(partial(forget_dropped, before_ms=now_ms - REPLACED_MS))
        paths = list(self.files.paths(folder))
        lives = is_alive if self.files.is_local else lambda _: True
        tasks = set(chain.from_iterable(self._store.read(tasks_by_worker).values()))
        left = {each for each in paths if is_left_behind(each, now_ms, lives, tasks)}
        # Afterwards: an instance that was dead at that look published its files before, or never will.
        named = set[str]() if folder else self.named()
        # A backup may have begun meanwhile, whose snapshot is older than `named`.
        if self._store.read(is_directory_held):
            return 0
        for path in paths:
            if path not in named and (path in left or self._is_old_metadata(path, now_ms)):
                self.files.delete(path)
                count += 1
        return count

    def _is_old_metadata(self, path: str, now_ms: int) -> bool:
        if _METADATA.fullmatch(path) is None:
            return False
        written_ms = self.files.modified_ms(path)
        return written_ms is not None and now_ms - written_ms > ABANDONED_MS

    # Another place, and the layout of before.

    def relocate(self) -> None:
        """Let the metadata of tables name the place where the store lies now, so that other engines find its files.

        A store that was moved or copied needs it; until then only this package reads its tables. Older snapshots are
        forgotten. Cost: nothing if it lies where it lay; otherwise the footer of each file.
        """
        for name, location in self.locations().items():
            if location.startswith(f"{self._place}/"):
                continue
            try:
                self._relocate(name, location)
            except CommitFailedException:  # it was changed meanwhile; the next sweep does it
                pass
            except (NotSupported, ValueError) as why:
                LOG.warning("other engines do not find table %s, because it was moved: %s", name, why)

    def _relocate(self, name: str, location: str) -> None:
        table = self.at(name, location)
        partitionings = [partitioning_of(each) for each in table.metadata.specs().values()]
        # Each file lies in one partition of it.
        coarsest = max(partitionings, key=list(TablePartitioning).index)
        change = self._created(name, table.schema(), coarsest)
        paths = [each.path for each in self.readable(table)]
        change.add_files([f"{self._place}/{path}" for path in paths], check_duplicate_files=False)
        self._commit(change, _Joined(begun_ms=self.clock.wall_ms(), instead_of=location))

    def adopt(self) -> None:
        """Make tables of the files that rows of the table `published` name, as stores had them before Iceberg.

        Cost: nothing without such rows; otherwise the footer of each file.
        """
        for name, found in self._store.read(_published).items():
            try:
                self._adopt(name, found)
            except (OSError, ValueError, InvalidArgument) as why:
                LOG.warning(
                    "table %s of the layout of before cannot be used: %s; restore a backup", name, why
                )

    def _adopt(self, name: str, found: Sequence[tuple[str, int]]) -> None:
        schemas = [pq.read_schema(self.files.open_arrow(path)) for path, _ in found]
        columns = pa.unify_schemas(
            [pa.schema([(each.name, each.type) for each in those]) for those in schemas]
        )
        longest_ms = max(length for _, length in found)
        by = next((each for each, ms in LONGEST_MS.items() if longest_ms <= ms), TablePartitioning.ALL)
        paths = [path for path, _ in found]
        self._change(
            name,
            self._appending(name, columns, by, paths, {}),
            _Joined(together=partial(_forget, name=name)),
        )


def open_tables(store: Transactions, db: Database) -> StoreTables:
    """Return the tables of an open store. Raises NotSupported if it has no place for their files."""
    files = store.read(table_store)
    tables = StoreTables(store, files, db.clock, synced=db.durability is Durability.FSYNC)
    tables.adopt()
    return tables


def _published(tx: Tx) -> dict[str, list[tuple[str, int]]]:
    """Return the paths of each table and the lengths of their intervals, in ms, as of before Iceberg."""
    found: dict[str, list[tuple[str, int]]] = {}
    rows = tx.execute(
        "SELECT datasource, path, end_ms - start_ms FROM published WHERE unused_ms IS NULL ORDER BY id"
    )
    for name, path, length_ms in rows.fetchall():
        found.setdefault(name, []).append((path, length_ms))
    return found


def _forget(tx: Tx, *, name: str) -> str | None:
    done = tx.execute("DELETE FROM published WHERE datasource = ?", (name,))
    return None if done.rowcount else "another process was faster"


def _schema_of(columns: pa.Schema) -> Schema:
    fields = [
        NestedField(at, each.name, _TYPES[each.type], required=False) for at, each in enumerate(columns, 1)
    ]
    return Schema(*fields)


def _evolve(change: Transaction, columns: pa.Schema, by: TablePartitioning) -> None:
    """Let a table have these columns, and be partitioned so from now on. Columns that it has beside them stay."""
    check_readable(change._table)
    known = {each.name: each.field_type for each in change.table_metadata.schema().fields}
    for each in columns:
        if known.get(each.name, _TYPES[each.type]) != _TYPES[each.type]:
            reason = f"column {each.name} of the table is a {known[each.name]}, and not a {_TYPES[each.type]}"
            raise invalid_argument(
                "columns", each.name, f"{reason}; drop the table, or name the column otherwise"
            )
    if missing := [each for each in columns if each.name not in known]:
        with change.update_schema() as schema:
            for each in missing:
                schema.add_column((each.name,), _TYPES[each.type])  # a name may have dots
    spec = change.table_metadata.spec()
    if partitioning_of(spec) is not by:
        with change.update_spec() as update:
            for field in spec.fields:
                update.remove_field(field.name)
            if by in TRANSFORMS:
                update.add_field(TIME, TRANSFORMS[by], partition_name(by))


def _if_young(paths: Sequence[str], together: Callable[[Tx], object] | None) -> Callable[[Tx], object]:
    """Return what joins a commit of new files: nothing happens if a sweep may have taken them for left behind."""

    def joined(tx: Tx) -> object:
        if not are_young(paths, tx.now_ms):
            return PublishOutcome.MISMATCH
        return None if together is None else together(tx)

    return joined
