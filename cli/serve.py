"""`eventproc serve`: `eventproc run`, and the endpoints for Pravega's clients beside it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from eventproc.cli.options import Command, Settings, pass_settings, server_options

if TYPE_CHECKING:
    from eventproc.runtime import Eventproc
    from eventproc.server.access.certificates import Certificates
    from eventproc.server.endpoints import Addresses

LOG = logging.getLogger("eventproc.run")

PORT = click.IntRange(0, 65_535)
UI_ADDRESS = "127.0.0.1", 10080
"""Of REST if only the page is asked for: the port of Pravega's REST."""

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class AddressParam(click.types.StringParamType):
    """A host and a port: HOST:PORT, or only a port of 127.0.0.1."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the host and the port."""
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal():
            self.fail(f"'{value}' is no HOST:PORT, and no PORT.", param, ctx)
        return host.strip("[]") or "127.0.0.1", PORT.convert(port, param, ctx)  # type: ignore[arg-type]


plain_option: Final = click.option(
    "--plain",
    is_flag=True,
    help="Let other machines connect without encryption, as behind a proxy that encrypts.",
)


@click.command(cls=Command)
@click.argument("apps", metavar="[MODULE:APP]...", nargs=-1)
@click.option(
    "--listen",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Where to listen. An address that other machines reach needs users and a certificate.",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="Name or address of this machine that clients are given; that of --listen unless given.",
)
@click.option(
    "--controller-port",
    type=PORT,
    default=9090,
    show_default=True,
    metavar="PORT",
    help="Port of the gRPC controller, which clients are given; 0 takes a free one.",
)
@click.option(
    "--segment-store-port",
    type=PORT,
    default=12345,
    show_default=True,
    metavar="PORT",
    help="Port of the segment store, which clients learn from the controller; 0 takes a free one.",
)
@click.option(
    "--rest",
    type=AddressParam(),
    metavar="[HOST:]PORT",
    help="Also serve REST there; port 0 takes a free one. Off unless given.",
)
@click.option(
    "--ui", is_flag=True, help="Also serve a page for people, at /ui of REST; at port 10080 unless --rest."
)
@click.option(
    "--kafka",
    type=AddressParam(),
    metavar="[HOST:]PORT",
    help="Also serve Kafka's clients there; port 0 takes a free one. Off unless given.",
)
@click.option(
    "--kafka-scope",
    default="kafka",
    show_default=True,
    metavar="SCOPE",
    help="The scope whose topics Kafka's clients see, by their names without it.",
)
@click.option(
    "--certificate",
    type=FILE,
    metavar="FILE",
    help="Encrypt all connections with this certificate (PEM); read again when the file changes.",
)
@click.option("--key", type=FILE, metavar="FILE", help="The private key of the certificate (PEM).")
@plain_option
@server_options
@pass_settings
def serve(
    settings: Settings,
    apps: tuple[str, ...],
    listen: str,
    controller_port: int,
    segment_store_port: int,
    advertise: str | None,
    rest: tuple[str, int] | None,
    ui: bool,
    kafka: tuple[str, int] | None,
    kafka_scope: str,
    certificate: Path | None,
    key: Path | None,
    plain: bool,
    grace: float,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Serve the directory to Pravega's clients, and run the processors of apps, until SIGTERM or Ctrl-C.

    A client connects to tcp://HOST:PORT of the controller. Several such processes may serve one directory, each with
    its own ports: they share the segments, and clients find the owner of each. Needs the extra `server`.

    With --rest, programs manage scopes, streams, groups, transactions and tasks over HTTP: on the paths of Pravega's
    REST, and on others; /openapi.json describes all of them. With --ui, people see and do the same in a browser.

    With --kafka, Kafka's clients produce to the topics of one scope, and read them. Needs the extra `kafka`.

    Without users, every program of this machine can connect, and no other one. With users (`eventproc user add`) a
    caller needs credentials. Other machines can connect if there are users and a certificate.

    After a signal the endpoints close first; clients continue at another server of the directory, or when this one is
    back, without a loss or a duplicate. Everything else is as for `run`.

    Examples:
        eventproc serve
        eventproc serve shop.mail:app --controller-port 9091 --segment-store-port 0
        eventproc serve --rest 9091
        eventproc serve --ui
        eventproc serve --kafka 9092 --kafka-scope shop
        eventproc serve --listen 0.0.0.0 --advertise db.example.com --certificate cert.pem --key key.pem
    """
    from eventproc.cli.app_loader import load_app
    from eventproc.cli.server import DirectoryServer
    from eventproc.cli.server_log import ServerLog

    log = ServerLog(settings, log_level, log_format)
    with log.reporting():
        rest = UI_ADDRESS if rest is None and ui else rest
        verify_installed("serve", has_rest=rest is not None, has_kafka=kafka is not None)
        from eventproc.server.endpoints import Addresses

        addresses = Addresses(
            listen, controller_port, segment_store_port, rest, advertise, ui, kafka, kafka_scope
        )
        certificates = _certificates(certificate, key)
        with log.importing():
            loaded = [load_app(name) for name in dict.fromkeys(apps)]
        log.install()
        server = DirectoryServer(
            settings,
            loaded,
            grace_ms=round(grace * 1000),
            endpoints=lambda ep: _endpoints(ep, addresses, certificates, plain),
        )
        server.run(host=True)


def verify_installed(command: str, *, has_rest: bool, has_kafka: bool = False) -> None:
    """Raise ClickException if a package is missing: found out before the directory is opened."""
    extra = "server"
    try:
        import_module("eventproc.server.endpoints")
        if has_rest:
            import_module("eventproc.server.rest.listener")
        if has_kafka:
            extra = "server,kafka"
            import_module("eventproc.server.kafka.listener")
    except ImportError as why:
        text = f"`eventproc {command}` needs more packages ({why.name}): pip install 'eventproc[{extra}]'"
        raise click.ClickException(text) from None


def _certificates(certificate: Path | None, key: Path | None) -> Certificates | None:
    from eventproc.server.access.certificates import CertificateFiles, Certificates

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--certificate and --key belong together")
    return Certificates(CertificateFiles(certificate.absolute(), key.absolute()))


def shown_address(host: str, port: int) -> str:
    """Return an address as URLs have it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@asynccontextmanager
async def _endpoints(
    ep: Eventproc, addresses: Addresses, certificates: Certificates | None, allows_plain: bool
) -> AsyncIterator[None]:
    from eventproc.server.endpoints import serve_endpoints

    async with serve_endpoints(ep, addresses, certificates, allows_plain=allows_plain) as bound:
        if bound.rest is not None:
            scheme = "http" if certificates is None else "https"
            shown = f"{scheme}://{shown_address(*bound.rest)}"
            LOG.info("REST: %s/openapi.json", shown)
            if addresses.has_page:
                LOG.info("page: %s/ui/", shown)
        if bound.kafka is not None:
            LOG.info(
                "clients of Kafka: %s, the topics of scope %s", shown_address(*bound.kafka), bound.kafka_scope
            )
        LOG.info(
            "clients of Pravega: controller %s://%s:%d, segment store port %d",
            "tcp" if certificates is None else "tls",
            bound.advertised,
            bound.controller_port,
            bound.segment_store_port,
        )
        yield
