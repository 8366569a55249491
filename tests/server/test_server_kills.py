"""A slice of `make torture-server`: the same servers, clients and accounts, for a few kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.server_kills import ServerKills


@pytest.mark.torture
async def test_what_killed_and_suspended_servers_acknowledged_is_stored_exactly_once(tmp_path: Path) -> None:
    report = await ServerKills(tmp_path, kills=4, seed=3).run()
    assert report.kills >= 4
    assert report.acknowledged == report.read > 0
