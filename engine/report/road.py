"""The road from a pool as it came to its export: what is done and what is left at each step, and what was gained."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import islice
from shlex import quote
from typing import Literal

from ..base.code import is_code
from ..base.contract import from_json
from ..base.errors import UsageError, counted
from ..evaluate.results import AS_INDEXED, EvaluationReport, stored_evaluations, without_trials
from ..evaluate.results import KIND as EVALUATE
from ..evaluate.statistics import bootstrap_interval, compare
from ..http import trust
from ..http.address import is_asked_at
from ..jobs.folder import CANCELLED_CODE, is_own, jobs
from ..llm.marks import GradedBy
from ..pool.display import display_line
from ..store import runs
from ..store.overview import ZERO, Overview, asked_last, overview
from ..store.settings import resolve
from ..store.trials import KIND as SOURCES
from ..store.workspace import Workspace
from .measured import MOST, asked, paired
from .results import Interval

State = Literal["not begun", "open", "partial", "done"]
"""``open``: something is left to do; ``partial``: done on another pool than the present one."""


@dataclass(frozen=True, slots=True)
class Step:
    """``told``: what is left, or what was done."""

    name: Literal["problems", "sources", "evaluate", "export"]
    state: State
    told: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The latest evaluation, but for trials with few queries, of a method by its ``metric``, beside that of the pool as
    it was indexed (`AS_INDEXED`), or else the first that is comparable. ``queries``: those that both asked, which all
    figures are of.

    ``before`` and ``gain`` (paired by query, with its two-sided ``p``) are None without another one, and if nothing was
    decided and no row changed between the two; ``as_it_came``: no decision was made before that. ``decided_since``: the
    decisions that changed the pool after the latest, of which no figure says anything. ``history``: the accuracies of
    comparable ones with as many queries as the latest, oldest first.
    """

    method: str
    k: int
    llm: str
    split: str
    metric: str
    queries: int
    accuracy: Interval
    before: float | None
    gain: Interval | None
    p: float | None
    as_it_came: bool
    decided_since: int
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Status(Overview):
    """An overview with the road; ``measured`` is None before an evaluation."""

    measured: Measured | None = None
    road: tuple[Step, ...] = ()


def status(workspace: Workspace, method: str = "", base_url: str = "") -> Status:
    """What a workspace contains, and how far its curation is. ``method``: the one whose accuracy is told if the latest
    evaluation has it; else that of the best. ``base_url``: the setting, without which the next step asks another
    server. Takes a tenth of a second with 300,000 rows."""
    seen = overview(workspace)
    told = {field.name: getattr(seen, field.name) for field in fields(seen)}
    weighed = next((runs.followed(workspace, run) for run in runs.finished(workspace, SOURCES)), None)
    steps = (_problems(seen), _sources(seen, weighed), _evaluate(seen), _export(seen))
    asked = asking(workspace, base_url) if seen.next_step.startswith(ASKING) else []
    told["next_step"] = _interrupted(workspace, seen) or " ".join([seen.next_step, *map(quote, asked)])
    return Status(**told, measured=_measured(workspace, method, seen), road=steps)


def _interrupted(workspace: Workspace, seen: Overview) -> str:
    """What goes on with an index of this user that was stopped before its end; nothing if it was none."""
    if seen.pool and seen.compared:
        return ""
    last = next((job for job in jobs(workspace) if job.line.kind == "index"), None)
    stopped = last is not None and not last.live and last.code in (None, CANCELLED_CODE) and is_own(last)
    return f"icl-curate jobs resume {last.number}" if last and stopped else ""


ASKING = ("icl-curate evaluate", "icl-curate tune", "icl-curate curate --max-calls")


def asking(workspace: Workspace, base_url: str) -> list[str]:
    """The options by which a command asks the LLM of the latest work, at its server, and grades as that did; none if it
    asked no LLM. ``base_url``: as in `status`."""
    llm, server, by = asked_last(workspace)
    if not llm:
        return []
    graded: list[str] = []
    with suppress(ValueError, RecursionError):  # of none, or of a stranger's workspace
        grading = from_json(GradedBy, json.loads(by))
        graded = grading.options
        if "--template" in graded and not _is_theirs(workspace, graded[-1], grading.template):
            graded[-1] = "FILE"
    if not all(word.isprintable() and not is_code(word) for word in graded):  # only the user names code
        graded = []
    return ["--llm", llm, *server_option(workspace, llm, server, base_url), *graded]


def _is_theirs(workspace: Workspace, name: str, template: str | None) -> bool:
    """Whether a name still is that of the ``template`` of a run. The workspace may be anybody's, and any file of the
    user is a template that sends what it holds: one that reads otherwise than the run's is left to be filled in."""
    from ..prompting.template import names

    if name in names():
        return True
    with suppress(UsageError):
        return resolve(workspace.path, {"template": name}).settings.prompted_by == template
    return False


def server_option(workspace: Workspace, llm: str, server: str, base_url: str) -> list[str]:
    """The option by which a command asks an LLM at its server, if another would be asked without. The workspace may be
    anybody's, so a server is named only if the user has confirmed it; else it is left to be filled in: no other is to
    get the prompts."""
    if not server or not llm.startswith("openai:") or is_asked_at(server, llm, base_url):
        return []
    return ["--base-url", server if trust.canonical(server) in trust.confirmed(workspace.path) else "URL"]


