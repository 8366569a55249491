"""The dead letters of a group, without `await`."""

from __future__ import annotations

from functools import partial

from eventproc.blocking.loop import Loop
from eventproc.processors.dead_letters.letters import LIST_MAX, DeadLetter, DeadLetters, Ids, LetterCount


class BlockingDeadLetters:
    """The dead letters of one group; made by `BlockingEventproc.dead_letters`. See `DeadLetters`."""

    def __init__(self, loop: Loop, letters: DeadLetters) -> None:
        self._loop = loop
        self._letters = letters

    @property
    def group(self) -> str:
        """The group's full name."""
        return self._letters.group

    def list(self, *, limit: int = LIST_MAX, after: str | None = None) -> list[DeadLetter]:
        """Return a page of pending letters; an empty one is the end. See `DeadLetters.list`."""
        return self._loop.call(partial(self._letters.list, limit=limit, after=after))

    def get(self, letter: str) -> DeadLetter:
        """Return the pending letter of that id. Raises NotFound, InvalidArgument."""
        return self._loop.call(self._letters.get, letter)

    def count(self, ids: Ids = "all") -> LetterCount:
        """Return how many of the letters are pending, and their size. See `DeadLetters.count`."""
        return self._loop.call(self._letters.count, ids)

    def redrive(self, ids: Ids) -> int:
        """Give the originals back to the group; return how many were pending. See `DeadLetters.redrive`."""
        return self._loop.call(self._letters.redrive, ids)

    def drop(self, ids: Ids) -> int:
        """Let go of letters, for ever; return how many were pending. See `DeadLetters.drop`."""
        return self._loop.call(self._letters.drop, ids)
