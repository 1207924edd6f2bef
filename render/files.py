"""Files that could be a pool, as ``index --peek`` and the first screen of `review` list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from ..engine.index.listing import FileHere, Look
from ..engine.pool.display import display_line
from .tables import Head, show_table, show_text

NONE = "no file here that could be read: JSON, JSONL, CSV, TSV, Parquet, Arrow, YAML, Excel"


def show_files(files: Sequence[FileHere]) -> None:
    """The files of a folder, each with how it would be read, and how to see more of one."""
    if not files:
        show_text(NONE)
        return
    rows = [[here.path, amount(here, here.look), mapped(here) or read_as(here), first_row(here)] for here in files]
    note = "one in full, with --map FIELD=COLUMN for another column: icl-curate index FILE --peek"
    show_table(
        [Head("files here", cut="middle"), Head("rows", 1), Head("read as"), Head("first row", 2)], rows, note=note
    )


def mapped(here: FileHere) -> str:
    """The options with which a file is read whose columns are guessed; empty if none is needed."""
    guessed = here.look.guessed if here.look else {}
    return " ".join(f"--map {quote(f'{field}={column}')}" for field, column in guessed.items())


def amount(here: FileHere | None, seen: Look | str | None) -> str:
    """How much a file holds: its rows, or how large it is where they are not counted; of a pattern, how many files."""
    look = here.look if here and here.look else seen if isinstance(seen, Look) else None
    if here and here.files > 1:
        return f"{here.files:,} files"
    if look and look.rows is not None:
        return f"{'~' * look.about}{look.rows:,}"
    return f"{here.size / 1e6:,.1f} MB" if here else ""


def read_as(here: FileHere) -> str:
    """How a file would be read, in a few words."""
    if here.look is None:
        return here.why
    columns = columns_of(here.look)
    chat, unknown = columns[0] == "messages", columns == ("?", "?")
    return "messages (chat)" if chat else "no column is known" if unknown else " → ".join(columns)


def columns_of(seen: Look | str | None, own: Mapping[str, str] = {}) -> tuple[str, str]:
    """The columns of the input and the output, ``?`` where none is; of chats, what is taken for them."""
    if not isinstance(seen, Look):
        return "", ""
    fields = {"instruction": "?", "answers": "?", **seen.peek.understood.fields, **own}
    if "messages" in fields:
        return "messages", "each answer"
    return fields.get("input", fields["instruction"]), fields.get("output", fields["answers"])


def first_row(here: FileHere) -> str:
    """The first row that can be used, on one line; empty: there is none."""
    row = next((one.row for one in here.look.peek.rows if one.row), None) if here.look else None
    return f"{display_line(row.input)} → {display_line(row.output, 40)}" if row else ""
