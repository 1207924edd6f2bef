"""Output of `preview`: the demonstrations of a query, why they were selected, and the LLM's answer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..engine.base.errors import counted
from ..engine.llm.marks import excerpt
from ..engine.pool.choices import WHOLE
from ..engine.pool.display import display_json, display_line
from ..engine.store.request_fields import VARIABLE
from .tables import Bar, Head, show_hint, show_table, show_text
from .terminal import narrate, print_text

if TYPE_CHECKING:
    from ..engine.llm.types import Outgoing
    from ..engine.pool.records import Message
    from ..engine.select.preview import Preview, RequestPreview
    from ..engine.select.stability import PromptAnswer, Stability
    from ..engine.select.templates import TemplateCheck


WIDEST = 600
"""Characters of an answer in a table."""
LEAST_NEEDS, FAINT = 5, 0.05
"""Number of required topics that are always listed; others only from this strength on."""


def show_preview(seen: Preview, explain: bool = False) -> None:
    """The demonstrations of a query, best first; with ``explain`` every part of each score and the exact prompt. If its
    stability was asked for, that alone."""
    if seen.stability is not None:
        _show_stability(seen, seen.stability)
        return
    names = list(dict.fromkeys(name for shot in seen.shots for name in shot.parts)) if explain else []
    rows = [
        [
            i,
            shot.score,
            *(shot.parts.get(name) for name in names),
            shot.demonstration.source,
            shot.demonstration.id,
            shot.demonstration.input,
            shot.demonstration.output,
        ]
        for i, shot in enumerate(seen.shots, 1)
    ]
    heads: list[str | Head] = [
        "", Head("score"), *(Head(name.replace("_", " "), 5) for name in names), Head("source", 3, "middle"),
        Head("id", 2, "start"), "input>", Head("output", 1),
    ]  # fmt: skip
    show_table(heads, rows, title=f"{seen.method}: {counted(len(rows), 'demonstration')}")
    if explain and seen.needs:
        show_needs(seen)
    for note in seen.notes:
        show_hint(f"note: {note}")
    if explain:
        show_text(f"\nthe prompt, by {seen.prompt.template}:", style="dim")
        show_turns(seen.prompt.messages)
    if seen.answer is not None:
        unsure = "" if seen.answer.uncertainty is None else f"  (uncertainty {seen.answer.uncertainty:.3f})"
        show_text(f"\n{seen.llm} answers: {excerpt(seen.answer.text) or '(nothing)'}{unsure}", style="bold")
        if line := how_read(seen.answer.how, seen.answer.reply, seen.answer.text):
            show_text(line)


def show_turns(turns: Sequence[Message]) -> None:
    """Each with its role, as the LLM reads it."""
    for turn in turns:
        show_text(f"\n[{turn.role}]", style="dim")
        show_text(turn.content)


def show_template(checked: TemplateCheck) -> None:
    """What a template reads and writes, and the prompt of a query."""
    reads = f"needs {', '.join(checked.reads)} of every query" if checked.reads else "needs no further field of a query"
    stop = f", ended by {', '.join(map(repr, checked.stop))}" if checked.stop else ""
    show_text(f"{checked.template} ({checked.digest}): {reads}; an answer is written {checked.answer}{stop}")
    show_text(
        f"{checked.shared:,} of {checked.characters:,} characters are shared by queries with the same demonstrations"
        + (
            ""
            if checked.shared or checked.note
            else ": the query stands before them, so nothing is computed once for several queries"
        )
    )
    if checked.note:
        show_hint(f"note: {checked.note}")
    show_turns(checked.turns)


def show_request(seen: RequestPreview, curl: bool = False) -> None:
    """What would be sent, or with ``curl`` the commands that send it. All else goes to stderr."""
    for note in seen.notes:
        narrate(f"note: {note}")
    if curl and not seen.requests:
        narrate(f"{seen.llm} is no server: this is what the model reads")
    for sent in seen.requests:
        if curl:
            print_text(curl_of(sent))
            continue
        print_text(f"POST {sent.url}")
        for name in sent.headers:
            print_text(f"{name}: …")
        print_text("\n" + display_json(json.dumps(sent.body, indent=2, ensure_ascii=False)))
    if not seen.requests:
        print_text(seen.text)
    for choice in () if seen.requests else seen.choices:
        print_text(f"scored: {choice}")


def curl_of(sent: Outgoing) -> str:
    """The command that sends it: quoted for a shell, which fills in the variables of the environment. A value that is
    not to be shown is a variable, too, by the header's name, without which the shell stops."""
    words = [f"curl {_in_shell(sent.url)}"]
    for name, value in sent.headers.items():
        hidden = f"${{HEADER_{re.sub('[^A-Z0-9]', '_', name.upper())}:?}}"
        shown = f'{_in_shell(f"{name}: ")}"{hidden}"' if value is None else _in_shell(f"{name}: {value}")
        words.append(f"-H {shown}")
    return " \\\n  ".join([*words, f"--data-raw {shlex.quote(json.dumps(sent.body))}"])


