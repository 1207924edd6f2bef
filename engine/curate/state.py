"""What an unfinished run of `curate` has done, kept in the workspace after each step, and the curator's answer to a
pruning that waits for it. No LLM is needed here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..base import contract
from ..base.code import program_in
from ..base.errors import UsageError
from ..base.files import read_regular, replace_file
from ..llm.marks import GradedBy
from ..select.lock import Judged, lock
from ..store import calls, runs
from ..store.browse import pruned_rows
from ..store.calls import Spent
from ..store.decisions import Change, history, revise
from ..store.demonstrations import active_digest, active_sources
from ..store.locks import exclusive
from ..store.outputs import relabelled
from ..store.overview import CURATION
from ..store.settings import KINDS, Settings, check_settings
from ..store.trials import source_summaries
from ..store.versions import save_version
from ..store.workspace import Workspace
from .plan import (
    ENOUGH,
    KIND,
    PER_CANDIDATE,
    ROUNDS,
    CurationReport,
    Name,
    Pending,
    PlannedStep,
    StepDone,
    kept_back,
    share_of,
)

ASK_AND_RACE = 3 * PER_CANDIDATE
"""The fewest calls that pay for evidence on rows (a third of them) and a race of what it suggests."""


@dataclass(slots=True)
class Progress:
    """What a run has done so far; the content of `CURATION`.

    ``key``: what makes it the same run when it goes on; ``since``: when it began, in UTC. ``limit``: calls it may make;
    ``free``: something can be raced before the LLM is asked about rows. ``pruned_last``: its latest race pruned
    something; ``gained``: the sum of the confirmed gains; ``rejected``: what the curator did not want pruned.
    ``unfinished``: the candidates of a first race that ran out of calls while one of them gained, 0 if it did not: it
    goes on before anything else is asked. ``continued``: it did. ``single``: its evidence is answers to single
    demonstrations, from which a ranker can be learnt. ``runs``: the numbers under which it was recorded each time it
    was begun or gone on with; the answers that they asked for are its own. ``before`` was measured on so many
    ``queries``; 0 if a gain on others was added. ``pool``: the `active_digest` that the run left, and ``disturbed``:
    somebody else has changed it since. ``probed``: calls that probed the LLM before the first step, which counts them.
    ``spent``: all calls up to where it was stopped, those without an answer, too.
    """

    key: dict[str, Any]
    since: str
    steps: tuple[StepDone, ...] = ()
    pruned_last: bool = False
    before: float | None = None
    gained: float = 0.0
    served: str = ""
    pending: Pending | None = None
    limit: int = 0
    free: bool = True
    rejected: tuple[Pending, ...] = ()
    unfinished: int = 0
    continued: bool = False
    single: bool = True
    runs: tuple[int, ...] = ()
    queries: int = 0
    pool: str = ""
    disturbed: bool = False
    probed: int = 0
    spent: int = 0

    @property
    def held(self) -> Pending | None:
        """The pruning that waits for the curator."""
        return self.pending if self.pending and self.pending.held else None

    @property
    def graded_by(self) -> GradedBy | None:
        """What accuracy is; None if it is not known."""
        with suppress(ValueError):
            return contract.from_json(GradedBy, self.key.get("graded_by"))
        return None

    @property
    def rounds(self) -> int:
        """Races of prunings; one that went on is one."""
        return sum(step.step == "confirm" for step in self.steps) - self.continued

    @property
    def calls(self) -> int:
        """Calls of the steps that are done."""
        return sum(step.calls for step in self.steps)

    @property
    def left(self) -> int:
        """Calls left when the latest step had ended: what follows must not depend on where the run was stopped."""
        return max(0, self.limit - self.calls)

    def share(self, step: Name) -> int:
        """The calls that a step may make next, those of it that were made before the run was stopped included."""
        first, again = self.rounds == 0 and self.free, self.limit >= ENOUGH
        return share_of(step, self.left, kept_back(self.limit), first, again)

    def finish(self, done: StepDone) -> None:
        self.steps = (*self.steps, done)

    def following(self, left: int) -> Name | None:
        """The step to carry out next with so many calls ``left``, None at the end."""
        if not self.steps:
            return "check"
        rich, free = self.limit >= ENOUGH, left - kept_back(self.limit)
        asked = any(step.step == "ask" for step in self.steps)
        again = rich and self.pruned_last and self.rounds < ROUNDS
        rules: dict[Name, list[tuple[bool, Name]]] = {
            "check": [
                (rich and not self.free, "ask"),  # there is nothing to race yet
                (True, "confirm"),
            ],
            "ask": [(True, "confirm")],
            "confirm": [
                (self.unfinished > 0 and free >= PER_CANDIDATE, "confirm"),
                (again and free >= ENOUGH, "ask"),  # of the rows that are left others are shown now
                # checks suggested nothing that helps: only answers can
                (rich and not asked and not self.pruned_last and free >= ASK_AND_RACE, "ask"),
                (again and free >= 2 * PER_CANDIDATE, "confirm"),  # other candidates are the next best now
                (rich and asked and self.single, "rank"),  # from these answers, without a call
                (rich, "choose"),
            ],
            "rank": [(left >= PER_CANDIDATE, "choose")],
            "choose": [],
        }
        return next((step for holds, step in rules[self.steps[-1].step] if holds), None)


def planned(
    run: Progress,
    expected: float | None = None,
    methods: Sequence[str] = (),
    command: Callable[[Name, int, Sequence[str]], str] = lambda step, calls, methods: "",
) -> list[PlannedStep]:
    """The steps of a run that are still to come if each makes all the calls that it may and each race, also one that
    waits for the curator, prunes something. ``expected``: the gain of the first race, as far as it is known;
    ``methods`` are raced at the end, with a ranker that was trained before; ``command``: the same by hand, with so many
    calls."""
    run = replace(run)
    if run.held:
        run.finish(run.held.step)
        run.pending, run.pruned_last = None, run.steps[-1].step == "confirm"
    steps: list[PlannedStep] = []
    while (step := run.following(run.left)) is not None:
        if step == "rank" and "ranker" not in methods:
            methods = [*methods, "ranker"]
        first, share, gain = step == "confirm" and not run.rounds, run.share(step), None
        what = {
            "check": "prune rows that repeat a query",
            "ask": "ask about single rows of what is left",
            "rank": "train the ranker from these answers",
            "choose": f"race methods: {', '.join(methods)}" if methods else "race methods",
            "confirm": "race what that suggests, carry out the best",
        }[step]
        if first and (run.free or run.limit < ENOUGH):
            raced = "prunings of sources" if expected == 0 else "what checks suggest"  # 0: no query shows a suspect
            what, gain = f"race {raced}, carry out the best", expected
        elif run.unfinished and step == "confirm":
            what = "race what checks suggest, carry out the best, continued"
            run.unfinished, run.continued = 0, True
        elif run.steps and run.steps[-1].step == "confirm" == step:
            what = "if that pruned something: race what is next best, carry out the best"
        steps.append(PlannedStep(step, what, share, gain, command(step, share, methods)))
        run.pruned_last = step == "confirm"
        run.finish(StepDone(step, what, share))
    return steps


def kept(workspace: Workspace) -> Progress | None:
    """The unfinished run of this workspace, None if there is none."""
    with suppress(FileNotFoundError, ValueError):
        return contract.from_json(Progress, json.loads(read_regular(_file(workspace))))
    return None


def keep(workspace: Workspace, state: Progress) -> None:
    """Store it, replacing an earlier one."""
    replace_file(_file(workspace), lambda file: file.write(json.dumps(contract.to_json(state)).encode()))


def forget(workspace: Workspace) -> None:
    """The run has ended."""
    _file(workspace).unlink(missing_ok=True)


def alone(workspace: Workspace) -> AbstractContextManager[None]:
    """While it is held no other process carries out steps or answers. Raises `LockedError` if one does."""
    return exclusive(workspace.path / "tmp" / "curate.lock", "is curating this workspace")


def _waiting(workspace: Workspace) -> tuple[Progress, Pending]:
    """The run and its pruning that waits. Raises `UsageError` if none does."""
    state = kept(workspace)
    if state is None or state.held is None:
        raise UsageError("no pruning waits for an answer", "icl-curate curate --max-calls 1000 --next --hold")
    return state, state.held


def would_change(workspace: Workspace) -> Change:
    """What accepting the pruning that waits would change. Raises `UsageError` if none waits, or if some of it is no
    longer there."""
    return effect_of(workspace, _waiting(workspace)[1])


def check_answered(workspace: Workspace) -> None:
    """Raise `UsageError` if a pruning waits for the curator."""
    state = kept(workspace)
    if state is not None and state.held:
        raise UsageError(
            f"a pruning waits for your answer: {state.held.step.found}", "icl-curate curate --accept --dry-run"
        )


def note_pool(workspace: Workspace, state: Progress, own: bool = False) -> None:
    """Note the pool as it is: what differs from what the run left, other than by its ``own`` decision, others did."""
    _, digest = active_digest(workspace)
    state.disturbed |= bool(state.pool) and not own and digest != state.pool
    state.pool = digest


def decided(workspace: Workspace, state: Progress) -> StepDone:
    """Prune what is pending, unless the run was killed just after it had; returns the step that is done by it."""
    pending, begun = state.pending, datetime.fromisoformat(state.since)
    assert pending is not None
    made = [one.batch for one in history(workspace) if one.reason == pending.reason and one.decided_at >= begun]
    if not made:
        note_pool(workspace, state)
    batch = made[0] if made else revise(workspace, pending.revision, pending.reason).batch
    if pending.before is not None:
        note_before(state, pending.before, pending.queries, gains=True)
    state.gained += pending.gain
    state.pending = None
    return replace(pending.step, batch=batch)


def note_before(state: Progress, before: float, queries: int, gains: bool = False) -> None:
    """Note the accuracy before the run, on the queries of a race: up to the first that ``gains``, those of the largest,
    because the pool is the same; then its own. Where another gains on other queries, the sum is of none of them; on
    the same ones, what was gained so far is no more than what they measure now."""
    if not state.gained and (gains or queries > state.queries):
        state.before, state.queries = before, queries
    elif gains and queries != state.queries:
        state.queries = 0
    elif state.gained and state.before is not None and queries == state.queries:
        # measured with the pool as it was made: each half had raced another one
        state.gained = min(state.gained, before - state.before)


def effect_of(workspace: Workspace, pending: Pending) -> Change:
    """What it would change in the pool as it is now. Raises `UsageError` if some of it is no longer there."""
    return revise(workspace, pending.revision, pending.reason, dry_run=True)


def answer(workspace: Workspace, settings: Settings, accept: bool) -> CurationReport:
    """Decide on the pruning that waits for the curator, and store the report as a run. At the end of the plan the pool
    is locked with the ``settings``, as far as the run does not have its own. Raises `UsageError` if none waits, if some
    of what is accepted is no longer in the pool, or as `check_settings` does, and `LockedError` as `alone` does."""
    with alone(workspace):
        return _answered(workspace, settings, accept)


def _answered(workspace: Workspace, settings: Settings, accept: bool) -> CurationReport:
    state, pending = _waiting(workspace)
    chosen = _of_run(state, settings)
    if accept:
        effect_of(workspace, pending)  # while it still waits, and so can be rejected
        state.pending = replace(pending, held=False)
        keep(workspace, state)
        done = decided(workspace, state)
    else:
        state.rejected = (*state.rejected, pending)
        state.pending, state.pruned_last = None, False
        done = replace(pending.step, found=f"{pending.step.found}; rejected")
    note_pool(workspace, state, own=accept)
    state.finish(done)
    keep(workspace, state)
    llm = str(state.key.get("llm", ""))
    with runs.recorded(workspace, KIND, llm, state.key | {"answer": "accept" if accept else "reject"}) as record:
        spent = spent_in_all(workspace, state)
        report = report_of(workspace, record.run, state, spent)
        if report.following is None:
            report = locked(workspace, chosen, report)
        record.summary = report.as_json()
    if report.following is None:
        forget(workspace)
    return report


def _of_run(state: Progress, settings: Settings) -> Settings:
    """The settings with those of the run. Its file may be anybody's, so a value that no setting may have is a
    `UsageError`, and a program that the user does not name is left out: it would be imported."""
    names = ("method", "k", "order", "seed", "llm")
    own = {name: state.key[name] for name in names if type(state.key.get(name)) is KINDS[name]}
    if program_in(own.get("llm", "")):
        own.pop("llm")
    check_settings(changed := replace(settings, **own))
    return changed


def spent_by(workspace: Workspace, state: Progress) -> dict[str, Spent]:
    """What a run has spent, of each LLM: the answers that it asked for; of a run that an earlier release has begun,
    those since it began."""
    if state.runs or not state.steps:
        return calls.spent(workspace, state.runs)
    return calls.spent_since(workspace, str(state.key.get("llm", "")), datetime.fromisoformat(state.since))


def spent_in_all(workspace: Workspace, state: Progress) -> Spent:
    """The same together; with calls that gave no answer, what its steps have counted, and it when it was stopped."""
    each = spent_by(workspace, state).values()
    made, *tokens = (sum(getattr(one, name) for one in each) for name in ("calls", "tokens_in", "tokens_out"))
    return Spent(max(made, state.calls, state.spent), *tokens)


def report_of(workspace: Workspace, run: int, state: Progress, spent: Spent) -> CurationReport:
    """What a run has done, stored as run number ``run``."""
    _, sources = active_sources(workspace)
    undone = {decision.batch for decision in history(workspace) if decision.undone}
    left = max(0, state.limit - spent.calls)
    return CurationReport(
        run=run,
        llm=str(state.key.get("llm", "")),
        steps=tuple(
            replace(step, found=f"{step.found}; undone") if step.batch in undone else step for step in state.steps
        ),
        calls=spent.calls,
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
        left=None if state.key.get("max_calls") is None else left,
        before=state.before,
        after=None
        if state.before is None or state.disturbed or not state.queries
        else max(0.0, min(1.0, state.before + state.gained)),
        served=state.served or str(state.key.get("method", "")),
        pruned=tuple(one.source for one in source_summaries(workspace) if not one.kept),
        pruned_rows=pruned_rows(workspace).size,
        rows=len(sources),
        relabelled=len(relabelled(workspace, "active")),
        following=state.held.step.step if state.held else state.following(left),
        held=state.held,
        graded_by=state.graded_by,
        queries=state.queries or None,
        disturbed=state.disturbed or None,
    )


def locked(workspace: Workspace, settings: Settings, report: CurationReport) -> CurationReport:
    """Save the pool by name and lock it with the method that is served: the end of a run that measured something, of
    which nobody else has changed the pool."""
    if report.before is None or report.disturbed:
        return report
    name = f"curate-{report.run}"
    save_version(workspace, name, f"curated with {report.llm}", force=True)
    judged = Judged(report.llm, report.run, report.before, report.after)
    lock(workspace, replace(settings, method=report.served), name, judged, report.graded_by)
    return replace(report, version=name)


def now() -> str:
    """The time in UTC without a zone, as the tables of the workspace have it."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat()


def _file(workspace: Workspace) -> Path:
    return workspace.path / CURATION
