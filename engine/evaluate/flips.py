"""Who flips from zero to k shots: counted from the stored outcomes of an evaluation (paper 000, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..store.workspace import Workspace
from .statistics import bootstrap_interval


@dataclass(frozen=True, slots=True)
class FlipCounts:
    """A method against zero shots, over the ``queries`` that both answered, ``easy`` (right zero-shot) and ``hard``.

    ``turned_right`` of the hard ones and ``turned_wrong`` of the easy ones are means over the seeds. ``changed`` is the
    share of queries that did either, with its interval ``ci95`` over queries; ``hard_share`` the share of the hard ones
    among those, None if nothing changed.
    """

    queries: int
    easy: int
    hard: int
    turned_right: float
    turned_wrong: float
    changed: float
    ci95: tuple[float, float]
    hard_share: float | None


def flips(workspace: Workspace, run: int, methods: Sequence[str], seed: int = 0) -> dict[str, FlipCounts]:
    """By method, without ``zero`` itself and methods that share no answered query with it; ``seed`` of the bootstrap.

    A query that failed under a method has not flipped: it does not count for it.
    """
    with workspace.read() as con:
        found = con.execute(
            """
            SELECT m.method, m.row, bool_or(z.correct), avg(CAST(m.correct AS DOUBLE))
              FROM evaluations m JOIN evaluations z ON z.run = m.run AND z.row = m.row AND z.method = 'zero'
             WHERE m.run = ? AND m.method <> 'zero' AND m.correct IS NOT NULL AND z.correct IS NOT NULL
             GROUP BY m.method, m.row ORDER BY m.method, m.row
            """,
            [run],
        ).fetchall()
    by_method: dict[str, list[tuple[bool, float]]] = {}
    for method, _, easy, right in found:
        by_method.setdefault(method, []).append((easy, right))
    return {name: _counts(by_method[name], seed) for name in methods if name in by_method}


def _counts(outcomes: Sequence[tuple[bool, float]], seed: int) -> FlipCounts:
    easy = np.array([each for each, _ in outcomes], np.bool_)
    right = np.array([share for _, share in outcomes], np.float64)
    changed = np.where(easy, 1 - right, right)
    turned_right, turned_wrong = float(changed[~easy].sum()), float(changed[easy].sum())
    flipped = turned_right + turned_wrong
    return FlipCounts(
        queries=len(outcomes),
        easy=int(easy.sum()),
        hard=int((~easy).sum()),
        turned_right=turned_right,
        turned_wrong=turned_wrong,
        changed=float(changed.mean()),
        ci95=bootstrap_interval(changed, seed),
        hard_share=turned_right / flipped if flipped else None,
    )
