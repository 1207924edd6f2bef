"""What changed between two states of a pool: two files, or a file and the pool as it is."""

from __future__ import annotations

import glob
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from ..base.contract import Reported
from ..base.errors import NoWorkspaceError, UsageError
from ..index.files import default_source, split_of
from ..index.readers.files import expand, open_input
from ..index.readers.formats import Records
from ..index.readers.records import BadRecord
from ..index.rows import Mapper
from ..index.understood import mapped_rows
from ..pool.records import Demonstration
from ..store.demonstrations import active_rows, fetch
from ..store.versions import state_of, versions
from ..store.workspace import Workspace

Change = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """What is compared of a demonstration; ``named``: it has an id of its own."""

    source: str
    input: str
    output: str
    options: tuple[str, ...]
    answers: tuple[str, ...]
    context: str
    named: bool = field(default=True, compare=False)

    def said(self, output: bool) -> ComparedRow:
        """The row in any source, with its ``output`` or any."""
        return replace(self, source="", output=self.output if output else "")


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that differs. ``before`` and ``after`` are its output, None where the row is not; ``fields`` names what
    changed of a row that is in both."""

    id: str
    change: Change
    source: str
    input: str
    before: str | None
    after: str | None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceCount:
    """Rows of a source before and after."""

    source: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PoolDiff(Reported):
    """The differences of two pools, rows by id: removed and changed ones in the order of the first, then added ones in
    that of the second. ``outputs``: how many changed rows have another output."""

    kind = "diff"
    before: int
    after: int
    added: int
    removed: int
    changed: int
    outputs: int
    sources: tuple[SourceCount, ...]
    rows: tuple[RowChange, ...]


def diff(before: dict[str, ComparedRow], after: dict[str, ComparedRow]) -> PoolDiff:
    """Compare two pools of `entries_of_file` or `entries_of_pool`."""
    after = _under_ids_of(before, after)
    rows = [
        *(change for name, entry in before.items() for change in _left(name, entry, after.get(name))),
        *(
            RowChange(name, "added", entry.source, entry.input, None, entry.output)
            for name, entry in after.items()
            if name not in before
        ),
    ]
    kinds = Counter(row.change for row in rows)
    counts = [Counter(entry.source for entry in side.values()) for side in (before, after)]
    return PoolDiff(
        len(before),
        len(after),
        kinds["added"],
        kinds["removed"],
        kinds["changed"],
        sum("output" in row.fields for row in rows),
        tuple(SourceCount(name, counts[0][name], counts[1][name]) for name in sorted(counts[0] | counts[1])),
        tuple(rows),
    )


def _under_ids_of(before: dict[str, ComparedRow], after: dict[str, ComparedRow]) -> dict[str, ComparedRow]:
    """``after``, with rows that have no id under that of a row of ``before`` alone that says the same, or else that has
    another output: their ids are hashes, of the source and of the metadata, too."""
    ids: dict[str, str] = {}
    for output in (True, False):
        taken = {*ids.values()}
        left: dict[ComparedRow, tuple[deque[str], deque[str]]] = {}  # ids by hash, ids of their own
        for name, entry in before.items():
            if name not in after and name not in taken:
                left.setdefault(entry.said(output), (deque(), deque()))[entry.named].append(name)
        for name, entry in after.items():
            if name not in before and name not in ids:
                hashed, named = left.get(entry.said(output)) or (deque(), deque())
                if alike := hashed or (deque() if entry.named else named):
                    ids[name] = alike.popleft()
    return {ids.get(name, name): entry for name, entry in after.items()}


def _left(name: str, entry: ComparedRow, now: ComparedRow | None) -> Iterator[RowChange]:
    if now is None:
        yield RowChange(name, "removed", entry.source, entry.input, entry.output, None)
    elif now != entry:
        compared = (f.name for f in fields(ComparedRow) if f.compare)
        differing = tuple(each for each in compared if getattr(entry, each) != getattr(now, each))
        yield RowChange(name, "changed", now.source, now.input, entry.output, now.output, differing)


def entries_of_file(pattern: str) -> dict[str, ComparedRow]:
    """The demonstrations of a file, or of the files that a pattern matches, by id, as `index` has them: the first of an
    id; a row without one by its content and its place among equal ones. Raises `UsageError` for a file that cannot be
    read or has no demonstration."""
    entries: dict[str, ComparedRow] = {}
    repeats = Counter[str]()
    for path in expand([pattern])[0]:
        if path != pattern and split_of(path) in ("validation", "test"):  # of a folder as the hub has it
            continue
        with open_input(path) as stream:
            for _, row in mapped_rows(Records(path, stream), Mapper({})):
                if isinstance(row, BadRecord):
                    continue
                source = row.source or default_source(path)
                options, answers = tuple(row.options), tuple(row.answers)
                entry = ComparedRow(source, row.input, row.output, options, answers, row.context, bool(row.id))
                if not (name := row.id or ""):
                    name = row.digest(source)[:8].hex()
                    repeats[name] += 1
                    name += f"~{repeats[name]}" if repeats[name] > 1 else ""
                entries.setdefault(name, entry)
    if not entries:
        raise UsageError(f"{pattern} has no demonstration", "give a file that index or export wrote")
    return entries


def entries_of_pool(workspace: Workspace) -> dict[str, ComparedRow]:
    """The active pool, by id."""
    return _entries(fetch(workspace, active_rows(workspace)))


def entries_of_version(workspace: Workspace, name: str) -> dict[str, ComparedRow]:
    """A version, by id. Raises `UsageError` for an unknown name."""
    state = state_of(workspace, name)
    return _entries(state.fetch(workspace, state.rows))


def entries_of(name: str, workspace: Callable[[], Workspace]) -> dict[str, ComparedRow]:
    """The demonstrations of a file, or of the version of this name. Raises `UsageError` if both or neither exist."""
    if Path(name).exists() or "/" in name or glob.has_magic(name):
        if not Path(name).exists() or not _has_version(workspace, name):
            return entries_of_file(name)
        raise UsageError(f"'{name}' is a file and a version", f"for the file: ./{name}")
    if _has_version(workspace, name):
        return entries_of_version(workspace(), name)
    raise UsageError(f"'{name}' does not exist: it is neither a file nor a version", "icl-curate version list")


def _has_version(workspace: Callable[[], Workspace], name: str) -> bool:
    try:
        return any(version.name == name for version in versions(workspace()))
    except NoWorkspaceError:
        return False


def _entries(rows: Iterable[Demonstration]) -> dict[str, ComparedRow]:
    return {
        row.id: ComparedRow(row.source, row.input, row.output, row.options, row.answers, row.context) for row in rows
    }
