"""The operation of `eventproc stream update`."""

from __future__ import annotations

from typing import ClassVar

import attrs

from eventproc.cli.retention import RetentionChoice
from eventproc.cli.scaling import ScalingChoice
from eventproc.store.database import Tx
from eventproc.workflows.requests import OfStream, UpdateStream, stream_of


@attrs.frozen
class ChangeConfig(OfStream):
    """Change what the options of `stream update` name. tags: None: as they are."""

    kind: ClassVar[str] = UpdateStream.kind
    scaling: ScalingChoice
    retention: RetentionChoice
    tags: tuple[str, ...] | None

    def plan(self, tx: Tx) -> UpdateStream:
        """See `Operation`. Raises UsageError for options that the present policy contradicts."""
        found = stream_of(tx, self)
        config = attrs.evolve(
            self.retention.applied_to(found.config),
            scaling=self.scaling.applied_to(found.config.scaling),
            tags=found.config.tags if self.tags is None else self.tags,
        )
        given = {"scaling": self.scaling.is_given, "tags": self.tags is not None}
        fields = (*(field for field, is_given in given.items() if is_given), *self.retention.fields)
        keeps = not self.scaling.is_given
        return UpdateStream(*(found.name, found.stream_id, config, keeps, fields), if_version=self.if_version)
