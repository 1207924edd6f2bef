"""How the columns of a file were understood: what kind of file it is, which column is what, what its numbers mean."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from shlex import quote

from .fields import Lists
from .readers.formats import Records
from .readers.records import BadRecord, Record
from .rows import SURVEYED, Mapper, Row

SURVEYED_CHARACTERS = 64 << 20
FEW_LABELS = 6
"""Names of labels that a line shows."""
FEW_COLUMNS = 12
"""Columns that a line shows."""


@dataclass(frozen=True, slots=True)
class Understood:
    """``shape`` is the tool or data set whose records were recognised, empty for plain ones; ``columns`` are those
    of most of the first records, ``fields`` the column of each field that was found, ``others`` those kept as metadata.
    ``numbers``: what numbers among the answers mean, empty if no answer is one beside options. ``labels``: names of
    labels by column, from the file itself. ``lists``: what lists as outputs mean. ``lacking``, ``texts``, ``outputs``
    and ``examples``: what is to be mapped, and what could be, see `Fitting`. ``absent``: columns that were mapped and
    that the first records do not have."""

    path: str
    format: str
    shape: str
    columns: tuple[str, ...]
    fields: Mapping[str, str]
    others: tuple[str, ...]
    numbers: str = ""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lists: Lists = ""
    lacking: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    examples: Mapping[str, str] = field(default_factory=dict, compare=False)
    absent: tuple[str, ...] = ()

    def mapping(self, files: str = "") -> str:
        """The options that map what is `lacking` to what fits, for ``files`` alone: to COLUMN, which is to be filled
        in, where no column does, or several."""
        joined = " / ".join(f"{{{column}}}" for column in self.texts)
        fits = {"input": joined or "COLUMN", "output": "COLUMN", **self.fits}
        return " ".join(f"--map {quote(f'{files}{name}={fits[name]}')}" for name in self.lacking)

    @property
    def fits(self) -> dict[str, str]:
        """The column of what is `lacking`, where only one fits."""
        some = {"input": self.texts, "output": self.outputs}
        return {name: some[name][0] for name in self.lacking if len(some[name]) == 1}

    @property
    def shown(self) -> str:
        """Each column that could be mapped, with an example."""
        shown = [f"{column}: {value}" for column, value in self.examples.items()] or self.columns
        return "; ".join(shown[:FEW_COLUMNS])

    def is_like(self, other: Understood) -> bool:
        """Whether another file was understood in the same way."""
        return replace(self, path=other.path) == other

    @property
    def line(self) -> str:
        """Which column is what, in one line."""
        found = ", ".join(f"{name} ← {column}" for name, column in self.fields.items())
        return (found or "no column is known") + (f"; fields: {', '.join(self.others)}" if self.others else "")

    @property
    def notes(self) -> tuple[str, ...]:
        """What else was recognised, a line each."""
        told = [f"recognised: {self.shape}"] if self.shape else []
        if self.lacking:
            what = " and none the ".join(self.lacking)
            own = f"{Path(self.path).name}::" if self.absent else ""  # what holds for all files is of others
            told.append(f"no column is the {what}: {self.mapping(own)} ({self.shown})")
        told += filter(None, [nameless(self.format, self.lacking)])
        if self.numbers == "text":
            told.append("numbers among the answers are texts of options")
        elif self.numbers:
            told.append(f"numbers among the answers are places of options, counted {self.numbers}")
        if self.lists:
            meaning = "sets of labels" if self.lists == "labels" else "answers of which each is right"
            told.append(f"lists in {self.fields.get('output')} are {meaning}")
        for column, names in self.labels.items():
            few = ", ".join(f"{i} {name}" for i, name in enumerate(names[:FEW_LABELS]))
            told.append(f"labels of {column}: {few}{', …' if len(names) > FEW_LABELS else ''}")
        return tuple(told)


def understand(records: Records, mapper: Mapper) -> tuple[Understood, Iterator[tuple[int, Row | BadRecord]]]:
    """What the first records of a file say of all of them, and its rows, with their lines. Raises as `Records` does."""
    first = surveyed(records)
    good = [record for _, record in first if not isinstance(record, BadRecord)]
    mapper.survey(good, records.kinds())
    alike = Counter(map(tuple, good))
    usual = max(good, key=lambda record: alike[tuple(record)], default={})  # the first may be of another kind
    columns = mapper.columns(usual)
    fields = mapper.fields(columns)
    told = Understood(
        records.path,
        records.format,
        records.shape or mapper.shape(usual),
        columns,
        fields,
        mapper.others(columns),
        mapper.numbers if mapper.numbered else "",
        {column: names for column, names in records.label_names().items() if column in fields.values()},
        mapper.lists,
        *mapper.fitting(good),
        absent=mapper.absent(good),
    )
    return told, rows_of(chain(iter(first), records), mapper)


def surveyed(found: Iterable[Record]) -> list[Record]:
    """The first records, from which it is decided how all are read: `SURVEYED`, or fewer if their texts are long."""
    first: list[Record] = []
    characters = 0
    for line, record in islice(found, SURVEYED):
        first.append((line, record))
        with suppress(RecursionError, ValueError):  # texts may be deep in lists, and numbers have too many digits
            characters += len(str(record))
        if characters > SURVEYED_CHARACTERS:
            break
    return first


def mapped_rows(found: Records, mapper: Mapper) -> Iterator[tuple[int, Row | BadRecord]]:
    """The rows of all records, or why there is none, with their lines; the first records say what numbers mean."""
    return understand(found, mapper)[1]


def rows_of(found: Iterable[Record], mapper: Mapper) -> Iterator[tuple[int, Row | BadRecord]]:
    """The rows of records, or why there is none, with their lines."""
    for line, record in found:
        for row in (record,) if isinstance(record, BadRecord) else mapper.rows(record):
            yield line, row


def nameless(format: str, lacking: Collection[str]) -> str:
    """What to do if the first line of a table is no header, where no name in it is that of a field; else empty."""
    if format not in ("csv", "tsv") or len(lacking) < 2:
        return ""
    return "if line 1 is a row, put column names above it: input,output"


def absent_line(name: str, column: str, columns: Sequence[str]) -> str:
    """The warning that a column mapped to the field ``name`` is not there, beside the ``columns`` that are."""
    return f"the first records have no column {column!r} (--map {name}={column}); {like_column(column, columns)}"


def like_column(column: str, columns: Sequence[str]) -> str:
    """Which of the ``columns`` may be meant by one that is not there."""
    alike = {one.lower().replace(" ", "_"): one for one in reversed(columns)}
    near = difflib.get_close_matches(column.lower().replace(" ", "_"), alike, 1)
    return f"did you mean {alike[near[0]]!r}?" if near else f"columns: {', '.join(columns[:FEW_COLUMNS])}"


MOST_LABEL = 99
"""The highest number that is taken for a label without a name."""


def unnamed_labels(outputs: Collection[str], rows: int) -> tuple[int, int] | None:
    """The lowest and the highest of the ``outputs`` of so many rows without options if all are few small numbers, one
    after the other: they are likely to stand for labels, and an LLM needs their names."""
    if not all(output.removeprefix("-").isdecimal() and output.isascii() and len(output) < 4 for output in outputs):
        return None
    found = sorted({*map(int, outputs)})
    few = 2 <= len(found) <= rows // 2 and found[-1] <= MOST_LABEL and len(found) == found[-1] - found[0] + 1
    return (found[0], found[-1]) if few and found[0] in (-1, 0, 1) else None


def name_them(path: str, low: int, high: int) -> str:
    """The warning about labels without names."""
    return (
        f"{path}: all outputs are numbers from {low} to {high}; if they stand for labels, name them: "
        "index … --labels NAME,NAME,…"
    )
