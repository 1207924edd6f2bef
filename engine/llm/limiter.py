"""How many calls to have in flight: additive increase, multiplicative decrease.

Doubles until the server first says "too many requests", then grows by a twentieth for each clean round that used
every slot. Only such a 429 cuts, and once per episode: the other calls that were in flight when it came tell nothing
new. A 5xx stops growth without cutting, since a broken server is no sign of load.
"""

from __future__ import annotations

START = 8
CUT = 0.8
EPISODE = 10.0
"""Seconds after a cut during which further 429s belong to the same episode."""


class Limiter:
    """Plain arithmetic over times given by the caller (seconds of any steady clock); holds no lock, waits nowhere."""

    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = max(ceiling, 1)
        self.limit = min(max(start, 1), self.ceiling)
        self.history: list[tuple[float, int]] = []
        self._slow_start = True
        self._clean = 0
        self._cut_at = float("-inf")
        self._until = float("-inf")

    def answered(self, now: float, *, saturated: bool) -> None:
        """A call came back well; ``saturated`` says that every slot was taken meanwhile."""
        if not saturated or self.limit >= self.ceiling:
            return
        self._clean += 1
        if self._clean >= self.limit:
            self._clean = 0
            grown = self.limit * 2 if self._slow_start else self.limit + max(1, self.limit // 20)
            self._set(now, min(grown, self.ceiling))

    def refused(self, now: float, sent_at: float, retry_after: float | None) -> None:
        """A 429 for a call sent at ``sent_at``."""
        self._clean = 0
        self._slow_start = False
        if sent_at <= self._cut_at or now < self._until:
            return
        self._cut_at = now
        self._until = now + max(EPISODE, min(retry_after or 0.0, 6 * EPISODE))
        self._set(now, max(1, int(self.limit * CUT)))

    def failed(self) -> None:
        """A 5xx, a timeout or a broken connection: the round is not clean."""
        self._clean = 0

    def _set(self, now: float, limit: int) -> None:
        if limit != self.limit:
            self.limit = limit
            self.history.append((now, limit))
