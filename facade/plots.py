"""Plots of results, by matplotlib, which is loaded when the first one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.base.errors import UsageError
from ..engine.base.packages import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(told: Mapping[str, Any], axes: Axes | None = None) -> Axes:
    """Draw the JSON object of a result on ``axes``, or on new ones, and return them. Raises `UsageError` for a kind of
    result that has no plot."""
    kind = told.get("kind", "")
    if kind not in PLOTS:
        raise UsageError(f"there is no plot of a result of the kind '{kind}'", f"of these: {', '.join(PLOTS)}")
    require("plots", "matplotlib")
    from matplotlib import pyplot

    if axes is None:
        axes = pyplot.figure(figsize=(7, 4), layout="constrained").gca()
    PLOTS[kind](told, axes)
    return axes


def _evaluation(told: Mapping[str, Any], axes: Axes) -> None:
    """Each method's figure with its 95 % interval."""
    methods = told["methods"]
    _dots(axes, [*methods], [(one["accuracy"], *(one["ci95"] or (None, None))) for one in methods.values()])
    axes.set_xlabel(f"{told['metric']} on {told['queries']:,} {told['split']} queries (95 %)")
    axes.set_title(told["llm"])


def _sweep(told: Mapping[str, Any], axes: Axes) -> None:
    """A line for each method over the values of the setting, with 95 % intervals."""
    points = told["points"]
    for name in dict.fromkeys(name for point in points for name in point["methods"]):
        every = [(point["value"], point["methods"][name]) for point in points if name in point["methods"]]
        figures = [(value, one) for value, one in every if one["accuracy"] is not None]
        means = [one["accuracy"] for _, one in figures]
        bars = np.reshape([_bar(one["accuracy"], *(one["ci95"] or (None, None))) for _, one in figures], (-1, 2)).T
        axes.errorbar([value for value, _ in figures], means, bars, marker="o", capsize=3, label=name)
    axes.set_xlabel(told["setting"])
    axes.set_ylabel(f"{points[0]['metric']} on {points[0]['queries']:,} {points[0]['split']} queries (95 %)")
    axes.legend()


def _bar(value: float, low: float | None, high: float | None) -> tuple[float, float]:
    """How far an interval goes to both sides of a figure; nowhere if there is none."""
    return (0.0, 0.0) if low is None or high is None else (max(0.0, value - low), max(0.0, high - value))


def _sources(told: Mapping[str, Any], axes: Axes) -> None:
    """The learned weight of each source; those without one have no dot."""
    sources = told["sources"]
    _dots(axes, [one["source"] for one in sources], [(one["weight"], None, None) for one in sources])
    axes.set_xlabel("learned weight")


def _curation(told: Mapping[str, Any], axes: Axes) -> None:
    """What each race of the curation gained, with its 95 % interval."""
    raced = [(i, step) for i, step in enumerate(told["steps"], 1) if step["gain"] is not None]
    _dots(
        axes,
        [f"{i} {step['what']}" for i, step in raced],
        [(step["gain"], step["low"], step["high"]) for _, step in raced],
    )
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("gain on validation queries (95 %)")


def _dots(axes: Axes, names: Sequence[str], figures: Sequence[tuple[float | None, float | None, float | None]]) -> None:
    """A dot for each name, first on top, with its interval where there is one; what is missing is not drawn."""
    for place, (value, low, high) in enumerate(figures):
        if value is not None:
            left, right = _bar(value, low, high)
            axes.errorbar(value, place, xerr=[[left], [right]], fmt="o", color="C0", capsize=3)
    axes.set_yticks(range(len(names)), labels=names, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)


PLOTS: Mapping[str, Callable[[Mapping[str, Any], Axes], None]] = {
    "curation": _curation,
    "evaluation": _evaluation,
    "sources": _sources,
    "sweep": _sweep,
}
