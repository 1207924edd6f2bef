"""Gathering a report from a workspace: nothing is asked, trained, encoded or stored.

What was decided (rows taken out, by reason, and outputs corrected, with examples), and how to do it again: the commands
behind the stored runs, the decisions, the indexed files and their digests.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..base.code import program_in
from ..base.contract import from_json
from ..base.errors import CurateError, UsageError
from ..base.packages import VERSION, lacking
from ..baselines.datamodel import DatamodelPlan
from ..checks.ask import RowPlan
from ..curate.curation import CurationPlan
from ..curate.fixed import FixedPlan
from ..curate.plan import KIND as CURATE
from ..curate.results import KIND as TUNE
from ..curate.tune import TuningPlan
from ..evaluate.compare import EvaluationPlan
from ..evaluate.results import AS_INDEXED
from ..evaluate.results import KIND as EVALUATE
from ..export.corpus import content_hash
from ..http.address import is_asked_at
from ..index.readers.files import STDIN
from ..llm.asking import price_set
from ..llm.budget import Price
from ..llm.graded import grading_set
from ..llm.marks import GradedBy
from ..llm.spec import is_stand_in, recorded
from ..papers.calibrate import stored as rounds
from ..papers.calibrate import tuning
from ..papers.calibrate.lora import Recipe
from ..papers.calibrate.round_runner import CalibrationPlan
from ..papers.calibrate.tuning import FineTuningPlan
from ..papers.ranker.train import RankerPlan
from ..papers.topics import stored as topics
from ..papers.topics.report import Gap, Survey
from ..papers.topics.train import TopicPlan
from ..select.lock import Lock, read_lock
from ..store import trials
from ..store.decisions import DecisionBatch, history
from ..store.demonstrations import INDEX, task_of
from ..store.overview import Overview, overview
from ..store.runs import Run, runs
from ..store.settings import Settings
from ..store.trials import source_summaries
from ..store.workspace import Workspace
from ..trials import fixed
from ..trials.ranker import DEFAULT_INPUTS
from ..trials.sources import SourcePlan
from .measured import confirmed, curations, evaluated, parts_of_curations, told
from .results import (
    CorrectedRow,
    CorrectedRows,
    Corrections,
    Decision,
    Excerpt,
    FileLine,
    GapLine,
    LabelChange,
    LLMCost,
    PoolCounts,
    PoolReport,
    Removal,
    RemovedRow,
    Reproduction,
    SourceChange,
    Step,
    TopicLine,
    TopicsPart,
)
from .road import server_option

NAMED = 5
"""Targets of a decision that are named."""

PACKAGES = ("duckdb", "numpy", "openai", "tokenizers", "torch", "transformers")

_SHARED = {field.name: field.default for field in fields(Settings) if field.metadata}


def reproduction(
    workspace: Workspace, done: Sequence[Run], history: Sequence[DecisionBatch], base_url: str
) -> Reproduction:
    """Everything that is needed to do it again, from the stored runs and the history. ``base_url``: the setting."""
    with workspace.read() as con:
        files = con.execute("SELECT path, reading, rows, digest FROM files ORDER BY path").fetchall()
        splits: Mapping[str, int] = dict(
            con.execute("SELECT split, count(*) FROM demonstrations WHERE retired_at IS NULL GROUP BY split").fetchall()
        )
    readings = [(_typed(workspace.path.parent, path), json.loads(reading)) for path, reading, *_ in files]
    lines = tuple(
        FileLine(path, reading["split"] or "pool", rows, digest)
        for (_, reading), (path, _, rows, digest) in zip(readings, files, strict=True)
    )
    parts = parts_of_curations(done)
    steps = tuple(_step(workspace, run, parts.get(run.run), splits, base_url) for run in done)
    decisions = tuple(_decision(entry) for entry in history)
    return Reproduction(_index(readings), steps, decisions, lines, content_hash(workspace), _versions())


def _typed(home: Path, path: str) -> str:
    """A file that a workspace in the folder ``home`` knows as ``path``, for a command that is given here."""
    if path == STDIN or "://" in path:
        return path
    file, here = home / path, Path.cwd()
    name = str(file.relative_to(here) if file.is_relative_to(here) else file)
    return f"./{name}" if name.startswith("-") else name  # it would be an option


def _index(readings: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The command that reads all files; one after another where options of all rows differ: source, labels, share held
    out."""
    alike = all(reading["columns"] == readings[0][1]["columns"] for _, reading in readings)
    commands: dict[tuple[str, ...], list[str]] = {}
    for path, reading in sorted(readings, key=lambda file: file[1]["split"] is not None):
        split, query = reading["split"], reading.get("query")
        given = (reading["source"] or "", ",".join(reading.get("labels", ())))
        held = [str(reading[name] or "") for name in ("validation_fraction", "test_fraction")]
        # none of the queries is held out: they are read with files of the pool, if there are some of these options
        key = next((made for made in commands if split and made[:2] == given), (*given, *held))
        words = commands.setdefault(key, [])
        words += [*([f"--{split}"] if split else []), f"sql:{query}" if query else path]
        mapping = [
            f"{name}={column}" if alike else f"{path}::{name}={column}" for name, column in reading["columns"].items()
        ]
        words += [word for one in mapping if one not in words for word in ("--map", one)]
    names = ("--source", "--labels", "--validation-fraction", "--test-fraction")
    return " && ".join(
        _line(["index", *words, *(word for option in zip(names, key, strict=True) for word in _option(*option))])
        for key, words in commands.items()
    )


