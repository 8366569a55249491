"""Objects in memory are declared as slots, and the design note lists every slot."""

from __future__ import annotations

import re
from pathlib import Path

from eventproc.store.database import SharedSlot, SharedState

ROOT = Path(__file__).parents[2]
NOTE = ROOT / "docs" / "design" / "database-and-group-commit.md"


def test_design_note_lists_every_slot() -> None:
    declared = {
        (name, "batch" if kind == "Pending" else "opening")
        for folder in ("store", "eventproc", "workflows", "cli")
        for file in (ROOT / folder).rglob("*.py")
        for name, kind in re.findall(
            r"^(\w+)(?:: \S+)? = (Shared|Pending)Slot\b", file.read_text(), re.MULTILINE
        )
    }
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (opening|batch) \|", NOTE.read_text(), re.MULTILINE)
    listed = {(name, scope) for names, scope in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == declared


def test_slot_builds_its_object_once_per_state() -> None:
    slot = SharedSlot(list[int])
    first, second = SharedState(), SharedState()
    first[slot].append(1)
    assert first[slot] is first[slot]
    assert (first[slot], second[slot]) == ([1], [])
