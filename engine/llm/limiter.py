"""The number of calls in flight: additive increase, multiplicative decrease.

Doubles until the server first says "too many requests", then grows by a twentieth for each round without failures that
used every slot. Only a 429 reduces it, and once per episode: the other calls in flight at that time carry no new
information. A 5xx stops growth without a reduction, because a broken server does not indicate load.
"""

from __future__ import annotations

START = 8
CUT = 0.8
EPISODE = 10.0
"""Seconds after a reduction during which further 429s belong to the same episode."""


class Limiter:
    """Plain arithmetic over times given by the caller (seconds of any monotonic clock); holds no lock, never waits."""

    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = max(ceiling, 1)
        self.limit = min(max(start, 1), self.ceiling)
        self.history: list[tuple[float, int]] = []
        self._slow_start = True
        self._clean = 0
        self._cut_at = float("-inf")
        self._until = float("-inf")

    def answered(self, now: float, *, saturated: bool) -> None:
        """A call succeeded; ``saturated``: every slot was in use meanwhile."""
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
        """A 5xx, a timeout or a broken connection: the round has a failure."""
        self._clean = 0

    def _set(self, now: float, limit: int) -> None:
        if limit != self.limit:
            self.limit = limit
            self.history.append((now, limit))
