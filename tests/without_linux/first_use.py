"""What a developer does first, with two processes of which one is killed."""

from __future__ import annotations

import sys

import anyio

import eventproc
from eventproc.base import kernel
from eventproc.testing import CrashDirectory

ORDERS, GROUP = "shop/orders", "shop/billing"

app = eventproc.App()


@app.processor(ORDERS, group="mailer", order="key", payload=str)
async def mail(event: eventproc.Event[str]) -> None:
    say(f"mailed {event.payload}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def write(ep: eventproc.Eventproc, *payloads: str) -> None:
    await ep.create_scope("shop")
    orders = await ep.create_stream(ORDERS, payload=str)
    async with orders.writer() as writer:
        await writer.write_many((each, "ana") for each in payloads)


async def read(ep: eventproc.Eventproc) -> list[str]:
    orders = await ep.stream(ORDERS, payload=str)
    async with orders.reader() as reader:
        return [event.payload async for event in reader.until(await orders.tail())]


async def bill(ep: eventproc.Eventproc, name: str) -> None:
    """Read as a member of a group. The first event is finished durably, and the second one never."""
    group = await ep.create_group(GROUP, [await ep.stream(ORDERS, payload=str)])
    async with group.reader(name) as reader:
        async for event in reader:
            say(f"billed {event.payload}")
            if event.payload == "2 pears":
                await anyio.sleep_forever()
            await reader.commit()


async def take_over(ep: eventproc.Eventproc) -> list[str]:
    group, orders = await ep.group(GROUP, payload=str), await ep.stream(ORDERS)
    async with group.reader("second") as reader:
        return [event.payload async for event in reader.until(await orders.tail())]


def main() -> None:
    """Run everything on the directory of sys.argv, and print what happened."""
    say(f"linux {kernel.LINUX}")
    with CrashDirectory(sys.argv[1]) as directory:
        directory.run(write, "1 apple", "2 pears")
        say(f"read {directory.run(read)}")
        process = directory.start(bill, "first")
        say(process.wait_for("billed 2"))
        directory.run(write, "3 figs")
        process.stop()
        process.resume()
        process.kill()
        say(f"taken over {directory.run(take_over)}")
        directory.run_app(app)
        directory.check()
        doctor = directory.start_program("-m", "eventproc", "-C", sys.argv[1], "doctor")
        say(" ".join(doctor.wait_for("file_system").split()))
        say(f"doctor {doctor.finish()}")
