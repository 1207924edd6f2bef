"""icl-curate: curate pools of in-context-learning demonstrations.

Importing this loads nothing heavy; each name of the public API is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine.base.registry import EXTENSIONS

if TYPE_CHECKING:
    from .engine.base.errors import CurateError
    from .engine.llm.types import Reply
    from .engine.papers.sources.gradient import multilinear_gradient
    from .engine.pool.records import Demonstration, Message, Query
    from .engine.select.selector import Selected, Selector
    from .engine.store.settings import Settings
    from .facade.pool import Pool

EXTENSIONS[:] = (
    f"{__name__}.{room}" for room in ("engine.backends", "engine.baselines", "engine.papers", "integrations")
)

__all__ = [
    "CurateError", "Demonstration", "Message", "Pool", "Query", "Reply", "Selected", "Selector", "Settings",
    "multilinear_gradient",
]  # fmt: skip

_HOMES = {
    "CurateError": ".engine.base.errors",
    "Demonstration": ".engine.pool.records",
    "Message": ".engine.pool.records",
    "Pool": ".facade.pool",
    "Query": ".engine.pool.records",
    "Reply": ".engine.llm.types",
    "Settings": ".engine.store.settings",
    "Selected": ".engine.select.selector",
    "Selector": ".engine.select.selector",
    "multilinear_gradient": ".engine.papers.sources.gradient",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from .engine.base.packages import VERSION

        return VERSION
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
