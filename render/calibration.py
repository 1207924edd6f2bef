"""Output of `calibrate`: the rounds of one query, or the figures of a set as tables and text plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..engine.base.errors import counted
from ..engine.llm.marks import metric_name
from ..engine.llm.spec import is_stand_in
from ..engine.papers.calibrate.results import WORTH, QueryCalibration, SetCalibration
from ..engine.pool.display import display_line
from .costs import answered
from .evaluation import interval, judged, outcome_lines, p_value
from .tables import Bar, Column, Head, change, ends, show_hint, show_rows, show_table, show_text

if TYPE_CHECKING:
    from ..engine.papers.calibrate.keys import KeyReport, PlaceFigures
    from ..engine.papers.calibrate.reports import Answers, CalibrationRuns
    from ..engine.papers.calibrate.results import (
        ArmFigures,
        AttentionFigures,
        CalibrationRun,
        CalibrationVersus,
        FineTuningCost,
        FineTuningRun,
        Groups,
        Histogram,
        Relevance,
        Reliability,
        RoundFigures,
        RoundsVerdict,
        ScoredDocument,
        Transition,
        Transitions,
    )

STAND_IN = (
    "the offline reader is not an LLM: it applies the scores by a fixed rule and cannot show whether an LLM would"
)
MOST = 10
"""Maximum failed queries that are listed."""
EXCERPT = 120
"""Characters shown of a document; ``--json`` has all."""


def show_calibration(done: QueryCalibration) -> None:
    """One query: its documents with their scores, its answers round by round."""
    knows = any(document.relevant is not None for document in done.query.documents)
    documents: list[Column[ScoredDocument]] = [
        ("", lambda document: document.id),
        ("trusted", lambda document: "" if document.score is None else Bar(1.0 - document.score / 100.0)),
        ("score", lambda document: document.score if document.score is None else round(document.score)),
        ("answer from it alone", lambda document: document.answer),
        *([("relevant", lambda document: "yes" if document.relevant else "")] if knows else []),
        (f"{done.query.over}>", lambda document: display_line(document.text, EXCERPT)),
    ]
    show_rows(done.query.documents, documents, title=done.query.query)
    show_text("")
    marked = bool(done.query.answers)
    turns: list[list[Any]] = [
        [
            turn.round,
            Bar(1.0 - turn.uncertainty),
            turn.uncertainty,
            round(turn.score),
            *(["right" if turn.correct else "wrong"] if marked else []),
            turn.answer,
            "final" if turn.round == done.query.final_round else "",
        ]
        for turn in done.query.rounds
    ]
    show_table(["round", "sure", "uncertainty", "score", *([""] if marked else []), "answer>", ""], turns)
    show_text(f"\nfinal: {done.query.final}  (round {done.query.final_round})", style="bold")
    if marked:
        show_text(f"reference: {', '.join(done.query.answers)}")
    if not done.mean_known:
        show_text(
            "scores are 100 × uncertainty, uncentred: calibrate --split validation measures the mean to centre on"
        )
    _show_account(done)


def show_calibrations(done: SetCalibration) -> None:
    """A set of queries: arms, rounds of the first arm, its transitions, and how well uncertainty separates right from
    wrong."""
    arms = done.figures.arms
    if not arms:
        show_text("no reference answers, so no accuracy; --json has all rounds")
        _show_account(done)
        return
    first = arms[next(iter(arms))]
    is_open = done.task == "open"
    _show_arms(arms, done, is_open)
    _show_costs(arms, done.figures.marked)
    if done.figures.by:
        _show_groups(done.figures.by, is_open)
    if done.figures.attention:
        _show_attention(done.figures.attention)
    _show_rounds(first.rounds, is_open)
    _show_transitions(first.transitions)
    _show_outcome(done)
    if done.figures.relevance:
        _show_relevance(done.figures.relevance, " and ".join(done.means))
    _show_pair("uncertainty of final answers, 0 to 1", ("right", first.right), ("wrong", first.wrong), first.auroc)
    _show_reliability(first.reliability, first.brier)
    failed = [query for query in done.queries if query.failure]
    if failed:
        rows = [[query.id, query.failure] for query in failed[:MOST]]
        more = f"… and {len(failed) - MOST:,} more: calibrate --json" if len(failed) > MOST else ""
        show_table(["failed query", "why>"], rows, note=more)
    if done.figures.judge:
        show_text(judged(done.figures.judge))
    _show_account(done)


def _show_outcome(done: SetCalibration) -> None:
    """The effect of the rounds on the first answers, good or bad."""
    pairs = []
    for query in done.queries:
        by_round = {round_.round: round_.correct for round_ in query.rounds}
        if query.final_round is not None and by_round.get(0) is not None:
            pairs.append((by_round[0], by_round[query.final_round]))
    mended, spoiled = pairs.count((False, True)), pairs.count((True, False))
    if not pairs:
        return
    line = f"the rounds made {mended:,} wrong answers right and {spoiled:,} right answers wrong, of {len(pairs):,}"
    show_text(line)
    if verdict := done.figures.verdict:
        show_text(verdict_line(verdict, done.llm), style="" if verdict.says == "help" else "bold yellow")
    if done.usage.unusable:
        cut = f", {done.usage.cut_off:,} of them cut off" if done.usage.cut_off else ""
        share = f"{done.usage.unusable:,} of {done.usage.calls:,} replies answer nothing{cut}"
        show_text(share, style="yellow")


def verdict_line(verdict: RoundsVerdict, llm: str) -> str:
    """Whether the rounds are worth their calls, with the figures."""
    versus = verdict.versus
    sampled = versus.arm == "sampling"
    measured = (
        f"{change(versus.difference, versus.low, versus.high)} against "
        f"{'sampling as often' if sampled else 'the first answers'}, {counted(verdict.queries, 'query')}"
    )
    if verdict.says == "help":
        more = "" if sampled else "; whether more than sampling as often: --arms full,sampling"
        return f"the rounds help {llm}: {measured}{more}"
    if verdict.says == "not help":
        return f"the rounds do not help {llm}: {measured}; {'sampling is' if sampled else 'those are'} as good"
    more = "" if verdict.needed is None else f"; about {verdict.needed:,} queries would tell a gain of {WORTH:g}"
    return f"whether the rounds help {llm} is open: {measured}{more}"


def _show_arms(arms: Mapping[str, ArmFigures], done: SetCalibration, is_open: bool) -> None:
    metric = metric_name(done.graded_by)
    rows = [
        [
            name,
            arm.accuracy,
            interval(arm.ci95),
            arm.f1 if is_open else None,
            arm.auroc,
            arm.failures or None,
            *_against(arm.versus),
            arm.about,
        ]
        for name, arm in arms.items()
    ]
    heads: list[str | Head] = ["arm", metric, "95 %", "F1", "AUROC", "failures", "against", "p", "shows>"]
    keep = [i for i in range(len(heads)) if any(row[i] is not None for row in rows)]
    note = (
        f"{done.figures.marked:,} {done.split} queries; final answers; AUROC of uncertainty against error"
        + (f"; against: difference to {next(iter(arms))}, paired" if len(arms) > 1 else "")
    )  # fmt: skip
    warning = [f"WARNING: {done.figures.hint}"] if done.figures.hint else []
    note = "\n".join([note, *outcome_lines({name: arm.outcomes for name, arm in arms.items()}), *warning])
    show_table([heads[i] for i in keep], [[row[i] for i in keep] for row in rows], note=note)


def _right(answers: RoundFigures | PlaceFigures | Answers, is_open: bool = True) -> list[Any]:
    """The share of right answers with its interval, then F1 with its own if the answers are open."""
    f1 = [answers.f1, interval(answers.f1_ci95)] if is_open else []
    return [answers.accuracy, interval(answers.ci95), *f1]


def _against(versus: CalibrationVersus | None) -> list[Any]:
    """The difference to what it is compared with, and its p."""
    return [f"{versus.difference:+.3f}", p_value(versus.p)] if versus else [None, None]


def _show_costs(arms: Mapping[str, ArmFigures], queries: int) -> None:
    """What the arms cost, if there is more than one to compare (A.3, table 9)."""
    rows = [
        [
            name, spent.calls / queries, round(spent.tokens_in / queries), round(spent.tokens_out / queries),
            spent.seconds / queries,
        ]
        for name, spent in ((name, arm.cost) for name, arm in arms.items())
        if spent
    ]  # fmt: skip
    if len(rows) > 1:
        show_text("")
        heads = ["arm", "calls", "tokens read", "written", "seconds"]
        show_table(heads, rows, note="per query, as if the arm ran alone; seconds of the LLM, added over its calls")


def _show_attention(found: AttentionFigures) -> None:
    rows = [[f"R10@{k}", found.before[k], found.after[k]] for k in found.before]
    show_text("")
    note = f"share of relevant documents among the k with most attention, mean of {counted(found.queries, 'query')}"
    show_table(["attention", "round 0", "round 1"], rows, note=note)


def _show_groups(by: Groups, is_open: bool) -> None:
    rows = [
        [
            value,
            group.queries,
            name,
            arm.first_accuracy,
            arm.accuracy,
            interval(arm.ci95),
            *([arm.first_f1, arm.f1, interval(arm.f1_ci95)] if is_open else []),
        ]
        for value, group in by.groups.items()
        for name, arm in group.arms.items()
    ]
    heads = [by.field, "queries", "arm", "first", "final", "95 %", *(["first F1", "F1", "95 %"] if is_open else [])]
    show_text("")
    show_table(heads, rows, note="first answers and final ones")


def _show_rounds(rounds: Sequence[RoundFigures], is_open: bool) -> None:
    rows = [
        [
            row.round,
            Bar(row.accuracy),
            *_right(row, is_open),
            row.uncertainty,
            row.auroc,
            row.final_accuracy,
            *([row.final_f1] if is_open else []),
        ]
        for row in rounds
    ]
    with_f1 = ["F1", "95 %"] if is_open else []
    heads: list[str | Head] = ["round", "", "right", "95 %", *with_f1, "unsure", "AUROC", "final", *with_f1[:1]]
    note = "unsure: mean uncertainty; final: accuracy if the rounds ended here"
    show_text("")
    show_table(heads, rows, note=note)


def _show_transitions(transitions: Sequence[Transitions]) -> None:
    def turned(cell: Transition) -> Text:
        value = f"{cell.queries:,}" + (f"  {cell.uncertainty:.3f}" if cell.queries else "       ")
        return Text(value, justify="right")

    columns: list[Column[Transitions]] = [
        ("round", lambda row: row.round),
        ("right → right", lambda row: turned(row.right_right)),
        ("right → wrong", lambda row: turned(row.right_wrong)),
        ("wrong → right", lambda row: turned(row.wrong_right)),
        ("wrong → wrong", lambda row: turned(row.wrong_wrong)),
    ]
    show_text("")
    show_rows(transitions, columns, note="number of queries, and mean uncertainty of their new answers")


def _show_relevance(relevance: Relevance, what: str) -> None:
    _show_pair(
        f"scores of {what}, 0 to 100",
        ("relevant", relevance.relevant),
        ("others", relevance.others),
        relevance.auroc,
        f"within a query {relevance.auroc_within:.3f} (mean of {relevance.queries_within:,})"
        if relevance.auroc_within is not None
        else "",
    )


def _show_pair(
    title: str, a: tuple[str, Histogram], b: tuple[str, Histogram], auroc: float | None, more: str = ""
) -> None:
    """Two distributions over ten bins side by side, each with its bars scaled to its share."""
    bins = len(a[1].bins)
    rows = []
    for i in range(bins):
        cells: list[Any] = [f"{i * 100 // bins}–{(i + 1) * 100 // bins}"]
        for _, values in (a, b):
            share = values.bins[i] / max(values.count, 1)
            cells += [Bar(share, 24), f"{share:.0%}"]
        rows.append(cells)
    heads: list[str | Head] = ["%", "", Head(f"{a[0]} ({a[1].count:,})"), "", Head(f"{b[0]} ({b[1].count:,})")]
    figure = "not known" if auroc is None else f"{auroc:.3f}"
    show_text(f"\n{title}", style="bold")
    show_table(heads, rows, note=f"AUROC {figure}" + (f"; {more}" if more else ""))


def _show_reliability(reliability: Reliability, brier: float | None) -> None:
    rows = [
        [f"{row.start:.1f}–{row.end:.1f}", row.answers, row.confidence, row.accuracy, Bar(row.accuracy or 0.0, 20)]
        for row in reliability.bins
        if row.answers
    ]
    show_text("\nreliability of final answers", style="bold")
    note = "" if reliability.error is None else f"expected calibration error {reliability.error:.3f}"
    note += "" if brier is None else f", Brier score {brier:.3f}"
    show_table(["confidence", "answers", "mean", "right", ""], rows, note=note)


def show_keys(keys: KeyReport) -> None:
    """Relevant documents tagged and not, by their place."""
    rows = [
        [row.place, "<KEY>" if row.tagged else "", *_right(row), row.failures or None, *_against(row.versus)]
        for row in keys.places
    ]
    heads = ["relevant", "tag", "right", "95 %", "F1", "95 %", "failures", "against", "p"]
    left = f", {keys.left_out:,} without known relevance left out" if keys.left_out else ""
    show_table(heads, rows, note=f"{keys.queries:,} {keys.split} queries{left}; against: right without the tag, paired")
    show_text(
        f"run {keys.run}: {counted(keys.usage.calls, 'answer')} of {keys.llm}, {keys.usage.cached_calls:,} cached",
        style="dim",
    )
    if is_stand_in(keys.llm):
        show_text(STAND_IN, style="dim")


def show_comparison(compared: CalibrationRuns) -> None:
    """LLMs side by side on one split: first answers and final ones."""
    rows = [
        [row.run, row.llm, row.arm, row.queries, which, *_right(answers), *_against(answers.versus)]
        for row in compared.runs
        for which, answers in (("first", row.first), (f"round {row.rounds}", row.final))
    ]
    heads = ["run", "LLM", "arm", "queries", "answers", "right", "95 %", "F1", "95 %", "against", "p"]
    note = (
        f"{compared.split}; the final answers are the surest of all rounds; against: the first answers of the first LLM"
    )
    show_table(heads, rows, note=note)


def show_fine_tuning(done: FineTuningRun) -> None:
    """A fine-tuning: its loss in short form, and how to use the adapter."""
    metrics = done.metrics
    steps, left = ends(metrics.steps, MOST)
    note = f"{left} steps between" if left else ""
    show_table(["step", "loss"], [[step.step, step.loss] for step in steps], note=note)
    show_text(
        f"run {done.run}: {counted(metrics.examples, 'example')} from {metrics.split}, "
        f"{metrics.trained_tokens:,} answer tokens, {metrics.parameters:,} parameters, {metrics.seconds:,.0f} s"
    )
    show_set(metrics.counts, metrics.warnings)
    show_text(f"wrote {done.adapter}")
    show_hint(f"next: icl-curate calibrate --split test --llm hf:{done.adapter}")


def show_fine_tuning_cost(cost: FineTuningCost) -> None:
    """What a fine-tuning would do."""
    show_text(fine_tuning_line(cost))
    show_set(cost.counts, cost.warnings)


def fine_tuning_line(cost: FineTuningCost) -> str:
    return (
        f"{counted(cost.examples, 'example')} of {cost.split} in {counted(cost.steps, 'step')}, "
        f"{counted(cost.tokens_in, 'token')}, by {cost.llm}; into {cost.adapter}"
    )


def show_set(counts: Mapping[str, int], warnings: Sequence[str]) -> None:
    """What a fine-tuning set is made of."""
    show_text(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items() if value))
    for warning in warnings:
        show_text(warning, style="yellow")


def _show_account(done: CalibrationRun) -> None:
    means = ", ".join(f"{value:.3f} over {over}" for over, value in done.means.items())
    show_text(
        f"run {done.run}: {answered(done.usage, done.llm)}, "
        f"{counted(done.usage.tokens_in, 'token')} read; uncertainty by {done.estimator}, mean {means}",
        style="dim",
    )
    if is_stand_in(done.llm):
        show_text(STAND_IN, style="dim")
