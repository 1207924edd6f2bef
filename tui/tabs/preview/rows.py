"""Texts of the Preview tab: a line about the query, a selection's method, demonstrations and answer; and details: why a
demonstration was selected, the prompt, answer stability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ....engine.llm.spec import is_stand_in
from ....engine.pool.answers import meaning
from ....engine.pool.choices import WHOLE
from ....engine.pool.display import display_line
from ....engine.pool.prompts import Prompt
from ....engine.pool.records import Message, Query
from ....engine.select.methods import Need
from ....engine.select.preview import Preview
from ....engine.select.stability import PromptAnswer, Stability
from ....render.columns import LineColumn, shortened
from ....render.preview import FAINT, LEAST_NEEDS
from ...widgets.lines import CUT, Line, cut, stroke
from .model import MethodSelection, PreviewModel, Side


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
            new, old = (display_line(ids[0], 24) if len(ids) == 1 else f"{len(ids)} others" for ids in (came, gone))
            line.append(f"  {new} for {old}", "muted")
        for note in chosen.seen.notes:
            line.append(f"  {display_line(note)}", "warn")
    return line


def shot_columns(chosen: MethodSelection, other: MethodSelection | None) -> list[LineColumn]:
    """The columns of its demonstrations compared with the ``other`` selection."""
    assert chosen.seen is not None
    names = list(dict.fromkeys(name for shot in chosen.seen.shots for name in shot.parts))
    asked = chosen.answered is not None and chosen.answered.without
    parts = names if len(names) > 1 else []  # a score with one part equals that part
    return [
        LineColumn("place", "", 2, right=True),
        LineColumn("score", "score", 6, right=True, rank=4),
        LineColumn("output", "output", 12, grow=6, most=48, cut="middle"),
        *([LineColumn("other", "also", 4, rank=3)] if other and other.shots else []),
        *([LineColumn("without", "without", 10, grow=1, most=22, rank=1)] if asked else []),
        LineColumn("source", "source", 9, grow=2, most=18, rank=2, cut="middle"),
        *(
            LineColumn(name, name.replace("_", " "), max(7, len(name)), right=True, rank=6 + i)
            for i, name in enumerate(parts)
        ),
    ]


def shot_lines(chosen: MethodSelection, other: MethodSelection | None, columns: Sequence[LineColumn]) -> list[Line]:
    """Its demonstrations, best first."""
    assert chosen.seen is not None
    elsewhere = {shot.row: place for place, shot in enumerate(other.shots, 1)} if other else {}
    query, choices = chosen.seen.query, chosen.seen.prompt.choices
    accepted = {meaning(answer, choices) for answer in query.answers}
    lines = []
    for place, shot in enumerate(chosen.seen.shots):
        shown = shot.demonstration
        right = meaning(shown.output, choices) in accepted
        values: dict[str, object] = {
            "place": Text(str(place + 1), "muted"),
            "score": shot.score,
            "other": Text(f"#{elsewhere[shown.row]}" if shown.row in elsewhere else "", "muted"),
            "without": _without(chosen.answered, place),
            "source": display_line(shown.source, CUT),
            "output": Text(display_line(shown.output, CUT), "good" if right else ""),
        }
        values |= shot.parts
        cells = tuple(values.get(column.name) for column in columns)
        lines.append(Line(cells, below=display_line(shown.input, CUT)))
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
    if (answer := answered.whole.answer) and answer.how not in ("", WHOLE):
        text.append(f"  read: {answer.how}", "muted")
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
    if answered.value not in (None, 0.0, 1.0):
        mark = f" {answered.value:.2f}"
    return Text.assemble((display_line(answered.answer.text, CUT) or "(nothing)", style), (mark, style))


WIDTH = 16
"""Cells of a bar."""

LEAST = 12
"""Minimum width of a text in cells if there is little space."""

MEANT = {
    "cosine": "embeddings of query and input",
    "bm25": "shared words, weighted by rarity",
    "relevance": "coverage of required topics, weighted towards unknown ones",
    "policy": "probability under the learned policy",
    "det_ratio": "increase of the determinant of the selected set",
    "coverage_gain": "tokens of the query newly covered",
}
"""Descriptions of the parts of a score."""

SCORED = {
    **dict.fromkeys(
        ("topick", "topick-union", "topick-alone", "topick-no-knowledge", "topick-binary", "topick-ranks"),
        "z(relevance) + λ · z(cosine) among the candidates left",
    ),
    "ranker": "probability under the learned policy, among the BM25 candidates",
    "promptpg": "probability under the learned policy, among the BM25 candidates",
    "random": "drawn at random: no score",
}
"""How a method combines several parts into its score, or that it has none."""


def why(seen: Preview, place: int) -> RenderableType:
    """The parts of the score of the shot at ``place``."""
    shot = seen.shots[place]
    blocks: list[RenderableType] = [
        Text.assemble(
            (f"why #{place + 1}  ", "primary"), ("score ", "muted"), (f"{shot.score:.4f}", "title"),
            (f"  {SCORED.get(seen.method, '')}", "muted"),
        )
    ]  # fmt: skip
    spans = {name: max(abs(other.parts.get(name, 0.0)) for other in seen.shots) or 1.0 for name in shot.parts}
    parts = [
        (name.replace("_", " "), value, abs(value) / spans[name], MEANT.get(name, ""))
        for name, value in shot.parts.items()
    ]
    blocks.append(_bars(parts))
    if seen.words and seen.words[place]:
        blocks.append(Text("\nwords shared with the query", "primary"))
        most = seen.words[place][0][1]
        blocks.append(_bars([(display_line(word, 24), added, added / most, "") for word, added in seen.words[place]]))
    if shot.adds:
        blocks.append(Text("\ngain over the demonstrations before it", "primary"))
        most = shot.adds[0][1]
        blocks.append(_bars([(display_line(topic, 40), added, added / most, "") for topic, added in shot.adds]))
    if seen.needs:
        blocks.append(Text("\ntopics the query requires", "primary"))
        blocks.append(_needs(seen))
    return Group(*blocks)


def _bars(rows: Sequence[tuple[str, float, float, str]]) -> Table:
    """Names, values, bars and descriptions."""
    cells = [
        (_muted(name), _figure(f"{value:+.3f}"), stroke(share, WIDTH, "primary"), _muted(about))
        for name, value, share, about in rows
    ]
    return _grid(cells, (0, 3))


def _needs(seen: Preview) -> Table:
    """Required topics, the LLM's knowledge of them, and the picks that add to them."""
    strong = [need for i, need in enumerate(seen.needs) if i < LEAST_NEEDS or need.required >= FAINT]
    heads = tuple(_muted(head) for head in ("", "needed", "", "known", "", "added by"))
    rows = [
        (
            Text(display_line(need.topic, 40)),
            _figure(f"{need.required:.2f}"), stroke(need.required, 6, "accent"),
            _figure(f"{need.knowledge:.2f}"),
            stroke(need.knowledge, 6, "good" if need.knowledge >= 0.5 else "bad"),
            _adders(seen, need),
        )
        for need in strong
    ]  # fmt: skip
    return _grid([heads, *rows], (0, 5))


