"""A form for the files of a pool: names and columns in, the first rows as they will be read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shlex import quote, split

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from ...engine.base.errors import CurateError, counted
from ...engine.index.peek import Peek, peek
from ...engine.index.readers.files import expand
from ...engine.index.rows import OF_FILES, mismatch
from ...engine.pool.display import display_line
from ..actions import Action
from ..completion import NextWord, completed, fitting, readable
from ..widgets.bars import KeyBar
from ..widgets.field import Field
from ..workers import BackgroundWork, later
from .dialog import Dialog

FILES = ("pool", "validation", "test")
COLUMNS = ("input", "output", "source", "options", "context")
FIELDS: Mapping[str, tuple[str, str]] = {
    "pool": ("Pool", "files or patterns: a.csv data/*.jsonl"),
    "validation": ("Validation", "queries: a file, or a share: 0.1"),
    "test": ("Test", "queries: a file, or a share: 0.1"),
    "input": ("Input", "column, or of a file: a.csv::text"),
    "output": ("Output", "column"),
    "source": ("Source", "column"),
    "options": ("Options", "column"),
    "context": ("Context", "column"),
    "labels": ("Labels", "names of 0, 1, …: bad,good"),
}
"""The fields in order, each with its label and what can be typed."""

_SEVERAL = re.compile(rf",(?=[^,]*{OF_FILES})")
"""Between columns of different files: the name of a column may have a comma of its own."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the files hold: the first rows of the pool, notes and errors by field."""

    typed: Mapping[str, str]
    pool: Peek | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether the files can be indexed like this."""
        return self.pool is not None and not self.errors and any(row.row for row in self.pool.rows)


def share_of(text: str) -> float | None:
    """A share of the pool, if the text is a number and no file has that name."""
    try:
        return None if Path(text).exists() else float(text)
    except ValueError:
        return None


def files_of(text: str) -> list[str]:
    """The files and patterns of the field for the pool: separated by spaces or commas, quoted as in a shell. The name
    of an existing file is one, whatever is in it."""
    text = text.strip()
    if not text or Path(text).exists():
        return [text] if text else []
    try:
        words = split(text)
    except ValueError:  # a quotation mark without its partner
        words = text.split()
    return [part for word in words for part in ([word] if Path(word).exists() else word.split(",")) if part]


def labels_of(typed: Mapping[str, str]) -> tuple[str, ...]:
    """The names of labels: separated by commas, from that of the smallest number on."""
    return tuple(name.strip() for name in typed.get("labels", "").split(",") if name.strip())


def columns_typed(typed: Mapping[str, str]) -> dict[str, str]:
    """The columns as ``--map`` has them: one for all files, or several, such as ``Message, old.tsv::text``."""
    parts = [(name, part.strip()) for name in COLUMNS for part in _SEVERAL.split(typed.get(name, ""))]
    split_parts = [(name, *part.rpartition(OF_FILES)) for name, part in parts if part]
    return {f"{glob}{mark}{name}": column for name, glob, mark, column in split_parts}


def look(words: Sequence[str], columns: Mapping[str, str], labels: Sequence[str] = ()) -> tuple[Peek, str]:
    """The first rows of several files or patterns, as one: three of a single one, else one of each; and why one of
    them cannot be used, as ``index`` would say. Raises `UsageError` for one that cannot be read."""
    peeks = [peek(word, columns, labels=labels) for word in words]
    bad = next((whole for whole in peeks if not any(row.row for row in whole.rows)), None)
    why = (bad.rows[0].reason if bad.rows else "no rows") if bad else ""
    whole = replace(
        peeks[0],
        files=sum(whole.files for whole in peeks),
        understood=replace(
            peeks[0].understood, columns=tuple(dict.fromkeys(column for whole in peeks for column in whole.columns))
        ),
        warnings=tuple(dict.fromkeys(warning for whole in peeks for warning in whole.warnings)),
        rows=tuple(row for whole in peeks for row in (whole.rows if len(peeks) == 1 else whole.rows[:1])),
    )
    return whole, f"{bad.path}: {why}" if bad and len(peeks) > 1 else why


def check(typed: Mapping[str, str]) -> Checked:
    """Read the first rows of the files with the columns typed. For threads."""
    columns = columns_typed(typed)
    notes: dict[str, str] = {}
    errors: dict[str, str] = {}
    pool: Peek | None = None
    shares = 0.0
    texts = {name: text for name in FILES if (text := typed.get(name, "").strip())}
    share_by_name = {name: share_of(text) for name, text in texts.items() if name != "pool"}
    queries = [texts[name] for name, share in share_by_name.items() if share is None]
    with suppress(CurateError):  # a file that cannot be read is told below
        paths, _ = expand([*files_of(texts.get("pool", "")), *queries])
        errors |= {key.rpartition(OF_FILES)[2]: why for key in columns if (why := mismatch(key, paths))}
    for name, text in texts.items():
        if (share := share_by_name.get(name)) is not None:
            shares += share
            if not 0 < share < 1 or shares >= 1:
                errors[name] = "shares are above 0 and leave a part to the pool"
            else:
                notes[name] = f"{share:.0%} of the pool is held out"
            continue
        try:
            peeked, reason = look(files_of(text) if name == "pool" else [text], columns, labels_of(typed))
        except CurateError as error:
            errors[name] = f"{error.what}; {error.fix}"
            continue
        lacking = {key.rpartition(OF_FILES)[2]: c for key, c in columns.items() if c not in peeked.columns}
        if name == "pool":  # a file of queries may lack a column, such as that of the source
            errors |= {field: f"no column '{column}'" for field, column in lacking.items()}
        if reason and not (name == "pool" and lacking):
            errors[name] = reason
        notes[name] = counted(peeked.files, "file") if peeked.files > 1 else "read"
        pool = peeked if name == "pool" else pool
    if pool is not None:
        for name in FILES:
            unknown = (column for column in pool.columns if f"no column '{column}'" in errors.get(name, ""))
            if column := next(unknown, ""):
                errors[name] += f"; if only one file has it: FILE::{column}"
        notes |= {
            field: f"← {pool.fields[field]}" for field in COLUMNS if field in pool.fields and field not in columns
        }
    return Checked(dict(typed), pool, notes, errors)


def command(typed: Mapping[str, str]) -> str:
    """The command line of what is typed."""
    words = ["index", *(quote(path) for path in files_of(typed["pool"]))]
    for name in ("validation", "test"):
        if text := typed.get(name, "").strip():
            share = share_of(text)
            words += [f"--{name}", quote(text)] if share is None else [f"--{name}-fraction", text]
    words += [f"--map {quote(f'{key}={column}')}" for key, column in columns_typed(typed).items()]
    if labels := labels_of(typed):
        words.append(f"--labels {quote(','.join(labels))}")
    return " ".join(words)


def preview(checked: Checked, width: int) -> RenderableType:
    """What is wrong, the columns of the pool, and its first rows as they will be read."""
    wrong = [Text(f"{FIELDS[name][0]}: {display_line(why)}", "bad") for name, why in checked.errors.items()]
    pool = checked.pool
    if pool is None:
        return Group(*wrong) if wrong else Text("Its first rows appear here as they will be read.", "muted")
    columns = Text.assemble(("columns  ", "primary"), (display_line(", ".join(pool.columns), 4 * width), "muted"))
    notes = [Text(display_line(note, 2 * width), "muted") for note in pool.understood.notes]
    notes += [Text(display_line(warning, 2 * width), "warn") for warning in pool.warnings]
    rows = [read.row for read in pool.rows if read.row]
    names = ["input", "output", "source"]
    names += [name for name in ("options", "context", "split") if any(getattr(row, name) for row in rows)]
    table = Table(box=None, pad_edge=False, expand=True, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(Text(name, "primary"), ratio=4 if name == "input" else 2, no_wrap=True, overflow="ellipsis")
    for read in pool.rows:
        if read.row is not None:
            told = {"source": read.source, "options": " | ".join(read.row.options), "split": read.row.split or ""}
            values = [told[name] if name in told else getattr(read.row, name) for name in names]
            table.add_row(*(Text(display_line(value, width)) for value in values))
    bad = [
        Text(f"line {read.line}: {display_line(read.reason, 2 * width)}", "bad") for read in pool.rows if not read.row
    ]
    return Group(*wrong, columns, *notes, *([table] if rows else []), *bad)


PAUSE = 0.15
"""Seconds after the last letter until the files are read."""


class IndexForm(Dialog[str | None], BackgroundWork):
    """Returns the command line that indexes what was typed, None if it was left."""

    TITLE = "Index"
    ACTIONS = (
        Action("form.enter", "enter", "Continue", "Show what would be indexed", bound=False),
        Action("form.complete", "tab", "Complete", "Complete the file or column, else go to the next field"),
        Action("form.next", "down", "Next", "Next field", call="step(1)"),
        Action("form.before", "up,shift+tab", "", "Field before", footer=False, call="step(-1)"),
        Action("form.close", "escape", "Leave", "Cancel"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.found = Checked({})
        self._wanted = False
        """Enter was pressed before the files were read."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog form"):
            yield Static(Text("Index a pool of demonstrations", "bold"), classes="title")
            for name, (label, hint) in FIELDS.items():
                words = partial(self._words, name)
                with Horizontal(classes="entry"):
                    yield Static(label, classes="label")
                    entry = Field(self.review.draft.get(name, ""), id=name, placeholder=hint, completed=words)
                    entry.compact, entry.select_on_focus = True, False
                    yield entry
                    yield Static(id=f"note-{name}", classes="note", markup=False)
            yield Static(id="rows")  # last: in a small window it is what scrolls
        yield KeyBar(actions=self.ACTIONS)

    def on_mount(self) -> None:
        self._check_soon = later(self, PAUSE, self._check)
        self._show(self.found)

    @property
    def typed(self) -> dict[str, str]:
        return {name: self.query_one(f"#{name}", Input).value for name in FIELDS}

    def action_step(self, by: int) -> None:
        (self.focus_next if by > 0 else self.focus_previous)(Field)

    def _words(self, name: str, typed: str) -> list[NextWord]:
        """Files, quoted where several can be typed, or the columns of the pool. For threads."""
        if name in FILES:
            listed = completed(None, typed) if typed else readable()
            return listed if name == "pool" else [replace(one, line=one.word) for one in listed]
        columns = self.found.pool.columns if self.found.pool and name in COLUMNS else ()
        listed = [NextWord(column, "", column) for column in columns if column != typed]
        return fitting(typed, listed, lambda column: column.word)

    def uncompleted(self, field: Field) -> None:
        """Where nothing can be completed, tab goes to the next field; a name that fits no file stays."""
        if field.id in FILES and field.value and not Path(field.value).exists() and share_of(field.value) is None:
            super().uncompleted(field)
        else:
            self.action_step(1)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._wanted = False
        self.review.draft.update(self.typed)
        self._check_soon()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.found.typed != self.typed:
            self._wanted = True
            self._check()
        elif self.found.ready:
            self.dismiss(command(self.typed))
        else:
            wrong = next((name for name in FIELDS if name in self.found.errors), "pool")
            self.query_one(f"#{wrong}", Input).focus()

    def _check(self) -> None:
        typed = self.typed
        self.in_thread("check", lambda: check(typed), self._show)

    def _show(self, checked: Checked) -> None:
        self.found = checked
        for name in FIELDS:
            error = checked.errors.get(name)
            note = Text("▲ see below", "bad") if error else Text(display_line(checked.notes.get(name, "")), "muted")
            self.query_one(f"#note-{name}", Static).update(note)
        self.query_one("#rows", Static).update(preview(checked, self.size.width))
        if self._wanted and checked.typed == self.typed:
            self._wanted = False
            if checked.ready:
                self.dismiss(command(self.typed))
