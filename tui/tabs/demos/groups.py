"""State of the lists of duplicates and leaks in the Demos tab: groups, page by page, and their rows. No Textual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....engine.base.errors import UsageError
from ....engine.checks.groups import GroupRow, RowGroup, prunable, read_groups
from ....engine.store.browse import GroupKind, RowGroups, row_groups
from ....engine.store.decisions import id_in_pool
from ....engine.store.workspace import Workspace
from ...model import PoolRow

PAGE = 90
"""Groups read together with their texts."""


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups from number ``first`` on."""

    of: RowGroups
    first: int
    groups: Sequence[RowGroup]


class GroupsModel:
    """The groups of one kind, and those whose texts were read."""

    def __init__(self, kind: GroupKind) -> None:
        self.kind: GroupKind = kind
        self.only_open = False
        self.found: RowGroups | None = None
        self.trouble = ""
        """Why there is no list."""
        self._read: dict[int, RowGroup] = {}

    # Reading, in threads.

    def look(self, workspace: Workspace, top: int) -> GroupPage:
        """All groups, and the texts of those from line ``top`` on."""
        found = row_groups(workspace, self.kind, self.only_open)
        first = max(0, min(top, len(found) - PAGE))
        return GroupPage(found, first, read_groups(workspace, found, first, first + PAGE))

    def page(self, workspace: Workspace, found: RowGroups, first: int, last: int) -> GroupPage:
        """The texts of groups from ``first`` to ``last`` (excluded)."""
        return GroupPage(found, first, read_groups(workspace, found, first, last))

    # Results.

    def take(self, page: GroupPage, cursor: int) -> int:
        """Set the groups anew; returns the line of the group that was at ``cursor``, or that line."""
        here = self.at(cursor)
        self.found, self.trouble, self._read = page.of, "", {}
        self.put(page)
        rows = page.of.rows[page.of.starts[:-1]].tolist()
        wanted = here.rows[0].row if here else None
        return rows.index(wanted) if wanted in rows else max(0, min(cursor, len(rows) - 1))

    def put(self, page: GroupPage) -> bool:
        """Add texts; False if they are of groups that are no longer shown."""
        if page.of is not self.found:
            return False
        self._read |= dict(enumerate(page.groups, page.first))
        return True

    def at(self, line: int) -> RowGroup | None:
        """The group in this line, if its texts were read."""
        return self._read.get(line)

    def pair(self, group: RowGroup, member: int) -> tuple[GroupRow, GroupRow]:
        """The first row of the group, and the row to read beside it: that in line ``member``, or another one."""
        first = group.first
        rows = [row for row in group.rows if row is not first]
        chosen = group.rows[member] if member < len(group.rows) else first
        return first, chosen if chosen is not first else rows[0]

    # Decisions.

    def member(self, line: int, member: int) -> PoolRow | None:
        """The row in line ``member`` of a group, if it is one of the pool."""
        group = self.at(line)
        row = group.rows[member] if group and member < len(group.rows) else None
        if row is None or row.split != "pool":
            return None
        return PoolRow(row.row, row.id, row.reason or f"in review, {self.kind}")

    def pruned(self, workspace: Workspace, group: RowGroup) -> Mapping[str, str]:
        """What keeping the first of the group prunes, or all rows of a leak: ids and reasons. For threads. Raises
        `UsageError` if that is nothing, or if one is pruned already."""
        if not group.prunes:
            raise UsageError("no row to prune here", "other outputs are left to you: enter, then x")
        for row in group.rows:
            if row.to_prune:
                id_in_pool(workspace, row.row, row.id)
        return group.prunes

    def all_pruned(self, workspace: Workspace) -> Mapping[str, str]:
        """The same of all groups. For threads."""
        if found := prunable(workspace, self.kind):
            return found
        raise UsageError("no row to prune in any group", "icl-curate history")

    def restored(self, group: RowGroup, member: int | None) -> list[str]:
        """Ids of the pruned rows of a group, or that of one member if it is pruned."""
        rows = group.rows if member is None else group.rows[member : member + 1]
        return [row.id for row in rows if row.pruned]
