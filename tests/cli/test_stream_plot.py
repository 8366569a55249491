"""`eventproc stream plot` draws a stream into a file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tests.cli.conftest import Cli

SVG = "{http://www.w3.org/2000/svg}"


def test_a_stream_is_drawn_into_a_file(billing: Cli, tmp_path: Path) -> None:
    target = tmp_path / "orders.svg"
    done = billing("stream", "plot", "shop/orders", target)
    assert done.code == 0 and "drew shop/orders into" in done.err, done
    drawing = ElementTree.parse(target)
    titles = [each.text for each in drawing.iter(f"{SVG}title")]
    assert "shop/billing" in titles
    assert len([each for each in titles if each is not None and "keys [" in each]) == 2


def test_times_and_files_that_are_none_are_refused(shop: Cli, tmp_path: Path) -> None:
    target = tmp_path / "orders.png"
    refused = shop("stream", "plot", "shop/orders", target)
    assert refused.code != 0 and "it must end with .svg" in refused.err
    assert not target.exists()
    late = shop("stream", "plot", "shop/orders", tmp_path / "a.svg", "--from", "2000", "--to", "1000")
    assert late.code != 0 and "it is before from_ms" in late.err
    assert not (tmp_path / "a.svg").exists()