def _muted(value: str) -> Text:
    return Text.assemble((value, "muted"))


def _figure(value: str) -> Text:
    return Text(value, justify="right")


def _adders(seen: Preview, need: Need) -> Text:
    adders = [
        f"#{place} {gain:+.2f}"
        for place, shot in enumerate(seen.shots, 1)
        for topic, gain in shot.adds
        if topic == need.topic and gain >= 0.005
    ]
    return Text(", ".join(adders)) if adders else Text("none of them", "muted")


@dataclass(frozen=True, slots=True)
class Question:
    """The query, unless it stands where it was ``typed``, and its expected answer, for which the query is cut where
    they need more than so many ``lines``."""

    query: Query
    typed: bool = False
    lines: Callable[[], int] = lambda: 3

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, count = options.max_width, self.lines()
        text, answer = Text("" if self.typed else display_line(self.query.input, 600)), Text()
        if self.query.answers:
            answer.append("  → ", "muted").append(display_line(self.query.answers[0], 80), "good")
        lines = [*Text.assemble(text, answer).wrap(console, width)]
        if len(lines) > count:
            answer, whole = shortened(answer, width // 2), text.wrap(console, width)
            lines = whole[:count]
            last = Text.assemble(lines[-1], " …" if len(whole) > count else "")
            lines[-1] = shortened(last, width - answer.cell_len).append_text(answer)
        yield Text("\n").join(lines)


def prompt(sent: Prompt, answered: PromptAnswer | None = None, beside: Prompt | None = None) -> Text:
    """The exact prompt, by its template, turn by turn, with what one ``beside`` it lacks, then the reply if there is
    one, and what was read of it by which rule."""
    letters = sum(len(message.content) for message in sent.messages)
    text = Text.assemble(("the exact prompt", "primary"))
    text.append(f"  by {display_line(sent.template, 40)}", "accent")
    text.append(f"  {len(sent.messages)} messages, {letters:,} characters, y copies it", "muted")
    turns(text, sent.messages, beside.messages if beside else ())
    if answered is not None and (answer := answered.answer):
        text.append("\n\nreply\n", "accent").append_text(cut(answer.reply))
        text.append("\n\nread\n", "accent").append_text(verdict(answered)).append(f"  {answer.how}", "muted")
    return text


def turns(text: Text, messages: Sequence[Message], beside: Sequence[Message] = ()) -> Text:
    """The messages of a prompt after a heading; those that the one ``beside`` it lacks say so."""
    for message in messages:
        text.append(f"\n\n{message.role}", "accent")
        text.append("  only here" if beside and message not in beside else "", "warn")
        text.append("\n").append_text(cut(message.content))
    return text


def stability(answered: Stability | None, shots: int, llm: str) -> RenderableType:
    """The answers to the prompt as it is, without each shot, and in reversed order."""
    if answered is None or not answered.others:
        count = shots + (shots > 1)
        text = Text.assemble(("answer stability", "primary"), "\n\n")
        if not shots:
            return text.append("no demonstration to leave out", "muted")
        about = f" asks {display_line(llm, 30)} again without each demonstration"
        about += ", and in reversed order" if shots > 1 else ""
        return text.append("t", "key").append(f"{about}: {count} prompts; shows the cost first", "muted")
    kept, all_ = answered.kept, len(answered.others)
    head = Text.assemble(
        ("answer stability  ", "primary"), (f"{kept} of {all_}", "good" if kept == all_ else "warn"),
        (" changed prompts keep the answer", "muted"),
    )  # fmt: skip
    rows = [tuple(map(_muted, ("", "answer", "sure", "adds", "")))]
    rows.append((_muted("as selected"), verdict(answered.whole), _sure(answered.whole), Text(), Text()))
    for place, other in enumerate(answered.without):
        name = _muted(f"without #{place + 1}")
        rows.append((name, verdict(other), _sure(other), _added(answered.adds(place)), _changed(other)))
    if last := answered.reversed_order:
        rows.append((_muted("reversed order"), verdict(last), _sure(last), Text(), _changed(last)))
    note = Text("\nadds: change in probability of the answer due to the demonstration", "muted")
    return Group(head, Text(), _grid(rows, (1, 4)), note)


def _sure(answered: PromptAnswer) -> Text:
    unsure = answered.answer.uncertainty if answered.answer else None
    return Text() if unsure is None else _figure(f"{1.0 - unsure:.2f}")


def _added(value: float | None) -> Text:
    if value is None:
        return Text("–", "muted")
    return Text(f"{value:+.2f}", "good" if value >= 0.05 else "bad" if value <= -0.05 else "muted", justify="right")


def _changed(answered: PromptAnswer) -> Text:
    if answered.answer is None:
        return Text("no answer", "bad")
    return Text() if answered.same else Text("changes the answer", "warn")


def _grid(rows: Sequence[Sequence[Text]], flexible: Sequence[int]) -> Table:
    """Cells in columns; if there is too little space, the ``flexible`` ones are shortened, figures and bars never."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for i in range(len(rows[0]) if rows else 0):
        widest = max(row[i].cell_len for row in rows)
        least = min(widest, LEAST) if i in flexible else widest
        table.add_column(no_wrap=i not in flexible, min_width=least)  # Rich narrows columns that could wrap alone
        for row in rows:
            row[i].no_wrap, row[i].overflow = True, "ellipsis"
    for row in rows:
        table.add_row(*row)
    return table
