"""A document as one HTML page that needs nothing else: no script, no request, every text escaped.

The policy in its head forbids everything but its own style, should a text ever get through. Pictures are SVG: their
colours come from the page's style, so that they follow light, dark and print; shapes alone tell before from after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import count

from ...engine.base.errors import counted
from ...engine.pool.display import display_line
from .document import (
    BarPair,
    Block,
    Code,
    Column,
    Dot,
    Line,
    Mark,
    Paragraph,
    Part,
    Picture,
    Points,
    ReportPage,
    Said,
    Section,
    StepBar,
    Table,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STYLE = """
:root{color-scheme:light dark;--ink:#1c2326;--quiet:#5a666b;--paper:#fff;--rule:#d5dcde;--strong:#00695c;--pale:#b9d5d1;
--warn:#fff4d6;--warn-ink:#5c4300}
@media (prefers-color-scheme:dark){:root{--ink:#e4e9ea;--quiet:#a2aeb2;--paper:#15191b;--rule:#384245;--strong:#5cc9b9;
--pale:#2b514c;--warn:#3d3210;--warn-ink:#f6dfa0}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
header,main,nav{max-width:68rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}
h1{font-size:1.7rem;line-height:1.2;margin:0}
h2{font-size:1.25rem;margin:2.5rem 0 .75rem;padding-top:.5rem;border-top:2px solid var(--strong)}
p{max-width:60rem}
header p,.note{color:var(--quiet)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;padding:0;margin:1rem 0;list-style:none}
a{color:var(--strong)}
a:focus-visible,.scroll:focus-visible{outline:2px solid var(--strong);outline-offset:2px}
.warns{background:var(--warn);color:var(--warn-ink);border-left:4px solid currentColor;padding:.6rem .9rem}
.scroll{overflow-x:auto;margin:1.25rem 0}
table{border-collapse:collapse;font-size:.9rem;min-width:min(100%,24rem)}
caption{text-align:left;font-weight:600;padding-bottom:.4rem}
th,td{padding:.35rem .8rem .35rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
thead th{color:var(--quiet);font-weight:600;border-bottom-width:2px}
tbody th{font-weight:500;min-width:5.5rem}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.number,th.number{padding-right:1.2rem}
td,th{min-width:4.5rem;overflow-wrap:break-word;max-width:22rem}
.wide{min-width:15rem}
.number{min-width:0}
.note{font-size:.85rem;margin:.4rem 0 0}
code{font:.85em/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
.cut{color:var(--quiet);white-space:nowrap}
figure{margin:1.25rem 0;max-width:32rem}
figcaption{font-size:.9rem;font-weight:600;margin-bottom:.4rem}
svg{display:block;width:100%;height:auto;font:13px system-ui,sans-serif}
svg text{fill:var(--ink);paint-order:stroke;stroke:var(--paper);stroke-width:4px}
svg .tick{fill:var(--quiet);font-size:11px}
svg .before{fill:var(--pale);stroke:var(--strong);stroke-width:.75}
svg .after{fill:var(--strong)}
svg .line{stroke:var(--strong);stroke-width:2;fill:none}
svg .grid{stroke:var(--rule);fill:none}
svg .hollow{fill:var(--paper);stroke:var(--strong);stroke-width:2}
svg .filled{fill:var(--strong);stroke:var(--strong);stroke-width:2}
@page{margin:15mm}
@media print{:root{color-scheme:light;--ink:#000;--quiet:#444;--paper:#fff;--rule:#bbb;--strong:#00695c;--pale:#b9d5d1;
--warn:#fff;--warn-ink:#000}
body{font-size:10pt}nav{display:none}header,main{max-width:none;padding:0}
.scroll{overflow:visible}table{font-size:8pt}.note{font-size:8pt}
td,th{min-width:0;max-width:10rem}td.wide,th.wide{min-width:2.8cm;max-width:none;overflow-wrap:anywhere}
figure{max-width:11cm}
tr,figure,.warns{break-inside:avoid}h2,caption,figcaption{break-after:avoid}
svg *{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


def html(page: ReportPage) -> str:
    """The page as a text in UTF-8."""
    links = "".join(f'<li><a href="#{section.name}">{_text(section.title)}</a></li>' for section in page.sections)
    numbers = count(1)
    body = "".join(_section(section, numbers) for section in page.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(page.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{_text(page.title)}</h1>\n<p>{_text(page.subtitle)}</p>\n</header>\n"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main>\n{body}</main>\n</body>\n</html>\n'
    )


def _section(section: Section, numbers: Iterator[int]) -> str:
    blocks = "".join(_block(block, numbers) for block in section.blocks)
    return f'<section id="{section.name}">\n<h2>{_text(section.title)}</h2>\n{blocks}</section>\n'


def _block(block: Block, numbers: Iterator[int]) -> str:
    if isinstance(block, Paragraph):
        kind = ' class="warns" role="note"' if block.warns else ""
        return f"<p{kind}>{_line(block.line)}</p>\n"
    if isinstance(block, Points):
        return f"<ul>{''.join(f'<li>{_line(line)}</li>' for line in block.lines)}</ul>\n"
    if isinstance(block, Picture):
        drawing = _drawn(block, next(numbers))
        return f"<figure>\n<figcaption>{_text(block.title)}</figcaption>\n{drawing}\n</figure>\n"
    return _table(block)


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col"{_kind(column)}>{_text(column.head)}</th>' for column in table.columns)
    rows = "".join(f"<tr>{_cells(row, table.columns)}</tr>\n" for row in table.rows)
    note = f'<p class="note">{_text(table.note)}</p>\n' if table.note else ""
    # one that is wider than the page is scrolled, also by keys
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{_text(table.caption)}">\n<table>\n'
        f"<caption>{_text(table.caption)}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n"
        f"</table>\n{note}</div>\n"
    )


def _cells(row: tuple[Line, ...], columns: tuple[Column, ...]) -> str:
    first, *rest = (f"{_kind(column)}>{_line(cell)}" for column, cell in zip(columns, row, strict=True))
    return f'<th scope="row"{first}</th>' + "".join(f"<td{cell}</td>" for cell in rest)


def _kind(column: Column) -> str:
    return ' class="number"' if column.number else ' class="wide"' if column.wide else ""


def _line(line: Line) -> str:
    parts = line if isinstance(line, tuple) else (line,)
    return "".join(map(_part, parts))


def _part(part: Part) -> str:
    if isinstance(part, Code):
        return f"<code>{_text(part.text)}</code>"
    if isinstance(part, Said):
        cut = f' <span class="cut">… {part.left:,} more characters</span>' if part.left else ""
        return f"<bdi>{_text(part.shown)}</bdi>{cut}"
    return _text(part)


def _text(text: str, width: int = 0) -> str:
    return escape(display_line(text, width))


WIDTH, ROW, BAR, EDGE = 400, 38, 12, 4
"""Of the drawing, in its own units: a phone shows it at four fifths of this size. Each mark has a line of text and a
bar below it."""

LONGEST = 34
"""Characters of a name that fit beside its value."""


def _drawn(picture: Picture, number: int) -> str:
    """The picture as an ``svg`` element; ``number`` makes its ids unique within the page."""
    marks, axis = "".join(_mark(mark, picture.marks, place * ROW) for place, mark in enumerate(picture.marks)), 0
    height = len(picture.marks) * ROW
    if isinstance(picture.marks[0], Dot):
        marks, axis = _axis(height) + marks, 22
    return (
        f'<svg viewBox="0 0 {WIDTH} {height + axis}" role="img" aria-labelledby="picture-{number} about-{number}">'
        f'<title id="picture-{number}">{_text(picture.title)}</title>'
        f'<desc id="about-{number}">{_text(picture.about)}</desc>{marks}</svg>'
    )


def _mark(mark: Mark, marks: Sequence[Mark], top: int) -> str:
    if isinstance(mark, BarPair):
        most = max(one.before for one in marks if isinstance(one, BarPair)) or 1
        label = _label(mark.name, f"{mark.before:,} → {mark.after:,}", top)
        return label + _bar("before", mark.before / most, top) + _bar("after", mark.after / most, top)
    if isinstance(mark, StepBar):
        most = max(one.calls for one in marks if isinstance(one, StepBar)) or 1
        told = counted(mark.calls, "call") + (f", {mark.gain}" if mark.gain else "")
        return _label(mark.name, told, top) + _bar("after", mark.calls / most, top)
    return _label(mark.name, f"{mark.value:.3f}", top) + _whiskers(mark, top)


def _label(name: str, value: str, top: int) -> str:
    """A name on the left and its value on the right."""
    return (
        f'<text x="{EDGE}" y="{top + 14}">{_text(name, LONGEST)}</text>'
        f'<text x="{WIDTH - EDGE}" y="{top + 14}" text-anchor="end">{_text(value)}</text>'
    )


def _bar(kind: str, share: float, top: int) -> str:
    inset = 0 if kind == "before" else 3
    size = f'width="{share * (WIDTH - 2 * EDGE):.1f}" height="{BAR - 2 * inset}"'
    return f'<rect class="{kind}" x="{EDGE}" y="{top + 20 + inset}" {size} rx="1"/>'


def _whiskers(mark: Dot, top: int) -> str:
    middle, low, high = top + 26, _at(mark.low), _at(mark.high)
    ends = "".join(f'<path class="line" d="M{x:.1f} {middle - 5}v10"/>' for x in (low, high))
    kind = "hollow" if mark.hollow else "filled"
    return (
        f'<path class="line" d="M{low:.1f} {middle}H{high:.1f}"/>{ends}'
        f'<circle class="{kind}" cx="{_at(mark.value):.1f}" cy="{middle}" r="5"/>'
    )


def _axis(height: int) -> str:
    """Lines at quarters from 0 to 1, with their values below."""
    marks = ""
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _at(tick)
        marks += f'<path class="grid" d="M{x:.1f} 0V{height}"/>'
        marks += f'<text class="tick" x="{x:.1f}" y="{height + 15}" text-anchor="middle">{tick:g}</text>'
    return marks


def _at(share: float) -> float:
    """Where a share is drawn, with room for the axis' texts."""
    return 4 * EDGE + share * (WIDTH - 8 * EDGE)
