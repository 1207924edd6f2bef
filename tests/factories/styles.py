"""Rules of stylesheets parsed before, kept for the run of a worker: each app reads the same ones, some twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from textual.css.stylesheet import Stylesheet

_KEPT: dict[Hashable, Any] = {}


def keep_rules(patch: Callable[[object, str, object], None]) -> None:
    """Let Textual parse each text once in a process; ``patch`` is ``monkeypatch.setattr``."""
    parse = Stylesheet._parse_rules

    def parse_rules(self: Stylesheet, css: str, read_from: Any, *how: Any, **more: Any) -> Any:
        key = (css, read_from, how, *more.items(), *self._variables.items())
        if key not in _KEPT:
            _KEPT[key] = parse(self, css, read_from, *how, **more)
        return _KEPT[key]

    patch(Stylesheet, "_parse_rules", parse_rules)
