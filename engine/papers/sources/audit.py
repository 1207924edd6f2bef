"""Source importance from recorded retrievals, without LLM or workspace.

A log has one question per row (JSONL, or Parquet with the same columns): ``question``, ``correct_answers`` (list),
``retrieved_answers`` (list, best first: the answer given with each retrieved item alone) and ``retrieved_sources`` or
``retrieved_websites`` (list). The audited system answers by majority vote of the first k; ties go to the answer that
comes first.

Imputation (paper 003, table 2) is the same with the missing values of a table: a row may have ``record`` (an object)
and ``column`` in place of ``question``, and values are compared, and vote, without case, articles and punctuation
(numbers as numbers).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ...base.arrays import Float64s
from ...base.contract import OPTIONAL, Reported
from ...base.errors import UsageError
from ...base.files import open_regular
from ...base.progress import SILENT, Monitor
from ...evaluate.statistics import alike_interval
from ...index.readers.formats import read_jsonl
from ...index.readers.parquet_format import read_parquet
from ...index.readers.records import BadRecord, decoded_lines
from ...pool.answers import normalise
from ...pool.open_answers import answer_key, number_of
from ...trials.estimators import reliability, reliability_error
from ...trials.lists import RankedLists, ranked_lists
from ...trials.results import Use
from ...trials.uses import NOISE, AppliedSetting, SettingChoice, choose, estimators_named, outcomes
from ...trials.votes import vote
from .estimators import EPOCHS, RATE, multilinear

# Labels under which country registries sell names one level down (co.uk, com.au, ac.jp …). The full list of public
# suffixes has thousands of entries and changes weekly; these are the labels common to most such registries, and
# additions of some large ones. Of the 2,657 websites in the wikifact logs one differs from the full list (of a state of
# Australia, below gov.au): not enough for a package that brings the list and an HTTP client to renew it (tldextract).
# A label that is also a well-known site somewhere (web.de, id.me) is listed with its country only.
_CUSTOMARY = frozenset(
    {"ac", "co", "com", "ed", "edu", "go", "gob", "gouv", "gov", "govt", "gub", "mil", "ne", "net", "nom", "or", "org"}
)
_OWN = {
    "au": {"asn", "id"},
    "br": {"adv", "art", "blog", "eco", "eng", "ind", "inf", "jus", "leg", "med", "mp", "pro"},
    "ca": {"gc"},
    "id": {"desa", "my", "sch", "web"},
    "in": {"firm", "gen", "ind", "nic", "res"},
    "nz": {"cri", "gen", "geek", "iwi", "kiwi", "maori", "school"},
    "tw": {"idv"},
    "ua": {"in"},
    "uk": {"ltd", "me", "nhs", "plc", "police", "sch"},
    "za": {"law", "school", "web"},
}
_SCHEME = re.compile(r"^[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
_ADDRESS = re.compile(r"^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]+\])$", re.IGNORECASE)


def registered_domain(address: str) -> str:
    """``https://news.bbc.co.uk/x`` → ``bbc.co.uk``; an IP address, or anything that is not a host name, is returned
    unchanged.

    A country-code domain is assumed to sell names at the third level if its second label is a usual one (``co``,
    ``com``, ``ac`` …). Private suffixes (github.io, blogspot.com) count as the domain of their owner.
    """
    host = re.split(r"[/?#\\]", _SCHEME.sub("", address.strip()).removeprefix("//"), maxsplit=1)[0]
    host = host.rpartition("@")[2].lower()
    if not host.startswith("["):
        host = host.partition(":")[0]
    host = host.rstrip(".")
    labels = host.split(".")
    if len(labels) < 2 or _ADDRESS.match(host) or not all(labels) or " " in host:
        return host if _ADDRESS.match(host) else address
    keep = 3 if len(labels) > 2 and _sells_below(labels[-2], labels[-1]) else 2
    return ".".join(labels[-keep:])


def _sells_below(second: str, top: str) -> bool:
    return len(top) == 2 and (second in _CUSTOMARY or second in _OWN.get(top, ()))


GroupBy = Literal["auto", "source", "domain"]
AuditTask = Literal["questions", "imputation"]
_ANSWERS, _CORRECT, _SOURCES = "retrieved_answers", "correct_answers", ("retrieved_sources", "retrieved_websites")
_ASKED = ("question", "record", "column")
_FILE = "give a .jsonl or .parquet file of recorded retrievals"
_SHAPE = (
    'a row has "question", "correct_answers", "retrieved_answers" and "retrieved_sources" (or "retrieved_websites")'
)


@dataclass(frozen=True, slots=True)
class Log:
    """Recorded retrievals: row n retrieved ``answers[n]`` from ``sources[n]``; ``right[n]`` marks the correct ones;
    ``questions[n]`` tells it from other rows: its question or missing value, else all that is recorded."""

    answers: list[list[str]]
    documents: list[list[str]]
    sources: list[list[str]]
    right: list[list[float]]
    questions: list[str]


@dataclass(frozen=True, slots=True)
class PairedGain:
    """A paired difference to keeping everything, with its 95 % interval."""

    mean: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class EstimatorResult:
    """One way of using the sources, by a setting, or none. Accuracies are shares of right answers; those of a test log
    are None without one."""

    validation_accuracy: float
    test_accuracy: float | None
    pruned: list[str]
    test_gain: PairedGain | None = field(default=None, metadata=OPTIONAL)
    estimator: str | None = field(default=None, metadata=OPTIONAL)
    use: Use | None = field(default=None, metadata=OPTIONAL)
    voters: int | None = field(default=None, metadata=OPTIONAL)
    decay: float | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source in the validation log: ``scores`` by estimator, ``reliability`` with its standard error."""

    source: str
    hits: int
    scores: dict[str, float]
    reliability: float
    reliability_error: float
    kept: bool


