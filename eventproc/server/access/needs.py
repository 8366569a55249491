"""What a call needs: a permission, and the resource that it is needed on, which follows from the call's names."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from eventproc.server.access.authority import Caller
from eventproc.store.access.permissions import EVERYTHING, Permission
from eventproc.store.client_logs import GROUP_LOG_PREFIX, MARK_LOG_PREFIX, owner_of_log
from eventproc.store.key_value_tables import permitted_names


def owner_of(local: str) -> str:
    """Return the name, within its scope, on which a caller needs rights: of a log of clients, that of its owner."""
    owner = owner_of_log(local, GROUP_LOG_PREFIX, MARK_LOG_PREFIX)
    return local if owner is None else owner


class Place(StrEnum):
    """Which resource a call needs its permission on."""

    ANYONE = "anyone"
    """None: the call needs no credentials."""
    USER = "user"
    """None: the call needs a user, and shows what that user may read."""
    SERVER = "server"
    SCOPE = "scope"
    """The scope that the call names; the server if it names none."""
    NAME = "name"
    """The stream, the reader group, the schedule or the table that the call names."""
    SEGMENT = "segment"
    """As NAME, or the key-value table that has the segments of the name that the call names."""


@attrs.frozen
class Need:
    """A permission on a place. It has no meaning for ANYONE and USER."""

    permission: Permission
    place: Place

    @property
    def is_for_anyone(self) -> bool:
        """Whether the call needs no credentials."""
        return self.place is Place.ANYONE

    @property
    def described(self) -> str:
        """What a user needs, in words: for the documentation of a call."""
        match self.place:
            case Place.ANYONE:
                return "none"
            case Place.USER:
                return "any user; it sees what it may read"
            case Place.SERVER:
                return f"{self.permission} on *"
            case Place.SCOPE:
                return f"{self.permission} on the scope, or on * if the call names none"
            case Place.NAME | Place.SEGMENT:
                return f"{self.permission} on scope/name"

    def verify(self, caller: Caller, scope: str = "", name: str = "") -> None:
        """Raise NotPermitted unless the caller may do this with what the call names."""
        if "/" in scope or "/" in name:  # no such name exists; it must not look like another one
            scope = name = EVERYTHING
        match self.place:
            case Place.ANYONE | Place.USER:
                pass
            case Place.SERVER:
                caller.verify(self.permission, EVERYTHING)
            case Place.SCOPE:
                caller.verify(self.permission, scope or EVERYTHING)
            case Place.NAME:
                caller.verify(self.permission, f"{scope}/{name}")
            case Place.SEGMENT:
                names = permitted_names(f"{scope}/{name}")
                allowed = next((each for each in names if caller.may(self.permission, each)), names[0])
                caller.verify(self.permission, allowed)


ANYONE: Final = Need(Permission.READ, Place.ANYONE)
USER: Final = Need(Permission.READ, Place.USER)
READ_SERVER: Final = Need(Permission.READ, Place.SERVER)
UPDATE_SERVER: Final = Need(Permission.READ_UPDATE, Place.SERVER)
READ_SCOPE: Final = Need(Permission.READ, Place.SCOPE)
UPDATE_SCOPE: Final = Need(Permission.READ_UPDATE, Place.SCOPE)
READ_NAME: Final = Need(Permission.READ, Place.NAME)
READ_SEGMENT: Final = Need(Permission.READ, Place.SEGMENT)
UPDATE_NAME: Final = Need(Permission.READ_UPDATE, Place.NAME)
