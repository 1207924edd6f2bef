"""Selected demonstrations as JSON, with the reasons for their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..pool.records import Demonstration, Query
from .methods import Need
from .selector import Selected, Selector

WordParts = tuple[tuple[str, float], ...]
"""What each word of the query adds to a demonstration's BM25, largest first."""


def words_of(selector: Selector, query: Query, shots: Sequence[Selected]) -> tuple[WordParts, ...]:
    """For each shot; empty for a method without BM25."""
    if not shots or "bm25" not in shots[0].parts:
        return ()
    view = selector.view
    found = view.lexical.words(view.searched(query), [shot.demonstration.row for shot in shots])
    return tuple(map(tuple, found))


def needs_of(selector: Selector, query: Query) -> tuple[Need, ...]:
    """The topics that the query requires most; empty for a method without topics."""
    needs = selector.method.needs
    return tuple(needs(selector.view, query)) if needs else ()


def short_of(selector: Selector, shots: Sequence[Selected]) -> tuple[str, ...]:
    """A note if the pool has fewer demonstrations than were asked for."""
    if len(shots) < selector.settings.k and selector.settings.method != "zero":
        return (f"only {len(shots)} of {selector.settings.k} demonstrations: the active pool has no more",)
    return ()


def besides(shown: Demonstration) -> dict[str, Any]:
    """What a demonstration has besides its input and output: ``options``, ``context`` and ``history``, the messages
    before its input; those that it has."""
    history = [{"role": turn.role, "content": turn.content} for turn in shown.history or ()]
    found = {"options": list(shown.options), "context": shown.context, "history": history}
    return {name: value for name, value in found.items() if value}


def shots_as_json(shots: Sequence[Selected], words: Sequence[WordParts]) -> list[dict[str, Any]]:
    """``demonstrations`` of ``preview --json`` and of the selection service; ``words`` is empty or one for each."""
    return [
        {
            "id": shot.demonstration.id,
            "source": shot.demonstration.source,
            "input": shot.demonstration.input,
            "output": shot.demonstration.output,
            **besides(shot.demonstration),
            "score": shot.score,
            "parts": dict(shot.parts),
            **({"adds": [{"topic": t, "gain": g} for t, g in shot.adds]} if shot.adds else {}),
            **({"words": [{"word": w, "adds": a} for w, a in added]} if added else {}),
        }
        for shot, added in zip(shots, words or [()] * len(shots), strict=True)
    ]