def _step(workspace: Workspace, run: Run, part_of: int | None, splits: Mapping[str, int], base_url: str) -> Step:
    words, had = _WORDS.get(run.kind, _plain)(run), _flat(run.settings)
    if run.kind in (TUNE, EVALUATE, AS_INDEXED):  # of other runs the limit is stored
        asked, there = run.settings.get("queries"), splits.get(run.settings.get("split", "validation"))
        words += ["--limit", str(asked)] if isinstance(asked, int) and there is not None and asked < there else []
    if "--llm" in words:
        words += server_option(workspace, run.llm, str(had.get("base_url") or ""), base_url)
    return Step(run.run, run.kind, run.llm, _line(words), had, part_of, told(run.started_at))


def _flat(had: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without objects among them: the names of the inner ones do not contradict the outer ones."""
    found = {key: one for value in had.values() if isinstance(value, Mapping) for key, one in value.items()}
    return found | {name: value for name, value in had.items() if not isinstance(value, Mapping)}


def _curate(run: Run) -> list[str]:
    had = run.settings
    if answer := had.get("answer"):
        return ["curate", f"--{answer}"]
    usual = CurationPlan(max_calls=0)
    plan = _planned(had, usual, "noise", "relabel", "propose", "hold", one_step="--next")
    limits = _options(had, max_calls=None, max_cost=None)
    return ["curate", *limits, *_serving(had), *plan, *_graded(had), *_llm(run)]


def _tune(run: Run) -> list[str]:
    had = run.settings
    return ["tune", *_serving(had), *_planned(had, TuningPlan(), "noise", "relabel"), *_shared(had), *_llm(run)]


def _evaluate(run: Run) -> list[str]:
    had, usual = run.settings, EvaluationPlan(methods=())
    split, shared = str(had.get("split", usual.split)), had.get("settings", {})
    return [
        "evaluate", *_option("-m", ",".join(run.summary.get("methods", ()))), *_options(had, k=None), "--split", split,
        *_planned(had, usual, "seeds", "as_indexed"), *_options(shared, order=_SHARED["order"]), *_shared(shared),
        *_llm(run),
    ]  # fmt: skip


def _training(plan: Callable[[], object], *names: str, **spelt: str) -> Callable[[Run], list[str]]:
    """The words of a run of ``train``; the options are those of `_planned`."""

    def words(run: Run) -> list[str]:
        had = run.settings
        shared = _options(had, k=None, order=_SHARED["order"], seed=_SHARED["seed"])
        return [*_named(run), *_planned(had, plan(), *names, **spelt), *shared, *_graded(had), *_llm(run)]

    return words


def _ranker(run: Run) -> list[str]:
    had = run.settings
    if "imported_from" in had:
        return ["train", "ranker", "--from", str(had["imported_from"])]
    spelt = {"ranking": "--candidates", "candidates": "--preselect"}
    inputs = _planned(had, DEFAULT_INPUTS, "sees", "temperature", "start", **spelt)
    unseen = [] if had.get("sources", True) else ["--no-sources"]
    return ["train", "ranker", *_TRAIN_RANKER(run)[2:], *inputs, *unseen]  # promptpg is a method of it


_TRAIN_RANKER = _training(
    RankerPlan, "epochs", "trials", "batch", "rate", "credit", "threshold", "held_out", "patience", "limit",
    method="-m",
)  # fmt: skip


def _fine_tuning(run: Run) -> list[str]:
    learnt = _planned(run.settings, FineTuningPlan(recipe=Recipe()), "on", "split", "arm")
    return [*_training(Recipe, "rate", "epochs", "batch", "rank")(run), *learnt]


def _topic_training(run: Run) -> list[str]:
    had, by = run.settings, run.settings.get("labelled_by")
    binary = [] if had.get("soft", True) else ["--labels", "binary"]
    chosen = ["--choose-lambda"] if had.get("lambdas") else []
    return [*_TRAIN_TOPICS(run), *binary, *chosen, *_option("--labelling-llm", by, run.llm)]


_TRAIN_TOPICS = _training(
    TopicPlan, "size", "llm_topics", "sample", "questions", "epochs", "rate", "as_printed", "nouns",
    topics_file="--topics", core_file="--core-topics", cosine="--lambda",
)  # fmt: skip


def _calibrate(run: Run) -> list[str]:
    """A run of a split; one of a single query does not store its text."""
    had, usual = run.settings, CalibrationPlan()
    stops = ["--stop-early"] if had.get("settle") is not None else []
    plan = _planned(
        had, usual, "over", "above", "until_correct", "by", "attention", rounds="-r", estimator="--uncertainty"
    )
    arms = _option("--arms", ",".join(had.get("arms") or ()), ",".join(usual.arms))
    return [
        *_named(run), "--split", str(had.get("split") or "validation"), *plan, *stops, *arms, *_serving(had),
        *_options(had, document_tokens=None, seed=_SHARED["seed"]), *_graded(had), *_llm(run),
    ]  # fmt: skip


def _plain(run: Run) -> list[str]:
    return [*_named(run), *_llm(run)]


def _named(run: Run) -> list[str]:
    """A command below a group is stored with a dash or a space between the two."""
    return re.split("[- ]", run.kind, maxsplit=1)


_WORDS: Mapping[str, Callable[[Run], list[str]]] = {
    CURATE: _curate,
    TUNE: _tune,
    EVALUATE: _evaluate,
    AS_INDEXED: _evaluate,
    trials.KIND: _training(SourcePlan, "depth", "ranking", "estimator", "rate", "epochs", "epsilon", "delta", "limit"),
    trials.ROWS: _training(RowPlan, "ranking", "limit", "suspects_first"),
    trials.PROMPTS: _training(DatamodelPlan, "prompts", "candidates", "ranking", "limit"),
    fixed.KIND: _training(FixedPlan, "sets", "noise", "limit"),
    tuning.KIND: _fine_tuning,
    trials.RANKER: _ranker,
    "train-promptpg": _ranker,
    topics.KIND: _topic_training,
    rounds.KIND: _calibrate,
    f"{rounds.KIND} keys": _calibrate,
}
"""By kind of run, the words of its command. What is not given by an option is in the run's settings."""


def _serving(had: Mapping[str, Any]) -> list[str]:
    return [*_option("-m", had.get("method")), *_options(had, k=None, order=_SHARED["order"])]


def _shared(had: Mapping[str, Any]) -> list[str]:
    """Options for settings of the LLM and of the grader that differ from their defaults."""
    names = (
        "answers",
        "seed",
        "template",
        "prompt_format",
        "answer_prefix",
        "metric",
        "read",
        "least",
        "judge_llm",
        "judge_prompt",
    )
    return _options(had, **{name: _SHARED[name] for name in names})


def _graded(had: Mapping[str, Any]) -> list[str]:
    """Options of the grader of a run that does not store all settings."""
    return from_json(GradedBy, had["graded_by"]).options if "graded_by" in had else []


def _llm(run: Run) -> list[str]:
    return ["--llm", run.llm] if run.llm else []


def _planned(had: Mapping[str, Any], usual: object, *names: str, **spelt: str) -> list[str]:
    """Options of a command where its plan was another than the ``usual`` one; ``spelt``: of other names than fields."""
    options = {name: _dashed(name) for name in names} | spelt
    return [word for name, option in options.items() for word in _option(option, had.get(name), getattr(usual, name))]


def _options(had: Mapping[str, Any], **defaults: Any) -> list[str]:
    """Options of these names that were given."""
    return [word for name, default in defaults.items() for word in _option(_dashed(name), had.get(name), default)]


def _dashed(name: str) -> str:
    """As an option; one of a letter has one dash."""
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def _option(name: str, value: Any, default: Any = None) -> list[str]:
    """An option and its value, or the switch that it is; nothing where that is the default."""
    if value in (None, "", default):
        return []
    if isinstance(value, bool):
        return [name if value else f"--no-{name[2:]}"]
    return [name, f"{value:.12g}" if isinstance(value, float) else str(value)]


def _line(words: Sequence[str]) -> str:
    return shlex.join(["icl-curate", *words])


def _decision(entry: DecisionBatch) -> Decision:
    return Decision(
        entry.batch, told(entry.decided_at), entry.who, entry.action, entry.scope, len(entry.targets),
        entry.targets[:NAMED], entry.reason, entry.undone,
    )  # fmt: skip


def _versions() -> dict[str, str]:
    versions = {"icl-curate": VERSION, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


SHOWN = 300
"""Characters of a text in a report: a row may hold a megabyte."""

EXAMPLES = 5
"""Examples of each reason, from as many sources as there are."""

MOST_REASONS, MOST_CHANGES, MOST_CORRECTED = 40, 15, 10

_ABOUT = """
    CASE WHEN starts_with(d.reason, 'check: ') THEN regexp_extract(d.reason, '^check: [a-z]+')
         WHEN starts_with(d.reason, 'suspect: ') THEN 'suspect'
         ELSE d.reason END
"""
"""Reasons that name a row's own figures, without these: rows of one kind are one group."""

_TAKEN_OUT = f"""
    CREATE TEMP TABLE taken_out AS
    WITH said AS (
        SELECT p.row, d.seq FROM pool p JOIN decisions d ON d.scope = 'source' AND d.target = p.source
         WHERE d.batch NOT IN (FROM undone)
        UNION ALL
        SELECT p.row, d.seq FROM pool p JOIN decisions d ON d.scope = 'demonstration' AND d.target = p.id
         WHERE d.batch NOT IN (FROM undone)
    ), last AS (
        SELECT row, max(seq) AS seq FROM said GROUP BY row
    )
    SELECT l.row, d.batch, d.decided_at, d.who, d.scope, d.reason, {_ABOUT} AS about
      FROM pruned JOIN last l USING (row) JOIN decisions d USING (seq)
"""


def removals(workspace: Workspace) -> tuple[Removal, ...]:
    """Rows taken out, by decision and reason, most rows first."""
    with workspace.read() as con:
        con.execute(_TAKEN_OUT)
        groups = con.execute(
            """
            SELECT batch, about, scope, any_value(decided_at), any_value(who), count(*) FROM taken_out
             GROUP BY batch, about, scope ORDER BY count(*) DESC, batch, about LIMIT ?
            """,
            [MOST_REASONS],
        ).fetchall()
        sources: dict[tuple[Any, ...], dict[str, int]] = {}
        for *key, source, rows in con.execute(
            """
            SELECT batch, about, scope, source, count(*) FROM taken_out JOIN pool USING (row)
             GROUP BY ALL ORDER BY count(*) DESC, source
            """
        ).fetchall():
            sources.setdefault(tuple(key), {})[source] = rows
        examples: dict[tuple[Any, ...], list[RemovedRow]] = {}
        for *key, name, source, text, length, output, size, reason in con.execute(
            # each source once before any comes twice, and rows of one source in an order that is not that of its file
            f"""
            WITH placed AS (
                SELECT t.*, p.id, p.source, p.input, p.output, t.row * 2654435761 % 4294967296 AS draw,
                       row_number() OVER (PARTITION BY batch, about, t.scope, source ORDER BY draw, t.row) AS turn
                  FROM taken_out t JOIN pool p USING (row)
            )
            SELECT batch, about, scope, id, source, left(input, {SHOWN}), length(input), left(output, {SHOWN}),
                   length(output), reason
              FROM placed
           QUALIFY row_number() OVER (PARTITION BY batch, about, scope ORDER BY turn, draw, row) <= {EXAMPLES}
             ORDER BY turn, draw, row
            """
        ).fetchall():
            row = RemovedRow(name, source, Excerpt(text, length), Excerpt(output, size), reason)
            examples.setdefault(tuple(key), []).append(row)
        con.execute("DROP TABLE taken_out")
    return tuple(
        Removal(
            batch, told(when), who, scope, about, rows,
            sources[batch, about, scope], tuple(examples[batch, about, scope]),
        )
        for batch, about, scope, when, who, rows in groups
    )  # fmt: skip


def corrections(workspace: Workspace) -> Corrections:
    """Corrected outputs, with the decision that applies to each."""
    with workspace.read() as con:
        con.execute(
            """
            CREATE TEMP TABLE mended AS
            SELECT p.row, p.id, p.source, p.input, r.output AS before, p.output AS after
              FROM outputs_as_read r JOIN active p USING (row) WHERE p.output <> r.output
            """
        )
        count = con.execute("SELECT count(*) FROM mended").fetchone()
        changes = con.execute(
            f"""
            SELECT left(before, {SHOWN}), any_value(length(before)), left(after, {SHOWN}), any_value(length(after)),
                   count(*)
              FROM mended GROUP BY before, after ORDER BY count(*) DESC, before, after LIMIT {MOST_CHANGES}
            """
        ).fetchall()
        rows = con.execute(
            f"""
            WITH last AS (
                SELECT m.row, max(seq) AS seq FROM mended m JOIN new_outputs n USING (row) JOIN decisions d USING (seq)
                 WHERE d.batch NOT IN (FROM undone) GROUP BY m.row
            )
            SELECT m.id, m.source, left(m.input, {SHOWN}), length(m.input), left(m.before, {SHOWN}), length(m.before),
                   left(m.after, {SHOWN}), length(m.after), d.batch, d.decided_at, d.who, d.reason
              FROM mended m LEFT JOIN last l USING (row) LEFT JOIN decisions d USING (seq)
             ORDER BY m.row LIMIT {MOST_CORRECTED}
            """
        ).fetchall()
        con.execute("DROP TABLE mended")
    examples = tuple(
        CorrectedRow(
            name, source, Excerpt(text, size), Excerpt(before, was), Excerpt(after, now),
            batch, told(when), who or "", reason or "",
        )
        for name, source, text, size, before, was, after, now, batch, when, who, reason in rows
    )  # fmt: skip
    found = tuple(CorrectedRows(Excerpt(a, m), Excerpt(b, n), rows) for a, m, b, n, rows in changes)
    return Corrections(int(count[0]) if count else 0, found, examples)


def labels(workspace: Workspace) -> tuple[LabelChange, ...]:
    """Rows by label before and after, the most frequent first; none if the answers are not labels."""
    if task_of(workspace).kind != "labels":
        return ()
    with workspace.read() as con:
        rows = con.execute(
            """
            WITH before AS (
                SELECT coalesce(r.output, p.output) AS label, count(*) AS rows
                  FROM pool p LEFT JOIN outputs_as_read r USING (row) GROUP BY 1
            ), after AS (SELECT output AS label, count(*) AS rows FROM active GROUP BY 1)
            SELECT label, coalesce(b.rows, 0), coalesce(a.rows, 0) FROM before b FULL JOIN after a USING (label)
             ORDER BY 2 DESC, 1
            """
        ).fetchall()
    return tuple(LabelChange(*row) for row in rows)


TOPICS, GAPS = 15, 10
"""Maximum topics and gaps in a report."""

ALL = 1 << 30


def gather(workspace: Workspace, settings: Settings, title: str = "") -> PoolReport:
    """The report on a workspace as it is now; ``settings`` name the LLM whose topics and prices count. Raises
    `UsageError` if nothing was indexed yet."""
    seen = overview(workspace)
    if not seen.pool + seen.retired:
        raise UsageError("nothing is indexed yet", INDEX)
    done = [run for run in reversed(runs(workspace, limit=ALL)) if run.status == "done"]
    entries = history(workspace)
    methods, compared = evaluated(workspace, done)
    summaries = source_summaries(workspace, grading_set(workspace, settings))
    corrected = corrections(workspace)
    topics, note = _topics(workspace, settings, seen)
    return PoolReport(
        title=title or "What was done to the pool of demonstrations",
        made_at=told(datetime.now(UTC).replace(tzinfo=None)),
        workspace="/".join(workspace.path.parts[-2:]),
        counts=_counts(seen, corrected.rows),
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
        reproduction=reproduction(workspace, done, entries, settings.base_url),
        notes=(note,) if note else (),
        lock=_lock(workspace),
    )


def _lock(workspace: Workspace) -> Lock | None:
    with suppress(UsageError):
        return read_lock(workspace)
    return None


def _counts(seen: Overview, corrected: int) -> PoolCounts:
    return PoolCounts(
        pool=seen.pool,
        active=seen.active,
        pruned=seen.pruned,
        corrected=corrected,
        retired=seen.retired,
        sources=seen.sources,
        active_sources=seen.sources - seen.sources_pruned,
        validation=seen.validation,
        test=seen.test,
        repeats=sum(seen.duplicates.values()),
        leaks=seen.leaks,
        skipped=seen.skipped,
        task=seen.task,
        encoder=seen.encoder,
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
    """The price in the settings, if they name this LLM at its server, else that of its latest run that has one; that of
    a program, which may ask several LLMs, is not known."""
    spec, _, server = llm.partition(" at ")
    if program_in(spec):
        return None
    if settings.llm == spec and is_asked_at(server, spec, settings.base_url) and (price := price_set(settings)):
        return price
    for run in reversed(done):
        had = _flat(run.settings)
        there = run.llm == spec and had.get("base_url") in (None, "", server)
        if there and had.get("price_in") is not None and had.get("price_out") is not None:
            return Price(float(had["price_in"]), float(had["price_out"]))
    return None
