"""The lists of duplicates, leaks and skipped records: groups, page by page, and their rows; a line for each, and two
rows side by side. No Textual."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rich.table import Column, Table
from rich.text import Text

from ....engine.base.errors import UsageError
from ....engine.checks.groups import GroupRow, RowGroup, prunable, read_groups
from ....engine.index.results import Skipped, SkippedReason
from ....engine.pool.display import display_line, display_text
from ....engine.store.browse import GroupKind, RowGroups, row_groups
from ....engine.store.decisions import ids_in_pool
from ....engine.store.workspace import Workspace
from ....render.checks import row_told
from ....render.columns import LineColumn
from ....render.pool import NOT_COMPARED
from ...model import PoolRow
from ...widgets.lines import CUT, Line

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
        self.found, self._read = page.of, {}
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
        `UsageError` if that is nothing, or if one is no longer in its file."""
        if not group.prunes:
            raise UsageError("no row to prune here", "other outputs are left to you: enter, then x")
        ids_in_pool(workspace, [row.row for row in group.rows if row.to_prune])
        return group.prunes

    def all_pruned(self, workspace: Workspace) -> Mapping[str, str]:
        """The same of all groups. For threads."""
        if found := prunable(workspace, self.kind):
            return found
        raise UsageError("no row to prune in any group", "icl-curate history")

    def restored(self, group: RowGroup, member: int | None) -> list[int]:
        """The pruned rows of a group, or the one member if it is pruned."""
        rows = group.rows if member is None else group.rows[member : member + 1]
        return [row.row for row in rows if row.pruned]


MOST = 3_000
"""Maximum characters of a text that are compared and displayed; the rest is counted."""

GROUPS = [
    LineColumn("rows", "rows", 4, right=True),
    LineColumn("prune", "to prune", 8, right=True),
    LineColumn("source", "sources", 13, rank=2, grow=1, most=30, cut="middle"),
    LineColumn("input", "input", 20, grow=6),
    LineColumn("output", "output", 10, grow=2, most=40, rank=1),
]
MEMBERS = [
    LineColumn("what", "", 36, grow=5, most=48),
    LineColumn("id", "id", 8, grow=1, most=24, cut="start"),
    LineColumn("source", "source", 8, rank=2, grow=1, most=24, cut="middle"),
    LineColumn("output", "output", 10, grow=2, most=40, rank=1),
    LineColumn("from", "from", 14, grow=2, most=60, rank=3, cut="start"),
]
REASONS = [
    LineColumn("records", "records", 8, right=True),
    LineColumn("reason", "reason", 24, grow=1),
]
RECORDS = [
    LineColumn("file", "file", 12, grow=2, most=60, cut="start"),
    LineColumn("line", "line", 9, right=True),
    LineColumn("why", "why", 24, grow=3),
]


def groups_line(model: GroupsModel, name: str) -> Text:
    """How many groups there are."""
    text = Text(no_wrap=True, overflow="ellipsis")
    if model.found is None:
        return text.append("reading …", "muted")
    count = len(model.found)
    if not model.found.compared:
        return text.append(NOT_COMPARED, "warn")
    text.append(f"{count:,} group{'' if count == 1 else 's'} of {name}", "title")
    return text.append("  only those with several active rows" if model.only_open else "", "accent")


def group_line(group: RowGroup) -> Line:
    named = [*dict.fromkeys(row.source for row in group.rows if row.split == "pool")]
    sources = f"{named[0]} +{len(named) - 1}" if len(named) > 1 else "".join(named)
    outputs = ", ".join(dict.fromkeys(row.output[:CUT] for row in group.rows))
    count = len(group.prunes)
    several = len({row.output for row in group.rows}) > 1
    return Line(
        (
            len(group.rows), count or "", display_line(sources, CUT), display_line(group.first.input, CUT),
            Text(display_line(outputs, CUT), "warn" if several else ""),
        ),
        "" if count else "muted",
        ("≈", "warn") if count else (" ", ""),
    )  # fmt: skip


def member_line(row: GroupRow) -> Line:
    sign = ("✗", "bad") if row.pruned else ("≈", "warn") if row.to_prune else (" ", "")
    told = Text(display_line(row_told(row), CUT), "accent" if row.split != "pool" else "")
    cells = (told, row.id, row.source, display_line(row.output, CUT), f"{row.file}:{row.line}")
    return Line(cells, "muted" if row.pruned else "", sign)


def side_by_side(first: GroupRow, other: GroupRow) -> Table:
    """Two rows, with the words underlined that only one of them has."""
    table = Table.grid(Column(ratio=1), Column(ratio=1), padding=(0, 2, 0, 0), expand=True)
    table.add_row(_head(first), _head(other))
    for name in ("input", "output"):
        table.add_row(Text())
        table.add_row(Text(name, "primary"), Text(name, "primary"))
        table.add_row(*compared(getattr(first, name), getattr(other, name)))
    return table


def _head(row: GroupRow) -> Text:
    where = f"  {row.source if row.split == 'pool' else row.split}, {row.file}:{row.line}"
    text = Text.assemble((display_line(row.id, 60), "title"), (display_line(where, 120), "muted"))
    return text.append("  pruned", "bad") if row.pruned else text


def compared(left: str, right: str) -> tuple[Text, Text]:
    """Two texts with the words marked in which they differ."""
    mine, others = (re.findall(r"\s+|[^\s\w]|\w+", display_text(text[:MOST])) for text in (left, right))
    texts = Text(), Text()
    for kind, i, j, k, n in SequenceMatcher(None, mine, others, autojunk=False).get_opcodes():
        for text, words in zip(texts, (mine[i:j], others[k:n]), strict=True):
            start = len(text)
            text.append("".join(words))
            if kind != "equal":
                text.stylize("warn", start)
                text.stylize("underline", start)
    for text, whole in zip(texts, (left, right), strict=True):
        if len(whole) > MOST:
            text.append(f"\n… {len(whole) - MOST:,} more characters", "muted")
    return texts


def skipped_line(reasons: Sequence[SkippedReason]) -> Text:
    """How many records were skipped."""
    count = sum(len(reason.records) for reason in reasons)
    text = Text.assemble((f"{count:,} skipped record{'' if count == 1 else 's'}", "title"))
    return text.append("  correct them in their files, then index again", "muted") if count else text


def record_line(record: Skipped) -> Line:
    return Line((record.file, f"{record.line:,}", display_line(record.reason, CUT)))