def _problems(seen: Overview) -> Step:
    if not seen.compared:
        return Step("problems", "open", "repeats and leaks not looked for: index did not end")
    if seen.suspects is None:
        found = {"repeat": sum(seen.duplicates_open.values()), "leak": seen.leaks_open}
        left = ", ".join(counted(still, name) for name, still in found.items() if still)
        return Step("problems", "open" if left else "not begun", f"{left}; suspects not looked for".removeprefix("; "))
    left = counted(seen.suspects_open, "suspect") if seen.suspects_open else ""  # repeats and leaks are among them
    told = left or (f"0 of {seen.suspects:,} open" if seen.suspects else "none found")
    if seen.labels_unchecked:
        return Step("problems", "open" if left else "partial", f"{told}; labels not checked: no vectors")
    return Step("problems", "open" if left else "done", told)


def _sources(seen: Overview, weighed: runs.FinishedRun | None) -> Step:
    if not seen.pool:
        return Step("sources", "not begun", "no rows")
    if seen.sources < 2:
        return Step("sources", "done", counted(seen.sources, "source"))
    left = f"{seen.sources - seen.sources_pruned:,} of {counted(seen.sources, 'source')}" if seen.sources_pruned else ""
    told = left or counted(seen.sources, "source")
    if weighed is None:
        return Step("sources", "not begun", f"{told}, not weighed")
    if weighed.decisions or weighed.rows:
        since = {"decision": weighed.decisions, "row": weighed.rows}
        ago = " and ".join(counted(count, name) for name, count in since.items() if count)
        return Step("sources", "partial", f"{told}, weighed {ago} ago")
    return Step("sources", "done", f"{told}, weighed")


def _evaluate(seen: Overview) -> Step:
    if seen.evaluated_since is None:
        return Step("evaluate", "not begun", "not measured")
    if ago := _ago(seen.evaluated_since, seen.rows_changed_since_evaluation):
        return Step("evaluate", "open", f"measured {ago}")
    return Step("evaluate", "done", "the pool as it is")


def _export(seen: Overview) -> Step:
    told = f"{seen.active:,} of {counted(seen.pool, 'row')}"
    if seen.exported_since is None:
        return Step("export", "not begun", told)
    if ago := _ago(seen.exported_since, seen.rows_changed_since_export):
        return Step("export", "open", f"{told}, written {ago}")
    gone = f"; {display_line(seen.export_gone, 60)} is no longer there" if seen.export_gone else ""
    return Step("export", "done", f"{told}, written{gone}")


def _ago(decisions: int, rows_changed: bool | None) -> str:
    """What the pool has seen since; empty: nothing."""
    decided = [f"{counted(decisions, 'decision')} ago"] if decisions else []
    return " and ".join([*decided, *(["before its rows changed"] if rows_changed else [])])


def _measured(workspace: Workspace, method: str, seen: Overview) -> Measured | None:
    own, anew = runs.finished(workspace, EVALUATE), runs.finished(workspace, AS_INDEXED)
    reports, as_indexed = _reports(own), _reports(anew)
    if not reports:
        return None
    there = {"validation": seen.validation, "test": seen.test}
    latest, finished = without_trials(reports, there)[0], {run.run: run for run in (*own, *anew)}
    setup, tried = latest.setup, {name: one.accuracy or 0.0 for name, one in latest.methods.items() if name != ZERO}
    name = method if method in tried else max(tried, key=lambda other: (latest.methods[other].comparable, tried[other]))
    figures, wanted = latest.methods[name], asked(latest, name)
    if figures.accuracy is None or figures.ci95 is None or not figures.comparable:
        return None
    alike, first_of_all = (
        [it for it in some if name in it.methods and it.methods[name].comparable and asked(it, name) == wanted]
        for some in (reports, as_indexed)
    )
    alike += first_of_all[:1]
    first = alike[-1]
    made, then = (runs.followed(workspace, finished[report.run]) for report in (first, latest))
    applied = frozenset[int]() if first.setup.as_indexed else made.applied
    changed = applied != then.applied or runs.rows_between(workspace, made.run, then.run) > 0
    was, now = paired(workspace, name, first.run, latest.run)
    tested = compare(now, was) if changed and was.size else None
    accuracy, ci95 = (float(now.mean()), bootstrap_interval(now)) if tested else (figures.accuracy, figures.ci95)
    return Measured(
        method=name,
        k=setup.k,
        llm=setup.llm,
        split=setup.split,
        metric=setup.metric,
        queries=int(was.size) if tested else setup.queries,
        accuracy=Interval(accuracy, *ci95),
        before=float(was.mean()) if tested else None,
        gain=Interval(tested.difference, tested.low, tested.high) if tested else None,
        p=tested.p if tested else None,
        as_it_came=not applied,
        decided_since=then.decisions,
        history=tuple(it.methods[name].accuracy or 0.0 for it in reversed(alike) if it.setup.queries == setup.queries),
    )


def _reports(finished: Iterable[runs.Run]) -> list[EvaluationReport]:
    """The latest of those with a method that shows something of the pool, the very latest first."""
    reports = (stored.report for run in finished for stored in stored_evaluations([run]))
    return [*islice((report for report in reports if {*report.methods} - {ZERO}), MOST)]
