"""Output of `evaluate`: methods in one table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from string import ascii_letters
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..engine.base.errors import counted
from ..engine.llm.marks import between, figure
from ..engine.llm.spec import is_stand_in
from .costs import answered, total
from .tables import Column, Head, bar, change, show_rows, show_table

if TYPE_CHECKING:
    from ..engine.evaluate.figures import FlipCounts
    from ..engine.evaluate.results import EvaluationReport, MethodFigures, QueryGroups, Setup, SweepReport, Transfer
    from ..engine.llm.cost import Judging, Usage
    from ..engine.llm.marks import Tally

RANKS = {
    "95 %": 1, "easy": 2, "hard": 2, "against best": 2, "p": 2, "F1": 3, "shots": 4, "topics": 5, "unusable": 5,
    "refused": 1, "failed": 1, "bounds": 1, "unjudged": 5, "repeated": 6, "std": 6, "calls": 7,
}  # fmt: skip
"""Of the columns of a comparison: where there is no room, the highest are left out; method and accuracy stay."""

MOST_LABELS = 12
"""Maximum labels of a confusion matrix."""

STAND_IN = "the offline reader is not an LLM: these figures say nothing about your LLM"


def show_evaluation(report: EvaluationReport) -> None:
    """The comparison of methods and its setup."""
    shown = {
        name: [value(method, row) for method, row in report.methods.items()]
        for name, value in _columns(report.setup).items()
        if any(value(method, row) is not None for method, row in report.methods.items())
    }
    heads = [Head(name, RANKS.get(name, 0), "middle") for name in shown]
    show_table(heads, list(zip(*shown.values(), strict=True)), note="\n".join(_notes(report, shown)))
    _show_parts(report)
    _show_confusion(report, report.best)


def _columns(setup: Setup) -> dict[str, Callable[[str, MethodFigures], Any]]:
    """By its head, what a column shows of a method and its figures; one that has nothing of any is left out."""
    return {
        "method": lambda name, row: name,
        f"metric {setup.metric}" if setup.metric in RANKS else setup.metric: lambda name, row: row.accuracy,
        "95 %": lambda name, row: interval(row.ci95),
        "bounds": lambda name, row: interval(row.outcomes.bounds) if row.outcomes and row.outcomes.missing else None,
        "std": lambda name, row: row.std if row.seeds > 1 else None,
        "F1": lambda name, row: row.f1,
        "easy": lambda name, row: row.easy,
        "hard": lambda name, row: row.hard,
        "perplexity": lambda name, row: row.perplexity,
        "topics": lambda name, row: row.topic_coverage[-1] if row.topic_coverage else None,
        "repeated": lambda name, row: row.topic_redundancy[-1] if row.topic_redundancy else None,
        "ms": lambda name, row: None if row.selection_ms is None else round(row.selection_ms, 1),
        "shots": lambda name, row: int(row.shots) if row.shots.is_integer() else row.shots,
        "calls": lambda name, row: row.usage.calls,
        "unusable": lambda name, row: row.outcomes and (row.outcomes.unusable or None),
        "refused": lambda name, row: row.outcomes and (row.outcomes.refused or None),
        "failed": lambda name, row: row.outcomes and (row.outcomes.failed or None),
        "unjudged": lambda name, row: row.unjudged or None,
        "against best": lambda name, row: row.versus and f"{row.versus.difference:+.3f} {row.versus.method}",
        "p": lambda name, row: row.versus and p_value(row.versus.p_holm),
    }


def _notes(report: EvaluationReport, shown: Collection[str]) -> list[str]:
    """What stands below the table: how it was measured, and what its columns mean."""
    setup, usage = report.setup, _spent(report)
    notes = [
        f"{counted(setup.queries, f'{setup.split} query')}, k = {setup.k}, {setup.answered_by}, run {report.run}"
        f"{', the pool as it was indexed' if setup.as_indexed else ''}; "
        f"{answered(usage, setup.llm)}, {usage.tokens_in:,} prompt tokens",
        f"easy: answered right zero-shot ({counted(report.easy_queries, 'query')}); 95 % by bootstrap over queries",
    ]
    if "against best" in shown:
        notes[-1] += "; against best: difference to the best other baseline, p of a paired test, Holm-adjusted"
    notes += method_lines(report)
    if report.judge:
        notes.append(judged(report.judge))
    if both := report.agreement:
        notes.append(
            f"the judge agrees with {both.metric} on {figure(both.share, both.ci95, both.answers)} answers of the last "
            f"method; only the judge calls {both.judge_alone:,} right, only {both.metric} {both.metric_alone:,}"
        )
    if report.transfer:
        notes.append(_transferred(report.transfer))
    if "perplexity" in shown:
        notes.append("perplexity: of the right answer, per token, the geometric mean over queries")
    if "ms" in shown:
        notes.append("ms: milliseconds per query to select in a warm process; calls of the LLM as they took")
    if "topics" in shown:
        notes.append(
            "topics: expected number of the 20 topics a query requires that its demonstrations cover; repeated: share "
            "of a demonstration's topics that earlier ones cover, at the last shot"
        )
    if report.trained_on:
        notes.append(
            f"trained on these queries, so their figures are too good: {', '.join(report.trained_on)}; "
            "icl-curate evaluate --split test"
        )
    if report.untrained:
        notes.append(_untrained(report.untrained))
    if is_stand_in(setup.llm):
        notes.append(STAND_IN)
    return notes


def _show_parts(report: EvaluationReport, where: str = "") -> None:
    """The methods by a field of the queries, and their flips, if those were asked for."""
    if report.by:
        _show_groups(report.by, where)
    if report.flips:
        _show_flips(report.flips, where)


def outcome_lines(found: Mapping[str, Tally | None], values: Mapping[str, float | None] = {}) -> list[str]:
    """What is no answer, right or wrong, by what was asked, with its value if there is one, and what cannot be compared
    for that."""
    tallies = {name: tally for name, tally in found.items() if tally and tally.told}
    lines = [
        f"{name}: of {counted(tally.total, 'prompt')} {tally.told}"
        if values.get(name) is None
        else f"{name}: {figure(values[name], outcomes=tally)}"
        for name, tally in tallies.items()
    ]
    return lines + [f"WARNING: {name}: {one.undecided}; {one.fix}" for name, one in tallies.items() if one.undecided]


def method_lines(report: EvaluationReport, where: str = "") -> list[str]:
    """By what the answers were graded, `outcome_lines` of the methods, what to try where that seems to be wrong, and
    whether demonstrations help at all."""
    by, methods = report.setup.graded_by, {f"{name}{where}": row for name, row in report.methods.items()}
    lines = [f"metric {by.line}"] if by and by.line and not where else []
    lines += outcome_lines(
        {name: row.outcomes for name, row in methods.items()}, {name: row.accuracy for name, row in methods.items()}
    )
    lines += [f"WARNING: {name}: {row.hint}" for name, row in methods.items() if row.hint]
    if over := report.against_zero:
        told = f"{report.best}{where} against no demonstrations: {change(over.difference, over.low, over.high)}"
        told += f", p {p_value(over.p_holm)}"
        if (tried := sum(row.comparable for row in report.methods.values())) > 1:
            told += f" (adjusted for choosing the best of {tried} on these queries; the interval is not)"
        worse = over.difference < 0 and over.p_holm < 0.05
        lines.append(f"WARNING: {told}: the LLM answers better without" if worse else told)
    return lines


def interval(found: tuple[float, float] | None) -> str | None:
    """The two ends; None if there is none."""
    return None if found is None else between(*found)


def judged(found: Judging) -> str:
    """A line about the judge of the answers."""
    usage = found.usage
    line = f"judged by {found.llm}: {usage.calls:,} verdicts asked, {usage.cached_calls:,} of them cached"
    return line + (f"; {found.unjudged:,} not given, which no figure counts" if found.unjudged else "")


def _untrained(names: Sequence[str]) -> str:
    return (
        f"untrained start kept: {', '.join(names)}; no epoch of the training was better, so this is not what it learnt"
    )


def _transferred(found: Transfer) -> str:
    line = f"ranker-transfer: trained in {found.workspace}"
    if (versus := found.versus) is None:
        return line
    rise = change(versus.difference, versus.low, versus.high)
    return f"{line}; against ranker, trained here, {rise}, p {versus.p:.3f}"


def _spent(report: EvaluationReport) -> Usage:
    """What its methods were asked, and all queries without demonstrations."""
    return total([*(row.usage for row in report.methods.values()), *filter(None, [report.zero_shot])])


def show_sweep(report: SweepReport) -> None:
    """Accuracy by method and value, each with a bar from 0 to 1 and its interval (paper 000, figures 5 and 6)."""
    rows = [
        [
            name, point.value, figures.accuracy, Text(bar(figures.accuracy or 0.0, 20)), interval(figures.ci95),
            figures.shots,
        ]
        for name in report.points[0].report.methods
        for point in report.points
        for figures in [point.report.methods[name]]
    ]  # fmt: skip
    shown = [[name if i % len(report.points) == 0 else "", *rest] for i, (name, *rest) in enumerate(rows)]
    setup = report.points[0].report.setup
    runs = ", ".join(str(point.report.run) for point in report.points)
    usage = total(_spent(point.report) for point in report.points)
    notes = [
        counted(setup.queries, f"{setup.split} query")
        + ("" if report.setting == "k" else f", k = {setup.k}")
        + f", {setup.answered_by}, runs {runs}; {answered(usage, setup.llm)}",
        "95 % by bootstrap over queries",
    ]
    for point in report.points:
        notes += method_lines(point.report, f", {report.setting} = {point.value}")
    notes += [judged(point.report.judge) for point in report.points[:1] if point.report.judge]
    notes += [_untrained(point.report.untrained) for point in report.points[:1] if point.report.untrained]
    if is_stand_in(setup.llm):
        notes.append(STAND_IN)
    heads = [
        Head("method", cut="middle"), Head(report.setting), Head(setup.metric), Head("0 to 1", 3), Head("95 %", 1),
        Head("shots", 2),
    ]  # fmt: skip
    show_table(heads, shown, note="\n".join(notes))
    for point in report.points:
        _show_parts(point.report, f" with {report.setting} = {point.value}")
    point, best = report.best
    _show_confusion(point.report, best, f" with {report.setting} = {point.value}")


def _show_groups(by: QueryGroups, where: str) -> None:
    """The methods by the values of a field of the queries."""
    rows = [
        [value if i == 0 else "", group.queries if i == 0 else None, name, figures.accuracy,
         interval(figures.ci95), figures.f1, group.easy if i == 0 else None]
        for value, group in by.groups.items()
        for i, (name, figures) in enumerate(group.methods.items())
    ]  # fmt: skip
    heads = [
        Head(by.field, cut="middle"), Head("queries", 2), Head("method", cut="middle"), Head("right"),
        Head("95 %", 1), Head("F1", 3), Head("easy", 4),
    ]  # fmt: skip
    is_open = any(figures.f1 is not None for group in by.groups.values() for figures in group.methods.values())
    if not is_open:
        del heads[5]
        rows = [[*row[:5], *row[6:]] for row in rows]
    show_table(heads, rows, title=f"By {by.field}{where}", note="easy: queries of the group right zero-shot")


def _show_flips(methods: Mapping[str, FlipCounts], where: str) -> None:
    """What each method's shots changed against zero shots (paper 000, figure 3)."""
    columns: list[Column[tuple[str, FlipCounts]]] = [
        (Head("method", cut="middle"), lambda row: row[0]),
        (Head("hard, now right"), lambda row: f"{_count(row[1].turned_right)} of {row[1].hard:,}"),
        (Head("easy, now wrong"), lambda row: f"{_count(row[1].turned_wrong)} of {row[1].easy:,}"),
        (Head("changed", 1), lambda row: row[1].changed),
        (Head("95 %", 2), lambda row: interval(row[1].ci95)),
        (Head("of hard", 3), lambda row: row[1].hard_share),
    ]
    note = "flips from zero shots, mean over seeds, among queries answered both times"
    note += "; of hard: share of the changed ones"
    show_rows(list(methods.items()), columns, title=f"Flips{where}", note=note)


