"""`Pool`: a workspace in Python, for notebooks and programs. What the commands do, by the same functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_type_hints

from ..engine.base.errors import UsageError, did_you_mean
from ..engine.base.progress import Monitor, stoppable
from ..engine.pool.fields import query_of
from ..engine.pool.records import Demonstration, Query, Split
from ..engine.store.settings import KINDS, Settings, resolve
from ..engine.store.workspace import Workspace
from .fixes import WORKSPACE, other_workspace, told_in_python
from .given import LIMITS, check, checked, with_methods
from .rows import Rows
from .shown import Shown, ShownRows

if TYPE_CHECKING:
    import datasets
    import pandas
    import pyarrow

    from ..engine.checks.evidence import PoolEvidence
    from ..engine.checks.results import CheckReport
    from ..engine.export.verified import Verification
    from ..engine.llm.client import LLMClient, PaidWork
    from ..engine.pool.prompts import Prompt
    from ..engine.select.selector import Asked, Selected, Selector

Part = Literal["sources", "ranker", "topics", "fixed", "rows", "datamodel"]
TRAINED: Mapping[str, tuple[str, str, str]] = {
    "sources": ("trials.sources", "SourcePlan", "SourceTraining"),
    "ranker": ("papers.ranker.train", "RankerPlan", "RankerTraining"),
    "topics": ("papers.topics.train", "TopicPlan", "TopicTraining"),
    "fixed": ("curate.fixed", "FixedPlan", "FixedTraining"),
    "rows": ("checks.ask", "RowPlan", "RowTraining"),
    "datamodel": ("baselines.datamodel", "DatamodelPlan", "DatamodelTraining"),
}
"""What `Pool.train` learns: module, plan and work."""
HELD_OUT: tuple[Split, Split] = ("validation", "test")

R = TypeVar("R")


def in_python(kind: type[R]) -> type[R]:
    """The class, whose public methods check what they are given and suggest what can be pasted."""
    return with_methods(kind, lambda method: told_in_python(checked(method)))


@in_python
class Pool:
    """A pool of demonstrations and its queries, in the folder ``workspace``.

        pool = Pool.index(frame, validation=0.2, test=0.2, llm="openai:MODEL", price_in=0.25, price_out=2.0)
        pool.check()
        pool.curate(max_calls=300, dry_run=True)
        pool.curate(max_calls=300)
        pool.to_pandas()

    **Settings** given by name hold for all that this object does; given to a method, for that call. Any field of
    `Settings` will do. Where code may stand for a name (``metric``, ``read``, ``template``, ``llm``), a function or
    object that can be imported does, too. **Options** of a method that plans something are the fields of its plan
    (`EvaluationPlan`, `CurationPlan`, `SourcePlan` …).

    Methods that ask the LLM take ``max_calls``, ``max_cost`` (US dollars) and ``dry_run``, which returns the cost
    instead. An LLM that is not on this machine is asked within a limit only. Ctrl-C stops cleanly; what was answered is
    kept, and the same call goes on from there. A result has the attributes of the engine's, is drawn in a notebook as
    its command prints it, and ``as_json()`` is what ``--json`` prints of it (see `Shown`). Raises `CurateError`, whose
    ``fix`` is the command that mends it; `WorkspaceError` if there is no workspace.
    """

    def __init__(self, workspace: Path | str = WORKSPACE, *, progress: bool = True, **settings: Any) -> None:
        self.workspace = Workspace.open(Path(workspace))
        self.progress = progress
        self.given = settings
        self._latest: tuple[object, Selector] | None = None
        self.settings()
        if method := settings.get("method"):
            from ..engine.select.selector import method_named

            method_named(method)

    def __getstate__(self) -> dict[str, Any]:
        return {"workspace": self.workspace.path, "progress": self.progress, **self.given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Pool.__init__(self, **state)  # another process opens the workspace itself

    # The rows.

    @classmethod
    def index(
        cls,
        data: Rows | Path | str | Sequence[Path | str] = (),
        workspace: Path | str = WORKSPACE,
        *,
        validation: Rows | Path | str | float = 0.0,
        test: Rows | Path | str | float = 0.0,
        map: Mapping[str, str] = {},
        labels: Sequence[str] | str = (),
        source: str | None = None,
        strict: bool = False,
        encode: bool = True,
        max_cost: float | None = None,
        drop: Sequence[str] = (),
        dry_run: bool = False,
        progress: bool = True,
        **settings: Any,
    ) -> Pool:
        """The pool of these rows: a frame of pandas, polars, pyarrow or DuckDB, a data set of `datasets`, mappings, or
        names of files; nothing to read known files again. ``validation`` and ``test`` are rows of their own, or the
        share of the pool that is held out. ``map``: columns by field, ``{"input": "utterance"}``. What came of it is
        the attribute ``indexed``. Rows from memory are kept in the workspace, in place of those that were given before
        under the same ``source``; a dry run or an error leaves those as they are. ``drop``: names of known files that
        are no longer read. Raises as `index_pool` does."""
        from ..engine.index.build import IndexPlan, dry_run_index, index_pool, made_workspace
        from .kept import kept_rows

        with made_workspace(Path(workspace)) as store, kept_rows(store) as files:
            pool = cls(workspace, progress=progress, **settings)
            held_out: dict[str, Any] = {}
            for split, given in zip(HELD_OUT, (validation, test), strict=True):
                if isinstance(given, int | float):
                    held_out[f"{split}_fraction"] = given
                else:
                    held_out[split] = files(split, given, split)
            named = labels.split(",") if isinstance(labels, str) and labels else labels
            plan = IndexPlan.of(
                pool.settings(), max_cost=max_cost, paths=files(source or "pool", data, "pool"), columns=dict(map),
                labels=tuple(label.strip() for label in named), source=source, strict=strict,
                drop=tuple(drop), **held_out,
                **({} if encode else {"encoder": None}),
            )  # fmt: skip
            with pool._watched() as monitor:
                if dry_run:
                    pool.indexed = Shown(dry_run_index(store.path, plan, monitor))
                else:
                    pool.indexed = Shown(index_pool(store, plan, monitor))
            pool.indexed.workspace = other_workspace(store.path)
        return pool

    indexed: Shown | None = None

    def rows(
        self, split: Split = "pool", *, sources: Sequence[str] | str = (), deduplicate: bool = False, version: str = ""
    ) -> list[dict[str, Any]]:
        """The rows as they are exported: of the active pool, or the queries of a split. What else is given is as in
        `ExportPlan`."""
        from ..engine.export.corpus import ExportPlan, records

        named = (sources,) if isinstance(sources, str) else tuple(sources)
        plan = ExportPlan(out=Path(), split=split, sources=named, deduplicate=deduplicate, version=version)
        return list(records(self.workspace, plan))

    def to_pandas(self, split: Split = "pool", **options: Any) -> pandas.DataFrame:
        """`rows` as a frame of pandas."""
        frame: pandas.DataFrame = _module("pandas").DataFrame(self.rows(split, **options))
        return frame

    def to_polars(self, split: Split = "pool", **options: Any) -> Any:
        """`rows` as a frame of polars."""
        return _module("polars").from_dicts(self.rows(split, **options), infer_schema_length=None)

    def to_arrow(self, split: Split = "pool", **options: Any) -> pyarrow.Table:
        """`rows` as a table of pyarrow."""
        return _of_columns(_module("pyarrow").Table.from_pydict, self.rows(split, **options))

    def to_dataset(self, split: Split = "pool", **options: Any) -> datasets.Dataset:
        """`rows` as a data set of `datasets`."""
        return _of_columns(_module("datasets").Dataset.from_dict, self.rows(split, **options))

    def queries(self, split: Split = "validation", limit: int | None = None) -> list[Query]:
        """The queries of a split, in the order they were indexed."""
        from ..engine.store.demonstrations import queries

        return queries(self.workspace, split, limit)

    def demonstration(self, name: str) -> Demonstration:
        """The row with this id. Raises `UsageError` if there is none."""
        from ..engine.store.demonstrations import find

        return find(self.workspace, name)

    def demos(
        self,
        search: str = "",
        source: str | None = None,
        limit: int = 50,
        *,
        split: Split = "pool",
        pruned: bool | None = None,
        duplicates: bool = False,
        label: str | None = None,
    ) -> ShownRows:
        """Rows with numbers, as lists show them. Raises `UsageError` for a source that the split has not."""
        from ..engine.store.browse import Filter, page
        from ..engine.store.demonstrations import check_sources

        listed = page(self.workspace, Filter(source, split, pruned, search, duplicates, label), limit=limit)
        if not listed and source is not None:
            with self.workspace.read() as con:
                check_sources(con, [source], split)
        return ShownRows("demonstrations", "demonstrations", listed, limit)

    def status(self) -> Shown:
        """What is left to do and what was gained, what the workspace contains, and the suggested next step."""
        from ..engine.report import road

        settings = self.settings()
        return Shown(road.status(self.workspace, settings.method, settings.base_url))

    def sources(self, **settings: Any) -> ShownRows:
        """Sources with their learned weights, by answers that are graded as the settings say."""
        from ..engine.llm.graded import grading_set, left_out
        from ..engine.store.trials import KIND, source_summaries

        used = self.settings(settings)
        listed = source_summaries(self.workspace, grading_set(self.workspace, used))
        notes = left_out(self.workspace, used, kinds=(KIND,))
        return ShownRows("sources", "sources", listed, notes, told={"notes": notes})

    def skipped(self) -> Shown:
        """Records that `index` could not use, by reason."""
        from ..engine.index.results import skipped_records

        return Shown(skipped_records(self.workspace), 20)

    # What is wrong with them, without an LLM.

    def check(self, kinds: Sequence[str] | str | None = None, *, also_kept: bool = False, **settings: Any) -> Shown:
        """Suspicious rows: wrong labels and outputs, conflicts, duplicates, leaks, broken texts."""
        from ..engine.checks.active import ActivePool
        from ..engine.checks.check import check_pool
        from ..engine.checks.results import KINDS as EVERY
        from ..engine.checks.results import kinds_named
        from ..engine.checks.suspects import suspects_of
        from ..render.checks import show_checks

        wanted = EVERY if kinds is None else kinds_named(kinds)
        with self._watched() as monitor:
            pool = ActivePool(self.workspace, self.settings(settings), monitor)
            checked = check_pool(pool, wanted, also_kept)
            if set(wanted) == set(EVERY):
                suspects_of(pool, checked)  # `status` counts them
        return Shown(checked, draw=partial(show_checks, checked, 20))

    def to_verify(self, file: str | Path = "verified.jsonl", count: int = 100, *, seed: int = 0) -> Verification:
        """Rows drawn at random, one after another: say what is right of its ``row`` by ``verify(output)`` or
        ``pass_over()``, until that is None; then index the file as validation. A label that no row or query has is
        refused, unless it is said to be: ``verify(output, new=True)``."""
        from ..engine.export.verified import Verification

        return Verification(self.workspace, Path(file), count, seed)

    def suspects(self, least: float = 0.0, limit: int = 20, **settings: Any) -> ShownRows:
        """Active demonstrations by how likely they hurt, with all evidence about each."""
        from ..engine.checks.decided import undecided
        from ..render.checks import show_suspects

        evidence = undecided(self.workspace, self._evidence(settings))
        rows = evidence.suspects(least)[:limit]
        draw, told = partial(show_suspects, rows, evidence), {"notes": list(evidence.notes)}
        return ShownRows("suspects", "demonstrations", rows, draw=draw, told=told)

    def evidence(self, name: str, **settings: Any) -> Shown:
        """All evidence about the row with this id."""
        from ..render.checks import show_evidence

        found = self._evidence(settings)
        row = found.of(name)
        return Shown(row, draw=partial(show_evidence, row, found.notes))

    def ledger(self, misleading: bool = False, helpful: bool = False, limit: int = 20, **settings: Any) -> ShownRows:
        """How each demonstration changed answers while the ranker was trained, worst first."""
        from ..engine.checks.ledger import ledger

        entries = ledger(self.workspace, misleading, helpful, limit, self._grading(settings))
        return ShownRows("ledger", "demonstrations", entries)

    def flips(self, name: str, **settings: Any) -> ShownRows:
        """The prompts in which the demonstration with this id flipped the answer."""
        from ..engine.store.demonstrations import find
        from ..engine.store.trials import flips

        return ShownRows(
            "flips", "flips", flips(self.workspace, find(self.workspace, name).row, self._grading(settings))
        )

    def topics(self, search: str = "", limit: int = 20, **settings: Any) -> Shown:
        """Topics with size, LLM knowledge, coverage and sources."""
        from ..engine.papers.topics.report import topics

        return Shown(topics(self.workspace, self.settings(settings), search, limit))

    def gaps(self, limit: int = 20, **settings: Any) -> ShownRows:
        """Topics that queries need, the LLM lacks and the pool does not cover: what to collect next."""
        from ..engine.papers.topics.report import gaps

        return ShownRows("gaps", "gaps", gaps(self.workspace, self.settings(settings), limit))

    # What asks the LLM.

    def evaluate(
        self, methods: Sequence[str] | str = ("zero", "random", "bm25", "dense"), *, sweep: str = "", **options: Any
    ) -> Shown:
        """Compare selection methods on a split; ``sweep``: for several values of a setting, ``"k=0,2,5"``. ``options``
        are those of `EvaluationPlan`."""
        from ..engine.evaluate.compare import Evaluation, EvaluationPlan, Sweep, sweep_named

        methods = methods.split(",") if isinstance(methods, str) else methods
        plan = _planned(EvaluationPlan, options, methods=tuple(name.strip() for name in methods))
        if sweep:
            swept = sweep_named(sweep)
            return self._ask(lambda llm: Sweep.prepare(llm, plan, swept), options)
        return self._ask(lambda llm: Evaluation.prepare(llm, plan), options)

    def curate(self, **options: Any) -> Shown:
        """Curate the pool within a budget: check, ask, prune or relabel what hurts, choose the method; each decision
        can be undone. ``options`` are those of `CurationPlan`; ``propose=True`` decides nothing."""
        from ..engine.curate.curation import Curation, CurationPlan
        from ..engine.curate.state import check_answered

        if not (options.get("dry_run") or options.get("anew")):
            check_answered(self.workspace)
        limits = {name: options.get(name) for name in ("max_calls", "max_cost")}
        plan = _planned(CurationPlan, options, **limits)
        return self._ask(lambda llm: Curation.prepare(llm, plan), options)

    def answer(self, accept: bool) -> Shown:
        """Carry out the decision that ``curate(hold=True)`` left waiting, or leave it."""
        from ..engine.curate.state import answer

        return Shown(answer(self.workspace, self.settings(), accept))

    def tune(self, *, propose: bool = False, reason: str = "", **options: Any) -> Shown:
        """Prune the sources and rows that hurt served prompts, if validation confirms it; ``propose``: only measure,
        `tune_apply` prunes it afterwards. ``options`` are those of `TuningPlan`."""
        from ..engine.curate.tune import Tuning, TuningPlan
        from ..engine.store.decisions import revise

        plan = _planned(TuningPlan, options)
        done = self._ask(lambda llm: Tuning.prepare(llm, plan), options)
        if not (propose or options.get("dry_run")) and done.worth_it:
            revise(self.workspace, done.revision, reason or done.reason)
        return done

    def tune_apply(self, reason: str = "", *, dry_run: bool = False) -> Shown:
        """Prune what the latest `tune` confirmed."""
        from ..engine.curate.stored import prune_proposed

        return Shown(prune_proposed(self.workspace, reason, dry_run=dry_run))

    def tune_vote(self, noise: float = 1.645, reason: str = "", *, dry_run: bool = False, **settings: Any) -> Shown:
        """Prune the sources whose removal improves the vote of single answers, by the latest ``train("sources")``."""
        from ..engine.store.decisions import decide
        from ..engine.trials.sources import tune

        with self._watched() as monitor:
            tuned = tune(self.workspace, self.settings(settings), noise, monitor)
        if tuned.pruned:
            decide(self.workspace, "prune", "source", tuned.pruned, reason or tuned.reason, dry_run=dry_run)
        return Shown(tuned)

    def train(self, part: Part, **options: Any) -> Shown:
        """Learn from the LLM's answers: ``sources`` (which help), ``ranker``, ``topics``, ``fixed`` (one set for all
        queries), ``rows`` (each asked for its own output) or ``datamodel``. ``options`` are those of the part's plan:
        `SourcePlan`, `RankerPlan`, `TopicPlan`, `FixedPlan`, `RowPlan`, `DatamodelPlan`."""
        module, plan, work = TRAINED[part]
        loaded = import_module(f"..engine.{module}", __package__)
        planned = _planned(getattr(loaded, plan), options)
        return self._ask(lambda llm: getattr(loaded, work).prepare(llm, planned), options)

    def calibrate(self, query: Asked | None = None, limit: int | None = None, **options: Any) -> Shown:
        """Answer a query in rounds with uncertainty scores, or without one all of ``split``. ``options`` are those of
        `CalibrationPlan`."""
        from ..engine.papers.calibrate.calibration import Calibration
        from ..engine.papers.calibrate.documents import queries_of
        from ..engine.papers.calibrate.round_runner import CalibrationPlan

        plan = _planned(CalibrationPlan, options)
        if query is None and not plan.split:
            raise UsageError("name the queries to calibrate", 'pool.calibrate("a question"), or split="validation"')
        if plan.split:
            check("split", plan.split, Split)
        split = cast("Split", plan.split)
        asked = queries_of(self.workspace, split, limit) if query is None else [query_of(query)]
        return self._ask(lambda llm: Calibration.prepare(llm, asked, plan), options)

    def watch(
        self, queries: Rows | Path | str, *, map: Mapping[str, str] = {}, ask: bool = False, **options: Any
    ) -> Shown:
        """Compare queries of production with the pool: drift, gaps and, with ``ask``, accuracy. ``map``: columns by
        field, as in `index`; ``options`` are those of `WatchPlan`."""
        from ..engine.watch.watch import AskedWatch, Watch, WatchPlan
        from .kept import passing_rows

        with passing_rows(self.workspace, "watched", queries) as patterns:
            plan = _planned(WatchPlan, options, patterns=patterns, columns=dict(map))
            if most := options.get("max_calls"):
                plan = replace(plan, sample=min(plan.sample, most))
            if ask:
                return self._ask(lambda llm: AskedWatch.prepare(llm, plan), options)
            with self._watched() as monitor:
                return Shown(Watch(self.workspace, self.settings(options), plan, monitor).report())

    def check_llm(self, **settings: Any) -> Shown:
        """Reachability, latency, log-probabilities, scoring and price of the LLM; a few tiny calls."""
        from ..engine.llm.asking import sampling_of
        from ..engine.llm.client import client_for
        from ..engine.llm.probing import check

        with (
            self._watched() as monitor,
            client_for(self.workspace, self.settings(settings), monitor) as llm,
        ):
            return Shown(check(self.workspace, llm.backend, llm.price, monitor, sampling_of(llm.settings)))

    # Decisions.

    def prune(
        self,
        ids: Sequence[str] | str = (),
        *,
        sources: Sequence[str] | str = (),
        below: float | None = None,
        reason: str = "",
        dry_run: bool = False,
        **settings: Any,
    ) -> Shown:
        """Take demonstrations out of the active pool: by id, by source, or sources whose weight is ``below``."""
        used = self.settings(settings)
        if settings and below is None:
            raise UsageError(
                f"{', '.join(settings)} says which answers count, but nothing goes by them", "give below, too"
            )
        if below is not None:
            from ..engine.trials.sources import sources_below

            sources = sources_below(self.workspace, below, used)
            reason = reason or f"weight below {below}"
        return self._decide("prune", ids, sources, reason, dry_run)

    def restore(
        self,
        ids: Sequence[str] | str = (),
        *,
        sources: Sequence[str] | str = (),
        reason: str = "",
        dry_run: bool = False,
    ) -> Shown:
        """Return pruned demonstrations or sources to the active pool."""
        return self._decide("restore", ids, sources, reason, dry_run)

    def keep(self, ids: Sequence[str] | str, *, reason: str = "", dry_run: bool = False) -> Shown:
        """Keep suspected demonstrations: no check lists them again, and those that were pruned return."""
        return self._decide("keep", ids, (), reason, dry_run)

    def prune_found(self, kinds: Sequence[str] | str, *, dry_run: bool = False, **settings: Any) -> Shown | None:
        """Prune what `check` finds of these kinds; None if it finds nothing."""
        from ..engine.checks.decided import prune_found
        from ..engine.checks.results import kinds_named

        checked: CheckReport = self.check(kinds, **settings).result
        change = prune_found(self.workspace, checked, kinds_named(kinds), dry_run=dry_run)
        return Shown(change) if change else None

    def relabel_found(self, sure: float = 0.5, *, dry_run: bool = False, **settings: Any) -> Shown | None:
        """Give rows the outputs that `check` suggests with at least this probability; None if there are none."""
        from ..engine.checks.decided import relabel_found

        change = relabel_found(self.workspace, self.check(**settings).result, sure, dry_run=dry_run)
        return Shown(change) if change else None

    def prune_suspects(self, sure: float = 0.9, reason: str = "", *, dry_run: bool = False, **settings: Any) -> Shown:
        """Prune the rows that hurt with at least this probability, by all evidence."""
        from ..engine.checks.decided import prune_suspects

        return Shown(prune_suspects(self.workspace, self._evidence(settings), sure, reason, dry_run=dry_run))

    def prune_misleading(self, reason: str = "", *, dry_run: bool = False, **settings: Any) -> Shown:
        """Prune the rows that hurt significantly, and more than the median one, by the ledger."""
        from ..engine.checks.decided import prune_misleading

        return Shown(prune_misleading(self.workspace, reason, self._grading(settings), dry_run=dry_run))

    def relabel(
        self, outputs: Mapping[str, str], reason: str = "", *, new: bool = False, dry_run: bool = False
    ) -> Shown:
        """Correct outputs by id; ``new`` allows labels that no row or query has yet."""
        from ..engine.store.decisions import relabel

        return Shown(relabel(self.workspace, outputs, reason, new=new, dry_run=dry_run))

    def undo(self, *, dry_run: bool = False) -> Shown:
        """Undo the latest decision."""
        from ..engine.store.decisions import undo

        return Shown(undo(self.workspace, dry_run=dry_run))

    def redo(self, *, dry_run: bool = False) -> Shown:
        """Bring back the decision that was undone last, unless another was made since."""
        from ..engine.store.decisions import redo

        return Shown(redo(self.workspace, dry_run=dry_run))

    def history(self, limit: int = 50) -> ShownRows:
        """Decisions, latest first."""
        from ..engine.store.decisions import history

        return ShownRows("history", "history", history(self.workspace, limit))

    def save_version(self, name: str, note: str = "", *, force: bool = False) -> Shown:
        """Save the active pool and its corrected outputs under a name."""
        from ..engine.store.versions import save_version, version_detail

        save_version(self.workspace, name, note, force=force)
        return Shown(version_detail(self.workspace, name))

    def versions(self) -> ShownRows:
        """The versions, latest first."""
        from ..engine.store.versions import versions

        return ShownRows("versions", "versions", versions(self.workspace))

    def restore_version(self, name: str, reason: str = "", *, dry_run: bool = False) -> Shown:
        """Make the active pool that of a version again; a decision, which `undo` reverts."""
        from ..engine.store.versions import restore_version

        return Shown(restore_version(self.workspace, name, reason, dry_run=dry_run))

    def delete_version(self, name: str) -> None:
        """Forget a version; the pool stays as it is."""
        from ..engine.store.versions import delete_version

        delete_version(self.workspace, name)

    # What a query gets, and what leaves the workspace.

    def selector(self, method: str | None = None, k: int | None = None, **settings: Any) -> Selector:
        """The selector of a service, with the settings of this pool; the same one until they or the pool change."""
        from ..engine.select.selector import Selector
        from ..engine.store.demonstrations import workspace_fingerprint

        now = self.settings(settings | {"method": method, "k": k}), workspace_fingerprint(self.workspace)
        if self._latest is None or self._latest[0] != now:
            self._latest = now, Selector(self.workspace, settings=now[0])
        return self._latest[1]

    def select(self, query: Asked, **settings: Any) -> list[Selected]:
        """The demonstrations of a query, best first; no LLM is asked."""
        return self.selector(**settings).select(query)

    def prompt(self, query: Asked, **settings: Any) -> Prompt:
        """The prompt of a query, with its demonstrations."""
        return self.selector(**settings).prompt(query)

    def preview(self, query: Asked, *, answer: bool = False, stability: bool = False, **options: Any) -> Shown:
        """The demonstrations of a query and why; with ``answer`` the LLM's answer, with ``stability`` also without each
        of them and in reversed order."""
        from ..engine.select.preview import PreviewWithAnswer, preview

        asked = query_of(query)
        if answer or stability:
            return self._ask(lambda llm: PreviewWithAnswer.prepare(llm, asked, stability=stability), options)
        with self._watched() as monitor:
            return Shown(preview(self.workspace, asked, self.settings(options), monitor=monitor))

    def request(self, query: Asked, *, curl: bool = False, **settings: Any) -> Shown:
        """The request for a query as it would be sent, as a command for a shell with ``curl``; nothing is sent."""
        from ..engine.llm.client import client_for
        from ..engine.select.preview import RequestPreview

        with (
            self._watched() as monitor,
            client_for(self.workspace, self.settings(settings), monitor, dry_run=True) as llm,
        ):
            return Shown(RequestPreview.of(llm, query_of(query)), curl)

    def lock(self, **settings: Any) -> Shown:
        """Lock pool, models and settings, so that a service loads exactly what was judged (`Selector.locked`)."""
        from ..engine.select.lock import lock
        from ..render.terminal import print_json

        locked = lock(self.workspace, self.settings(settings))
        return Shown(locked, draw=partial(print_json, locked.as_json()))

    def export(self, out: Path | str, format: str = "", **options: Any) -> Shown:
        """Write the active pool, or a ``split``, with its manifest; in the format calibration the split is validation,
        if none is given. ``options`` are those of `ExportPlan`."""
        from ..engine.export.corpus import CALIBRATION, ExportPlan, export, format_of, usual_split
        from ..engine.papers.calibrate.finetune import export_calibration

        dry_run = options.pop("dry_run", False)
        options.setdefault("split", usual_split(format))
        set_of = {name: options.pop(name) for name in ("arm", "balance") if name in options}
        settings = self.settings({name: options.pop(name) for name in [*options] if name in KINDS})
        plan = _planned(
            ExportPlan, options, out=Path(out), format=format or format_of(Path(out)), dry_run=dry_run,
            template=replace(settings, llm="offline").prompt_template,  # what a program is given is no turn of a chat
        )  # fmt: skip
        if plan.format == CALIBRATION:
            return Shown(export_calibration(self.workspace, plan, settings, **set_of))
        with self._watched() as monitor:
            return Shown(export(self.workspace, plan, monitor))

    def report(self, out: Path | str, title: str = "", *, force: bool = False) -> Path:
        """Write the page for colleagues, ``OUT.html`` or ``OUT.md``: before and after, what was taken out and why."""
        from ..engine.report.gather import gather
        from ..render.report.write import check_page, write_page
        from ..render.suggested import suggesting

        page = Path(out)
        check_page(page, force)
        with suggesting(other_workspace(self.workspace.path)):
            write_page(page, gather(self.workspace, self.settings(), title))
        return page

    def diff(self, before: Path | str, after: Path | str = "") -> Shown:
        """Rows added, removed and changed between two versions or files, or since one of them."""
        from ..engine.export.diff import diff, entries_of, entries_of_pool

        opened: Callable[[], Workspace] = lambda: self.workspace  # noqa: E731
        now = entries_of(str(after), opened) if after else entries_of_pool(self.workspace)
        return Shown(diff(entries_of(str(before), opened), now), 20)

    def settings(self, settings: Mapping[str, Any] = {}) -> Settings:
        """The settings that hold: those of the configuration, of this object, and these."""
        given = self.given | {name: value for name, value in settings.items() if value is not None}
        return resolve(self.workspace.path, given).settings

    def __repr__(self) -> str:
        return repr(self.status())

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def _grading(self, settings: Mapping[str, Any]) -> list[str]:
        from ..engine.llm.graded import grading_set

        return grading_set(self.workspace, self.settings(settings))

    def _evidence(self, settings: Mapping[str, Any]) -> PoolEvidence:
        from ..engine.checks.active import ActivePool
        from ..engine.checks.evidence import row_evidence

        with self._watched() as monitor:
            return row_evidence(ActivePool(self.workspace, self.settings(settings), monitor))

    def _decide(
        self,
        action: Literal["prune", "restore", "keep"],
        ids: Sequence[str] | str,
        sources: Sequence[str] | str,
        reason: str,
        dry_run: bool,
    ) -> Shown:
        from ..engine.store.decisions import decide

        rows, whole = ([given] if isinstance(given, str) else list(given) for given in (ids, sources))
        if bool(rows) == bool(whole):
            by_source = "" if action == "keep" else ", or sources=[NAME]"
            raise UsageError(f"name what to {action}", f"pool.{action}([ID]){by_source}")
        scope: Literal["source", "demonstration"] = "source" if whole else "demonstration"
        return Shown(decide(self.workspace, action, scope, rows or whole, reason, dry_run=dry_run))

    def _ask(self, ready: Callable[[LLMClient], PaidWork[Any]], options: Mapping[str, Any]) -> Shown:
        """Prepare the work and carry it out within the limits in ``options``, whose others are settings; a dry run
        returns the cost."""
        from ..engine.llm.asking import foreseen
        from ..engine.llm.client import within_budget
        from ..engine.llm.spec import parse
        from ..render.costs import plan_rows
        from ..render.tables import show_table

        limits: dict[str, Any] = {name: options.get(name) for name in LIMITS}
        settings = self.settings({name: value for name, value in options.items() if name not in LIMITS})
        wanted, unlimited = bool(limits["dry_run"]), limits["max_calls"] is None and limits["max_cost"] is None
        limits["dry_run"] = wanted or (unlimited and not parse(settings.llm).local)  # then not even a probe is sent
        with (
            self._watched() as monitor,
            within_budget(self.workspace, settings, monitor, **limits) as (llm, budget),
        ):
            work = ready(llm)
            if limits["dry_run"]:
                cost = foreseen(work.cost(), self.workspace, settings)
                if wanted:
                    return Shown(cost, draw=partial(show_table, ["", ""], plan_rows(cost)))
                asked = f"{cost.plan.to_ask:,} calls to {cost.destination}"
                raise UsageError(f"no limit is set, and this asks {asked}", "give max_calls or max_cost (US dollars)")
            return Shown(work.ask(budget))

    @contextmanager
    def _watched(self) -> Iterator[Monitor]:
        """Progress, in a notebook as its own bars, and a clean end by Ctrl-C."""
        from ..render.progress import Bars, Narrator, in_notebook
        from ..render.suggested import suggesting

        told = suggesting(other_workspace(self.workspace.path))
        with told, stoppable() as cancel, (Bars if in_notebook() else Narrator)(not self.progress) as report:
            yield Monitor(report, cancel)


def _module(name: str) -> Any:
    from ..engine.base.packages import require

    require("frames", name)
    return import_module(name)


def _of_columns(table: Callable[[dict[str, list[Any]]], Any], rows: Sequence[Mapping[str, Any]]) -> Any:
    """The ``table`` of the rows by column: libraries that are given rows take the columns of the first for all. Raises
    `UsageError` if values of a field have no common type, as a table of pyarrow needs."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        return table(columns)
    except (ValueError, TypeError, OverflowError) as error:
        kinds = {name: {*map(type, values)} - {type(None)} for name, values in columns.items()}
        mixed = ", ".join(name for name, some in kinds.items() if len(some) > 1 and some != {int, float}) or "a field"
        fix = "pool.to_pandas() keeps values as they are; or make them one type in the file, and index it again"
        raise UsageError(f"{mixed} cannot be a column of one type: {error}", fix) from error


