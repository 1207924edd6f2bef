"""Texts of the Preview tab: a line about the query, and a selection's method, demonstrations and answer."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ....engine.llm.spec import is_stand_in
from ....engine.pool.answers import is_correct
from ....engine.pool.display import display_line
from ....engine.select.stability import PromptAnswer, Stability
from ....render.columns import LineColumn
from ...widgets.lines import BarCell, Line
from .model import MethodSelection, PreviewModel, Side

CUT = 300
"""Maximum characters of a text in a table."""


def which_query(model: PreviewModel) -> Text:
    """The origin of the query, and its number of demonstrations."""
    line = Text.assemble((f"{model.settings.k} shots  " if model.found else "", "muted"))
    if model.typed.strip():
        return line.append("typed", "accent")
    if not model.queries:
        return line.append("no validation queries: type one", "warn")
    line.append("validation ", "muted").append(f"{model.place + 1:,}", "accent")
    return line.append(f" of {model.queries:,}", "muted")


def method_line(side: Side) -> Text:
    """The method, and its current activity or the result of its selection."""
    line = Text.assemble((display_line(side.method), "title"))
    chosen = side.chosen
    if side.doing:
        line.append(f"  {side.doing}", "accent")
    elif chosen and chosen.seen:
        count = len(chosen.seen.shots)
        line.append(f"  {count} shot{'' if count == 1 else 's'}", "muted")
        line.append(f", {chosen.took * 1000:,.0f} ms" if side.settled else "", "muted")
        came, gone = side.change
        if came and gone:
            places = [f"#{i}" for i, shot in enumerate(chosen.shots, 1) if shot.id in came]
            line.append(f"  new: {', '.join(places)}", "accent")
            line.append(f"  {_named(came)} for {_named(gone)}", "muted")
        for note in chosen.seen.notes:
            line.append(f"  {display_line(note)}", "warn")
    return line


def _named(ids: Sequence[str]) -> str:
    return display_line(ids[0], 24) if len(ids) == 1 else f"{len(ids)} others"


def shot_columns(chosen: MethodSelection, other: MethodSelection | None) -> list[LineColumn]:
    """The columns of its demonstrations compared with the ``other`` selection."""
    assert chosen.seen is not None
    names = list(dict.fromkeys(name for shot in chosen.seen.shots for name in shot.parts))
    parts = names if len(names) > 1 else []  # a score with one part equals that part
    return [
        LineColumn("place", "", 2, right=True, sortable=False),
        LineColumn("score", "score", 6, right=True, rank=4, sortable=False),
        LineColumn("bar", "", 6, rank=9, sortable=False),
        *(
            LineColumn(name, name.replace("_", " "), max(7, len(name)), right=True, rank=6 + i, sortable=False)
            for i, name in enumerate(parts)
        ),
        *([LineColumn("other", "also", 4, rank=3, sortable=False)] if other and other.shots else []),
        *([LineColumn("without", "without", 10, grow=1, most=22, rank=1, sortable=False)] if _asked(chosen) else []),
        LineColumn("source", "source", 9, grow=1, most=18, rank=2, sortable=False, cut="middle"),
        LineColumn("input", "input", 12, grow=6, sortable=False),
        LineColumn("output", "output", 8, grow=2, most=28, sortable=False),
    ]


def _asked(chosen: MethodSelection) -> bool:
    return bool(chosen.answered and chosen.answered.without)


def shot_lines(chosen: MethodSelection, other: MethodSelection | None, columns: Sequence[LineColumn]) -> list[Line]:
    """Its demonstrations, best first."""
    assert chosen.seen is not None
    elsewhere = {shot.row: place for place, shot in enumerate(other.shots, 1)} if other else {}
    top = max((abs(shot.score) for shot in chosen.seen.shots), default=0.0) or 1.0
    query, choices = chosen.seen.query, chosen.seen.prompt.choices
    lines = []
    for place, shot in enumerate(chosen.seen.shots):
        shown = shot.demonstration
        right = bool(query.answers) and is_correct(shown.output, query.answers, choices)
        values: dict[str, object] = {
            "place": Text(str(place + 1), "muted"),
            "score": shot.score,
            "bar": BarCell(max(0.0, shot.score) / top, "primary"),
            "other": Text(f"#{elsewhere[shown.row]}" if shown.row in elsewhere else "", "muted"),
            "without": _without(chosen.answered, place),
            "source": display_line(shown.source, CUT),
            "input": display_line(shown.input, CUT),
            "output": Text(display_line(shown.output, CUT), "good" if right else ""),
        }
        values |= shot.parts
        lines.append(Line(tuple(values.get(column.name) for column in columns)))
    return lines


def _without(answered: Stability | None, place: int) -> Text:
    if answered is None or place >= len(answered.without):
        return Text()
    other = answered.without[place]
    if other.answer is None:
        return Text(display_line(other.failure, CUT), "bad")
    return Text("keeps", "muted") if other.same else Text(f"→ {display_line(other.answer.text, CUT)}", "warn")


def answer_line(answered: Stability | None, llm: str) -> Text:
    """The LLM's answer on one line."""
    name = display_line(llm, 30) + (", a stand-in" if is_stand_in(llm) else "")
    if answered is None:
        return Text.assemble(("a", "key"), (f" asks {name}", "muted"))
    text = Text.assemble((display_line(llm, 30), "primary"), "  ").append_text(verdict(answered.whole))
    unsure = answered.whole.answer.uncertainty if answered.whole.answer else None
    text.append("" if unsure is None else f"  sure {1.0 - unsure:.2f}", "muted")
    if answered.others:
        style = "good" if answered.kept == len(answered.others) else "warn"
        text.append(f"  stable {answered.kept}/{len(answered.others)}", style)
    return text


def verdict(answered: PromptAnswer) -> Text:
    """An answer, marked right or wrong if that is known."""
    if answered.answer is None:
        return Text.assemble((display_line(answered.failure, CUT), "bad"))
    style = {True: "good", False: "bad", None: "bold"}[answered.right]
    mark = {True: " ✓", False: " ✗", None: ""}[answered.right]
    return Text.assemble((display_line(answered.answer.text, CUT) or "(nothing)", style), (mark, style))