def _in_shell(text: str) -> str:
    """Text that a shell takes as it is, with the variables in it."""
    parts = enumerate(VARIABLE.split(text))
    return "".join(f'"${{{part}}}"' if i % 2 else shlex.quote(part) for i, part in parts if part)


def how_read(how: str, reply: str | None, answer: str | None) -> str:
    """By which rule an answer was read of the reply, and the reply, in part if it is long; empty where it is all."""
    if not how or (how == WHOLE and (reply is None or reply.strip() == answer)):
        return ""
    return f"read: {how}" + ("" if reply is None or reply == answer else f"; the reply was:\n{excerpt(reply)}")


def show_needs(seen: Preview) -> None:
    """The topics a query requires, the LLM's knowledge of them, and what each pick adds."""
    strong = [need for i, need in enumerate(seen.needs) if i < LEAST_NEEDS or need.required >= FAINT]
    rows = [[need.topic, Bar(need.required), need.required, need.knowledge] for need in strong]
    show_table(["required topic", "", "required", "LLM knows"], rows)
    picks = [
        [
            i,
            ", ".join(f"{topic} +{gain:.2f}" for topic, gain in shot.adds if gain >= 0.005)
            or "none of the required topics",
        ]
        for i, shot in enumerate(seen.shots, 1)
    ]
    show_table(["", "adds>"], picks)


def _show_stability(seen: Preview, stability: Stability) -> None:
    """The answer to a prompt, and to the prompt without each demonstration and in reversed order."""
    rows: list[list[Any]] = [["as selected", _said(stability.whole), _sure(stability.whole), None, "", ""]]
    for i, (shot, left) in enumerate(zip(stability.shots, stability.without, strict=True)):
        added = stability.adds(i)
        effect = None if added is None else f"{added:+.3f}"
        rows.append([f"without {i + 1}", _said(left), _sure(left), effect, _changed(left), shot.input])
    if turned := stability.reversed_order:
        rows.append(["reversed order", _said(turned), _sure(turned), None, _changed(turned), ""])
    same = f"{stability.kept} of {len(stability.others)} changed prompts keep the answer of {seen.llm}"
    show_table(["", "answer", "sure", "adds", "", "left out>"], rows, note=f"{same}; adds: effect on its probability")


def _changed(answered: PromptAnswer) -> str:
    return "" if answered.same or answered.answer is None else "changes"


def _said(answered: PromptAnswer) -> str:
    return (
        answered.failure if answered.answer is None else display_line(answered.answer.text, WIDEST) or answered.failure
    )


def _sure(answered: PromptAnswer) -> float | None:
    uncertainty = answered.answer.uncertainty if answered.answer else None
    return None if uncertainty is None else 1.0 - uncertainty
