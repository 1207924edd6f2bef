"""Gathering a report from a workspace. Nothing is asked, trained, encoded or stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ..base.errors import CurateError
from ..base.packages import lacking
from ..llm.asking import price_of
from ..llm.budget import Price
from ..llm.spec import is_stand_in, recorded
from ..papers.topics.report import Gap, Survey
from ..store.decisions import history
from ..store.overview import Overview, overview
from ..store.runs import Run, runs
from ..store.settings import Settings
from ..store.trials import source_summaries
from ..store.workspace import Workspace
from .decided import SHOWN, corrections, labels, removals
from .measured import confirmed, curations, evaluated, told
from .results import Excerpt, GapLine, LLMCost, PoolCounts, PoolReport, SourceChange, TopicLine, TopicsPart
from .steps import reproduction

TOPICS, GAPS = 15, 10
"""Maximum topics and gaps in a report."""

ALL = 1 << 30


def gather(workspace: Workspace, settings: Settings, title: str = "") -> PoolReport:
    """The report on a workspace as it is now; ``settings`` name the LLM whose topics and prices count."""
    found = overview(workspace)
    done = [run for run in reversed(runs(workspace, limit=ALL)) if run.status == "done"]
    entries = history(workspace)
    methods, compared = evaluated(workspace, done)
    summaries = source_summaries(workspace)
    corrected = corrections(workspace)
    topics, note = _topics(workspace, settings, found)
    return PoolReport(
        title=title or "What was done to the pool of demonstrations",
        made_at=told(datetime.now(UTC).replace(tzinfo=None)),
        workspace="/".join(workspace.path.parts[-2:]),
        counts=_counts(found, corrected.rows),
        curations=curations(done),
        confirmed=confirmed(done, entries),
        evaluated=methods,
        compared=compared,
        removals=removals(workspace),
        corrections=corrected,
        sources=tuple(
            SourceChange(one.source, one.demonstrations, one.active, one.weight, one.reliability) for one in summaries
        ),
        labels=labels(workspace),
        topics=topics,
        costs=_costs(workspace, settings, done),
        reproduction=reproduction(workspace, done, entries),
        notes=(note,) if note else (),
    )


def _counts(found: Overview, corrected: int) -> PoolCounts:
    return PoolCounts(
        pool=found.pool,
        active=found.active,
        pruned=found.pruned,
        corrected=corrected,
        retired=found.retired,
        sources=found.sources,
        active_sources=found.sources - found.sources_pruned,
        validation=found.validation,
        test=found.test,
        repeats=sum(found.duplicates.values()),
        leaks=found.leaks,
        skipped=found.skipped,
        task=found.task,
        encoder=found.encoder,
    )


def _topics(workspace: Workspace, settings: Settings, found: Overview) -> tuple[TopicsPart | None, str]:
    """The topics, if they are trained, and why they cannot be read, if so."""
    if not found.runs.get("train-topics"):
        return None, ""
    try:
        survey = Survey(workspace, settings)
    except CurateError as error:
        return None, f"topics cannot be read: {error.what}; {error.fix}"
    except ImportError as error:
        if (missing := lacking(error)) is None:
            raise
        return None, f"topics cannot be read: {missing.what}; {missing.fix}"
    every = survey.topics()
    gaps = tuple(_gap(gap) for gap in survey.gaps(GAPS, 1))
    lines = tuple(TopicLine(one.topic, one.active, one.knowledge, one.queries) for one in every[:TOPICS])
    return TopicsPart(survey.model.run, survey.model.llm, len(every), lines, gaps), ""


def _gap(gap: Gap) -> GapLine:
    text = gap.examples[0].input if gap.examples else ""
    return GapLine(gap.topic, gap.queries, gap.knowledge, gap.coverage, Excerpt(text[:SHOWN], len(text)))


def _costs(workspace: Workspace, settings: Settings, done: Sequence[Run]) -> tuple[LLMCost, ...]:
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT llm, sum(n), sum(i), sum(o), sum(f), min(a), max(z) FROM (
                SELECT llm, count(*) AS n, sum(tokens_in) AS i, sum(tokens_out) AS o, 0 AS f, min(asked_at) AS a,
                       max(asked_at) AS z
                  FROM llm_calls GROUP BY llm
                UNION ALL
                SELECT llm, 0, 0, 0, count(*), min(failed_at), max(failed_at) FROM llm_failures GROUP BY llm
            ) GROUP BY llm ORDER BY llm
            """
        ).fetchall()
    return tuple(_cost(row, settings, done) for row in rows)


def _cost(row: tuple[Any, ...], settings: Settings, done: Sequence[Run]) -> LLMCost:
    llm, calls, tokens_in, tokens_out, failures, first, last = row
    spec = recorded(llm)
    local = spec is not None and spec.local
    price = Price(0.0, 0.0) if local else _price(llm, settings, done)
    return LLMCost(
        llm=llm,
        calls=int(calls),
        tokens_in=int(tokens_in),
        tokens_out=int(tokens_out),
        failures=int(failures),
        first_at=told(first),
        last_at=told(last),
        price_in=price.input_per_million if price else None,
        price_out=price.output_per_million if price else None,
        dollars=price.cost(tokens_in, tokens_out) if price else None,
        local=local,
        stand_in=is_stand_in(llm),
    )


def _price(llm: str, settings: Settings, done: Sequence[Run]) -> Price | None:
    """The price in the settings, if they name this LLM, else that of its latest run that has one."""
    if settings.llm == llm and recorded(llm) is not None and (price := price_of(settings)):
        return price
    for run in reversed(done):
        had = run.settings.get("settings", run.settings)
        if run.llm == llm and had.get("price_in") is not None and had.get("price_out") is not None:
            return Price(float(had["price_in"]), float(had["price_out"]))
    return None
