"""Tabs that are still to come: what they will show, and the command that does it meanwhile."""

from __future__ import annotations

from typing import ClassVar

from ...engine.store.workspace import Workspace
from ..room import Empty, Room


class Placeholder(Room):
    """A room that only says where to look instead."""

    INSTEAD: ClassVar[Empty]

    def read(self, workspace: Workspace) -> Empty:
        return self.INSTEAD


class CalibrateRoom(Placeholder):
    NAME, TITLE, ABOUT = "calibrate", "Calibrate", "Why an answer is wrong, and whether another round mends it."
    INSTEAD = Empty(
        "No calibration yet", "Rounds of asking again, guided by uncertainty.", "icl-curate calibrate QUERY"
    )
