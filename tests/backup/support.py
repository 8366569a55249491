"""What the tests of backups share."""

from __future__ import annotations

import stat
from pathlib import Path

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.backup.restore import restore_backup
from eventproc.store.chunks.offload import OffloadLimits
from eventproc.streams import Stream
from eventproc.streams.offload import offload
from eventproc.testing import check
from tests.support.reading import payloads_of

COUNT = 40

SMALL = OffloadLimits(run_bytes_min=100, run_bytes_max=20_000, step_bytes=3_000, batch_bytes=1_000)


async def fill(ep: Eventproc) -> Stream:
    """Write COUNT numbered events to s/x; the first half of them into files."""
    await ep.create_scope("s")
    stream = await ep.create_stream("s/x")
    async with stream.writer() as writer:
        for number in range(COUNT // 2):
            await writer.write(payload(number))
        await offload(ep.db, stream.name, stream.stream_id, ep.db.clock.wall_ms(), limits=SMALL)
        for number in range(COUNT // 2, COUNT):
            await writer.write(payload(number))
    return stream


def payload(number: int) -> bytes:
    return b"%d " % number + b"x" * 200


async def numbers(ep: Eventproc, name: str = "s/x") -> list[int]:
    """Return the numbers of the stream's events, after all invariants were checked."""
    await check(ep.db)
    return [int(payload.split()[0]) for payload in await payloads_of(await ep.stream(name))]


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def set_mode(folder: Path, mode: int) -> None:
    folder.chmod(mode)


def restored(backup: Path, to: Path) -> Path:
    restore_backup(backup, to)
    return to


async def numbers_in(directory: Path) -> list[int]:
    async with eventproc.open(directory, create=False) as ep:
        return await numbers(ep)


def files_of(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def listed(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def flip_byte(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 0xFF]))