@dataclass(frozen=True, slots=True)
class AuditReport(Reported):
    """The result of an audit: the contract of ``audit --json``.

    validation, test: numbers of questions (test None without a test log). baseline: every source kept, k voters.
    chosen: the setting chosen on validation only; equal to the baseline if none is significantly better, and ``note``
    then says so. gain, gain_error: cross-fitted on validation, see `uses.SettingChoice`.
    """

    kind = "audit"
    task: AuditTask
    k: int
    validation: int
    test: int | None
    baseline: EstimatorResult
    estimators: dict[str, EstimatorResult]
    chosen: EstimatorResult
    gain: float
    gain_error: float
    sources: list[SourceRow]
    notes: list[str]


def audit(
    log: str | Path,
    test: str | Path | None = None,
    k: int = 10,
    *,
    group_by: GroupBy = "auto",
    uses: Sequence[Use] = ("prune", "vote", "reweight"),
    task: AuditTask = "questions",
    rate: float = RATE,
    epochs: int = EPOCHS,
    noise: float = NOISE,
    seed: int = 0,
    monitor: Monitor = SILENT,
) -> AuditReport:
    """Which sources of a recorded log help and which hurt, and which to drop.

    log: questions to choose on; test: questions to confirm on, never used for choosing.
    k: voters of the audited system.
    group_by: "domain" uses the registered domain of each address as its source, "source" uses it as it is, "auto"
      is "domain" for ``retrieved_websites``.
    noise: how many standard errors a choice must gain to be made; fewer is bolder.
    task: "imputation" for the missing values of a table, which are compared without case, articles and punctuation.
    rate, epochs: of the ascent of ``multilinear``.

    Raises UsageError for a file that cannot be read as a log, and for a log that is too small to choose on.
    """
    if unknown := [use for use in uses if use not in get_args(Use)]:
        raise UsageError(f"unknown use: {', '.join(unknown)}", f"choose from {', '.join(get_args(Use))}")
    if k < 1:
        raise UsageError(f"k must be at least 1, not {k}", "give the number of voting answers: -k 10")
    as_values = task == "imputation"
    validation_log = read_log(log, group_by=group_by, normalised=as_values)
    test_log = None if test is None else read_log(test, group_by=group_by, normalised=as_values)
    names = sorted({name for part in (validation_log, test_log) if part for row in part.sources for name in row})
    validation = to_lists(validation_log, names)
    tested = None if test_log is None else to_lists(test_log, names)
    learners = estimators_named(None)
    if "multilinear" in learners:
        learners["multilinear"] = partial(multilinear, rate=rate, epochs=epochs)
    choice = choose(
        validation, k, estimators=learners, uses=uses, noise=noise, seed=seed, monitor=monitor,
    )  # fmt: skip
    found, chosen_on = _report(task, validation, tested, k, choice), set(validation_log.questions)
    if test_log and (known := sum(question in chosen_on for question in test_log.questions)):
        note = f"the choice was also made on {known:,} of {len(test_log.questions):,} test questions"
        found = replace(found, notes=[*found.notes, f"{note}: their figures are too good; leave them out of one log"])
    return found


def read_log(path: str | Path, *, group_by: GroupBy = "auto", normalised: bool = False) -> Log:
    """Read a recorded log, JSONL or Parquet by its suffix. Raises UsageError with the row that cannot be read."""
    file = Path(path)
    log = Log([], [], [], [], [])
    domains: dict[str, str] = {}
    for where, row in _rows_of(file):
        named = next((name for name in _SOURCES if row.get(name) is not None), None)
        answers, documents = row.get(_ANSWERS), row.get(named) if named else None
        correct = row.get(_CORRECT)
        if not (isinstance(answers, list) and isinstance(documents, list) and isinstance(correct, list)):
            raise UsageError(f"{where}: not a recorded retrieval", _SHAPE)
        if len(answers) != len(documents):
            raise UsageError(
                f"{where}: {len(answers)} answers but {len(documents)} sources", "record one source per answer"
            )
        addresses = [str(document) for document in documents]
        fold = _value if normalised else str
        given = ["" if answer is None else fold(str(answer)) for answer in answers]
        accepted = {fold(str(answer)) for answer in correct if answer is not None}
        by_domain = group_by == "domain" or (group_by == "auto" and named == "retrieved_websites")
        if by_domain:
            for address in addresses:
                if address not in domains:
                    domains[address] = registered_domain(address)
        asked = {name: row[name] for name in _ASKED if row.get(name) is not None}
        log.questions.append(json.dumps(asked or row, sort_keys=True, default=str))
        log.answers.append(given)
        log.documents.append(addresses)
        log.sources.append([domains[address] for address in addresses] if by_domain else addresses)
        log.right.append(
            [float(answer is not None and key in accepted) for answer, key in zip(answers, given, strict=True)]
        )
    if not log.answers:
        raise UsageError(f"{file} contains no recorded retrievals", _SHAPE)
    return log


