"""Queries verified by hand: rows drawn from the pool, each with the output that a person found right, in a file of
their own. As validation queries they tell `check` which labels are right, and races are judged by them.

Rows are drawn at random, so that the share of wrong ones among them is that of the pool's distinct rows, and spread
over it, so that few of them have something of everything (`spread`). What was begun goes on; what was passed over comes
again.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..base.arrays import Int64s
from ..base.contract import Reported
from ..base.errors import UsageError, WorkspaceError
from ..base.files import read_regular, replace_file
from ..pool.records import Demonstration
from ..retrieval.artefacts import vectors_of
from ..retrieval.spread import spread
from ..store.columns import numbers
from ..store.demonstrations import active_rows, content_keys, encoder_of, fetch, groups, task_of
from ..store.locks import exclusive
from ..store.outputs import check_labels
from ..store.workspace import Workspace
from .writers import output_of, record

FILE = "verified.jsonl"
COUNT = 100
MOST_SPREAD = 20_000
"""Rows that are spread; of a larger pool the first in the order of their hashes."""
AHEAD = 10
"""Times the rows that are wanted, as most outputs may be unclear; more of a large pool are not kept in memory."""
PREFIX = "verified-"
"""Before the id of the row in that of the query: no two rows of a workspace may have the same."""


@dataclass(frozen=True, slots=True)
class VerifiedSource:
    """Of the rows of a source that were verified, how many have another output in the pool."""

    source: str
    verified: int
    wrong: int


@dataclass(frozen=True, slots=True)
class VerifyReport(Reported):
    """What stands in the file: ``count`` rows were to be ``verified``. ``left``: the records that come next, if they
    were asked for."""

    kind = "verification"
    file: str
    count: int
    verified: int
    wrong: int
    sources: tuple[VerifiedSource, ...]
    left: tuple[Mapping[str, Any], ...] = ()


class Verification:
    """A person goes through rows, up to ``count`` of them; each verdict is in the file at once. For threads."""

    def __init__(self, workspace: Workspace, path: Path, count: int = COUNT, seed: int = 0) -> None:
        """Raises `UsageError` for a file with anything but such verdicts, and if there is no row to verify."""
        self.workspace, self.path, self.count = workspace, path, count
        self.task = task_of(workspace)
        self._records = _read(path)
        order, of = drawn(workspace, seed), groups(workspace)
        done = np.isin(of[order], of[np.array([*self._in_pool().values()], np.int64)])  # with the duplicates of each
        self._ahead: list[int] = order[~done][: AHEAD * count].tolist()
        """Numbers of the rows to come, with the present one; those that were passed over are at the end."""
        self._done: list[tuple[int, bool]] = []
        """Each row that was verified here (True) or passed over, and not taken back."""
        self.row: Demonstration | None = None
        """The row to look at; None if there are enough, or no more."""
        self._go_on(self._records, self._ahead)
        if self.row is None and not self.verified:
            raise UsageError("no active row is left that repeats no query", "icl-curate index FILES")

    @property
    def verified(self) -> int:
        return len(self._records)

    @property
    def judged(self) -> int:
        """Those of them that were verified here and not taken back."""
        return sum(verdict for _, verdict in self._done)

    def verify(self, output: str, *, new: bool = False) -> None:
        """The right output of the `row` is this. Raises `OSError` if it cannot be written and `UsageError` if the file
        was changed by somebody else, and for an output that is empty or none of the row's options, or a label that no
        row or query has, unless it is ``new``, or if no row is left; then nothing has happened."""
        if self.row is None:
            raise UsageError("no row is left to verify", f"icl-curate index --validation {self.path}")
        text = isinstance(output, str) and output.strip()
        if not text or (self.row.options and output not in self.row.options):
            raise UsageError(
                f"{self.row.id}: {output!r} is no right output", "choose one of its options, or pass it over"
            )
        self._check_label(output, new)
        number, query = self._ahead[0], replace(self.row, id=f"{PREFIX}{self.row.id}", output=output)
        if output != self.row.output:
            query = replace(query, answers=())  # they were other forms of what is wrong
        self._go_on([*self._records, record(query, self.task)], self._ahead[1:])
        self._done.append((number, True))

    def _check_label(self, output: str, new: bool) -> None:
        """Raise `UsageError` for a label that no row or query has, unless it is ``new``."""
        try:
            with self.workspace.read() as con:
                check_labels(con, {"": output}, new)
        except UsageError as error:
            raise UsageError(error.what, "correct it, or say that it is new: verify(output, new=True)") from None

    def pass_over(self) -> None:
        """The right output of the `row` is not clear: another is drawn in its place, if there is one."""
        if self.row is None:
            return
        number, *others = self._ahead
        self._go_on(self._records, [*others, number])
        self._done.append((number, False))

    def take_back(self) -> bool:
        """Take the latest verdict given here, or the latest pass over, back: its row is the next again. False if there
        is none."""
        if not self._done:
            return False
        number, verdict = self._done[-1]
        if verdict:
            self._go_on(self._records[:-1], [number, *self._ahead])
        else:
            self._go_on(self._records, [number, *self._ahead[:-1]])
        self._done.pop()
        return True

    def report(self, left: bool = False) -> VerifyReport:
        """What was found so far; with the records of the rows that are ``left`` if these are to be told."""
        known = {row.id: row for row in fetch(self.workspace, [*self._in_pool().values()])}
        judged = [(row, written["output"]) for written in self._records if (row := known.get(_id(written)))]
        verified = Counter(row.source for row, _ in judged)
        plain = frozenset if self.task.kind == "sets" else str  # of a set, the order says nothing
        wrong = Counter(row.source for row, output in judged if plain(output_of(row, self.task)) != plain(output))
        rest = self._ahead[: max(0, self.count - self.verified)] if left else []
        return VerifyReport(
            str(self.path),
            self.count,
            self.verified,
            wrong.total(),
            tuple(VerifiedSource(source, count, wrong[source]) for source, count in sorted(verified.items())),
            tuple(record(row, self.task) for row in fetch(self.workspace, rest)),
        )

    def _go_on(self, records: list[dict[str, Any]], ahead: list[int]) -> None:
        """Set the verdicts and the rows to come. What may fail comes first, so that then nothing has changed."""
        row = next(iter(fetch(self.workspace, ahead[:1] if len(records) < self.count else [])), None)
        if records is not self._records:
            self._write(records)
        self._records, self._ahead, self.row = records, ahead, row

    def _in_pool(self) -> dict[str, int]:
        """The verified rows that are still in their files, by id."""
        with self.workspace.read() as con:
            return dict(
                con.execute(
                    "SELECT id, row FROM pool WHERE id IN (SELECT unnest(CAST(? AS VARCHAR[])))",
                    [[_id(written) for written in self._records]],
                ).fetchall()
            )

    def _write(self, records: list[dict[str, Any]]) -> None:
        lines, path = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in records), self.path.resolve()

        def fill(file: BinaryIO) -> None:
            with suppress(OSError):  # a file that is there passes its permissions on; a new one is its owner's alone
                Path(file.name).chmod(path.stat().st_mode & 0o777)
            file.write(lines.encode())

        with exclusive(self.workspace.path / "tmp" / "verify.lock"):
            if _read(path) != self._records:
                raise UsageError(
                    f"{self.path} was changed meanwhile", "close this and go on with it: icl-curate verify FILE"
                )
            replace_file(path, fill)


def drawn(workspace: Workspace, seed: int = 0) -> Int64s:
    """The active rows in a random order, one of each group of duplicates, without those that repeat a query, (n,). With
    vectors the first of them are spread over all."""
    rows, of = active_rows(workspace), groups(workspace)
    with workspace.read() as con:
        asked = numbers(con, "SELECT row FROM demonstrations WHERE split <> 'pool' AND retired_at IS NULL")
    rows = rows[~np.isin(of[rows], of[asked])]
    factor = np.random.default_rng(seed).integers(1 << 64, dtype=np.uint64) | np.uint64(1)
    keys = content_keys(workspace)
    rows = rows[np.argsort(keys[rows] * factor)]  # modulo 2^64: another order for each seed
    rows = rows[np.sort(np.unique(of[rows], return_index=True)[1])]
    with suppress(WorkspaceError):  # without vectors, or where some are missing, chance alone decides
        stored = vectors_of(workspace, encoder_of(workspace) or "")
        first = rows[:MOST_SPREAD]
        if stored.holds(first, keys[first]).all():
            rows[:MOST_SPREAD] = first[spread(stored.matrix[first], np.random.default_rng(seed))]
    return rows


def _id(written: Mapping[str, Any]) -> str:
    """The id of the row that was verified."""
    return str(written["id"]).removeprefix(PREFIX)


def _read(path: Path) -> list[dict[str, Any]]:
    """The verdicts in a file; none if there is no file."""
    try:
        lines = read_regular(path).removeprefix(codecs.BOM_UTF8).splitlines()  # of bytes: texts may hold U+2028
        verdicts = [json.loads(line) for line in lines if line.strip()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}", "another file: icl-curate verify FILE") from None
    if not all(
        isinstance(one, dict) and isinstance(one.get("output"), str | list) and str(one.get("id")).startswith(PREFIX)
        for one in verdicts
    ):
        raise UsageError(f"{path} was not written by verify", "another file: icl-curate verify FILE")
    return verdicts