def _planned(plan: type[R], options: dict[str, Any], **given: Any) -> R:
    """The plan of the ``options`` that are its fields, which are taken out of them, and of what is ``given``. Raises
    `UsageError` for an option that is neither a field nor a setting."""
    kinds = get_type_hints(plan)
    own = kinds.keys() - given.keys() - {*LIMITS}
    taken = {name: options.pop(name) for name in [*options] if name in own}
    for name in options.keys() - KINDS.keys() - {*LIMITS}:
        near = did_you_mean(name, [*own, *KINDS, *LIMITS])
        raise UsageError(
            f"unknown option '{name}'{near}", f"{plan.__name__} has {', '.join(sorted(own))}; or a setting"
        )
    for field in fields(plan):  # type: ignore[arg-type]
        value = taken.get(field.name)
        if isinstance(field.default, tuple) and isinstance(value, str):  # one text is a tuple of one
            taken[field.name] = (value,)
        elif isinstance(value, PathLike):
            taken[field.name] = Path(value) if field.type == "Path | None" else fspath(value)
    taken |= {name: check(name, value, kinds[name]) for name, value in taken.items()}
    given |= {name: check(name, value, kinds[name]) for name, value in given.items()}
    for field in fields(plan):  # type: ignore[arg-type]
        if isinstance(field.default, tuple) and field.name in taken:
            taken[field.name] = tuple(taken[field.name])
        elif field.default is MISSING and given.get(field.name) == ():
            raise UsageError(f"no {field.name} are given", "name at least one")
    return plan(**taken, **given)