def _value(text: str) -> str:
    """A value as SQuAD folds it, but -1.5 is not 15, and "The" and "-" are not nothing."""
    number = number_of(text, whole=True) is not None
    return (not number and normalise(text)) or answer_key(text)


def to_lists(log: Log, names: Sequence[str] | None = None) -> RankedLists:
    """The log as arrays: utility 1 for a right answer, 0 for a wrong one."""
    return ranked_lists(log.sources, log.answers, log.right, documents=log.documents, names=names)


def _used(columns: Sequence[str]) -> list[str] | None:
    """Of the columns of a Parquet file those that are used; None, all, where none tells which question a row is."""
    known = (_ANSWERS, _CORRECT, *_SOURCES, *_ASKED)
    return [name for name in known if name in columns] if {*_ASKED} & {*columns} else None


def _rows_of(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row and where it stands, read as those of a pool: what unpacks to far too much is refused."""
    try:
        with open_regular(file) as stream:
            parquet = file.suffix in {".parquet", ".pq"}
            rows = read_parquet(str(file), stream, columns=_used) if parquet else read_jsonl(decoded_lines(stream))
            for number, row in rows:
                where = f"{file} row {number}" if parquet else f"{file}:{number}"
                if isinstance(row, BadRecord):
                    raise UsageError(f"{where}: {row.reason}", _SHAPE)
                yield where, row
    except FileNotFoundError:
        raise UsageError(f"no such log: {file}", _FILE) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}", _FILE) from error


def _report(
    task: AuditTask, validation: RankedLists, tested: RankedLists | None, k: int, choice: SettingChoice
) -> AuditReport:
    everything = None if tested is None else vote(tested, k)
    baseline = EstimatorResult(choice.baseline, None if everything is None else float(everything.mean()), [])

    def result(applied: AppliedSetting) -> EstimatorResult:
        setting, on_test = applied.setting, None if tested is None else outcomes(tested, applied)
        return EstimatorResult(
            float(outcomes(validation, applied).mean()),
            None if on_test is None else float(on_test.mean()),
            [name for name, kept in zip(validation.names, applied.kept, strict=True) if not kept],
            None if on_test is None or everything is None else _gain(on_test - everything),
            setting.estimator,
            setting.use,
            setting.voters,
            setting.decay,
        )

    chosen = baseline if choice.applied is None else result(choice.applied)
    notes = []
    if tested is None:
        notes.append(
            "no test log given: every accuracy is of the questions that the choice was made on; "
            "only the gain is cross-validated"
        )
    if choice.applied is None:
        notes.append(
            "no pruning beats keeping all sources significantly, so nothing is pruned: "
            f"best gain {choice.gain:+.4f}, standard error {choice.gain_error:.4f}"
        )
    return AuditReport(
        task=task,
        k=k,
        validation=len(validation),
        test=None if tested is None else len(tested),
        baseline=baseline,
        estimators={name: result(applied) for name, applied in choice.tuned.items()},
        chosen=chosen,
        gain=choice.gain,
        gain_error=choice.gain_error,
        sources=_rows(validation, choice),
        notes=notes,
    )


def _rows(lists: RankedLists, choice: SettingChoice) -> list[SourceRow]:
    means, errors = reliability(lists), reliability_error(lists)
    hits = lists.hits
    kept = np.ones(len(lists.names), bool) if choice.applied is None else choice.applied.kept
    rows = [
        SourceRow(
            name, int(hits[i]), {e: float(a.scores[i]) for e, a in choice.tuned.items()},
            float(means[i]), float(errors[i]), bool(kept[i]),
        )
        for i, name in enumerate(lists.names)
        if hits[i]
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.reliability, row.source))


def _gain(differences: Float64s) -> PairedGain:
    """Mean and 95 % normal interval of paired differences; `alike_interval` where all are equal."""
    mean = float(differences.mean())
    if np.ptp(differences) == 0.0:
        return PairedGain(mean, alike_interval(mean, len(differences), least=-1.0))
    half = 1.96 * float(differences.std(ddof=1)) / float(np.sqrt(len(differences)))
    return PairedGain(mean, (mean - half, mean + half))