def _show_confusion(report: EvaluationReport, method: str, where: str = "") -> None:
    """Of a method, if it was asked for: true labels as rows, answers as columns; the largest confusions first."""
    confusion = report.confusion.get(method) if report.confusion else None
    if confusion is None:
        return
    matrix = confusion.matrix(MOST_LABELS)
    signs = dict(zip(matrix.labels, ascii_letters, strict=False))
    rows = [
        [f"{signs[label]} {label}", *(Text(str(n) if n else "·", justify="right") for n in counts), sum(counts)]
        for label, counts in zip(matrix.wanted, matrix.counts, strict=True)
    ]
    columns = ["wanted", *signs.values(), "other", "none", "of"]
    if not matrix.hidden:
        others = columns.index("other")
        del columns[others]
        for row in rows:
            del row[others]
    note = "columns: what was answered; none: an answer that names no label"
    if never := [f"{sign} {label}" for label, sign in signs.items() if label not in matrix.wanted]:
        note += f"; wanted by no query: {', '.join(never)}"
    if matrix.hidden:
        note += f"; {matrix.hidden:,} more labels are confused less: evaluate --confusion --json"
    right = f"{confusion.right:,} of {counted(confusion.answers, 'answer')} right"
    show_table(columns, rows, title=f"{method}{where}: {right}", note=note)


def _count(mean: float) -> str:
    return f"{mean:,.0f}" if mean.is_integer() else f"{mean:,.1f}"


def p_value(p: float) -> Text:
    """A p-value formatted for tables."""
    return Text("< .001" if p < 0.001 else f"{p:.3f}", justify="right")
