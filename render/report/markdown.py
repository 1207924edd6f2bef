"""A document as Markdown, as GitHub and CommonMark read it. Texts cannot become markup, HTML, links or mentions."""

from __future__ import annotations

import re

from ...engine.pool.display import display_line
from .document import Block, Code, Line, Paragraph, Part, Picture, Points, ReportPage, Said, Section, Table

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "\\": "&#92;", "~": "&#126;", "$": "&#36;",
             "@": "&#64;", ":": "&#58;", ".": "&#46;"}  # fmt: skip
"""Characters that a backslash does not make harmless in every reader, or that end the cell of a table."""

_ACTS = re.compile(
    r"[`*_\[\]#]"  # emphasis, code, links, headings
    r"|[&<>|\\~$@]"  # HTML, cells, escapes, formulas, mentions
    r"|:(?=//|[a-z+_-][\w+-]*:)|(?<=www)\.",  # addresses, and names of emoji
    re.IGNORECASE,
)


def markdown(page: ReportPage) -> str:
    """The page as a text in UTF-8; pictures are left out, their figures are in the tables."""
    sections = "".join(_section(section) for section in page.sections)
    return f"# {_text(page.title)}\n\n{_text(page.subtitle)}\n{sections}"


def _section(section: Section) -> str:
    blocks = "".join(f"\n{_block(block)}" for block in section.blocks if not isinstance(block, Picture))
    return f"\n## {_text(section.title)}\n{blocks}"


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"{'> **Note.** ' if block.warns else ''}{_line(block.line)}\n"
    if isinstance(block, Points):
        return "".join(f"- {_line(line)}\n" for line in block.lines)
    assert isinstance(block, Table)
    heads = "".join(f"| {_text(column.head)} " for column in block.columns)
    rule = "".join("|---:" if column.number else "|---" for column in block.columns)
    rows = "".join("".join(f"| {_line(cell, table=True)} " for cell in row) + "|\n" for row in block.rows)
    note = f"\n{_text(block.note)}\n" if block.note else ""
    return f"**{_text(block.caption)}**\n\n{heads}|\n{rule}|\n{rows}{note}"


def _line(line: Line, table: bool = False) -> str:
    parts = line if isinstance(line, tuple) else (line,)
    told = "".join(_part(part, table) for part in parts).strip()
    if not table and (begins := re.match(r"[-+=]|\d+[.)](?=\s)", told)):
        return f"{told[: begins.end() - 1]}\\{told[begins.end() - 1 :]}"  # no list, no line under a heading
    return told


def _part(part: Part, table: bool) -> str:
    if isinstance(part, Code):
        # in a table a bar ends the cell even within code, and cannot be escaped in every reader
        return _text(part.text) if table and "|" in part.text else _code(part.text)
    if isinstance(part, Said):
        return _text(part.shown) + (f" *… {part.left:,} more characters*" if part.left else "")
    return _text(part)


def _code(text: str) -> str:
    """A span of code, between more backticks than the text has in a row."""
    shown = display_line(text)
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    space = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def _text(text: str) -> str:
    return _ACTS.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), display_line(text))
