"""All checks over the active pool of a workspace, and that for outliers: rows far from their nearest neighbours, by
cosine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ..base.arrays import Float32s, Float64s, Int64s
from ..base.errors import counted
from ..base.progress import SILENT, Monitor
from ..llm.graded import left_out
from ..pool.records import Demonstration, Task
from ..store.decisions import kept_rows
from ..store.demonstrations import compared, leaks, queries, similarities
from ..store.outputs import relabelled
from ..store.trials import KIND as TRIALS
from ..store.workspace import Workspace
from .active import ActivePool
from .evidence import DOUBTED, LIKELY, PoolEvidence, row_evidence
from .groups import leak_findings, repeat_findings
from .labels import FOLDS, LabelPredictions
from .mismatch import SURE, Mismatches
from .outputs import fault_findings
from .results import (
    BY_VECTORS,
    KINDS,
    LASTING,
    NOT_OF,
    OUTPUTS,
    RELABEL,
    REVIEW,
    CheckReport,
    Finding,
    Kind,
    finding,
)
from .writing import ENDED, LONG

PLACEHOLDERS = frozenset({"n/a", "#n/a", "null", "nan", "undefined", "tbd", "todo", "#value!", "[object object]"})
_CUT_MARK = re.compile(r"(\[truncated\]|\(truncated\)|<truncated>|\[\.\.\.\]|\[…\])\s*$", re.IGNORECASE)
PILED = 5
"""Number of long texts with exactly the maximum length that indicates a limit."""

_SORRY = r"^\W*((i'?m|i am|we are|we're) )?(very |so )?(sorry|afraid)\b[^.!?]{0,20}?"
_SELF = (
    r"(as an? (ai|artificial intelligence|(large )?language model)\b"
    r"|i('m| am) ((just |only )?an? (ai|(large )?language model)|programmed to)\b"
)
_DECLINES = (
    r"i('m| am)? ?(cannot|can't|can not|won't|will not|unable to|not able to) (assist|help|comply|fulfil|fulfill"
)
_REFUSAL = re.compile(
    rf"^\W*{_SELF})|{_SORRY}({_SELF})|{_DECLINES})\b)"
    r"|\bas an? (ai|(large )?language) (language )?(model|assistant)\b[^.!?]{0,40}\b(i|my)\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(rf"^\W*({_SORRY})?{_DECLINES}|provide|generate|create|answer|engage)\b", re.IGNORECASE)
"""Applied to outputs that begin like this; an input may come from a person who cannot create an account and asks for
help."""
_FOREIGN = re.compile(r"[^\x00-\x7f]{2,}")
_LEADS = frozenset({0xC2, 0xC3, 0xE2, 0xF0})
"""First bytes of accented letters, of typographic marks and of emoji in UTF-8; mojibake nearly always begins with
one."""


def text_findings(rows: Sequence[Demonstration], task: Task) -> Iterator[Finding]:
    """Problems of the texts of rows. Labels are a closed set and are not checked one by one."""
    for field in ("input", "output") if task.kind == "open" else ("input",):
        texts = [row.input if field == "input" else row.output for row in rows]
        counts = Counter(map(len, texts))
        longest = max(counts, default=0)
        limit = longest if longest >= LONG and counts[longest] >= PILED else None
        for row, text in zip(rows, texts, strict=True):
            if fault := _fault(text, field, limit):
                kind, severity, evidence = fault
                yield finding(row, kind, severity, f"the {field} {evidence}", characters=len(text))


def _fault(text: str, field: str, limit: int | None) -> tuple[Kind, float, str] | None:
    """The worst problem of a text: kind, severity, evidence. ``limit``: a length that several texts seem to be cut
    at."""
    if field == "input" and not any(c.isalnum() for c in text):
        return "empty", 0.9, "has no letter and no digit"
    if text.strip().casefold() in PLACEHOLDERS:
        return "empty", 0.9, f"is a placeholder: {text.strip()}"
    if refuses(text, answer=field == "output"):
        return "refusal", 0.9, f"is a refusal: {text.strip()[:60]}"
    if "\ufffd" in text:
        return "mojibake", 0.7, "has characters that were lost in decoding"
    if mended := mojibake(text):
        return "mojibake", 0.7, f"was decoded wrongly: '{mended[0]}' for '{mended[1]}'"
    if found := _CUT_MARK.search(text):
        return "cut", 0.7, f"ends with {found[1]}"
    if limit is not None and len(text) == limit and not ENDED.search(text):
        return "cut", 0.6, f"ends in mid-sentence at {limit:,} characters, the greatest length of several"
    return None


def refuses(text: str, answer: bool) -> bool:
    """Whether a model declines, or calls itself a model, instead of answering."""
    straight = text.replace("’", "'")
    return bool(_REFUSAL.search(straight) or (answer and _REFUSED.search(straight)))


def mojibake(text: str) -> tuple[str, str] | None:
    """UTF-8 that was decoded as Windows-1252: the first such run of characters, and its correct decoding."""
    for found in _FOREIGN.finditer(text):
        run = found[0]
        try:
            data = bytes(_byte(c) for c in run)
            meant = data.decode("utf-8")
        except ValueError:
            continue
        if data[0] in _LEADS:
            return run, meant
    return None


def _byte(character: str) -> int:
    """The byte that Windows-1252 decodes to this character; its five undefined bytes are decoded as control
    characters."""
    try:
        return character.encode("cp1252")[0]
    except UnicodeEncodeError:
        return bytes([ord(character)])[0]  # ValueError above 255


NEIGHBOURS = 5
SPREADS = 4.5
"""A row is an outlier from this many robust standard errors (1.4826 × the median absolute deviation) above the
median."""

LEAST = 30
"""With fewer rows the distribution of distances cannot be estimated."""

SAME = 1e-6
"""Distance up to which vectors are the same but for rounding."""

EXACT = 4_096
"""Number of rows whose neighbours are always searched among all rows."""

CELLS = 1 << 24
"""Maximum number of cosines in memory."""


def far_rows(vectors: Float32s, groups: Int64s, monitor: Monitor = SILENT) -> tuple[Int64s, Float64s, float, float]:
    """Positions of outliers, their distances, the usual distance and the limit.

    Distance: 1 − the mean cosine with the `NEIGHBOURS` nearest rows of other ``groups`` (n,). The usual distance is
    estimated from at most `EXACT` rows, those without a distance left out. The distance to neighbours in a subset is
    never less than in the whole, so rows near enough to a subset need no further search. Raises `Cancelled` between
    blocks.
    """
    n = len(vectors)
    part = np.sort(np.random.default_rng(0).permutation(n)[:EXACT])
    everyone = np.arange(n)
    usual = _distances(vectors, groups, part, everyone, monitor)
    apart = usual[usual > SAME]  # texts that are alike up to where the encoder stops reading have one vector
    if len(apart) < LEAST:
        return np.empty(0, np.int64), np.empty(0), 0.0, 0.0
    middle = float(np.median(apart))
    limit = middle + SPREADS * 1.4826 * float(np.median(np.abs(apart - middle)))
    bound = usual if n <= EXACT else _distances(vectors, groups, everyone, part, monitor)
    places = np.flatnonzero(bound > limit)
    distances = bound[places] if n <= EXACT else _distances(vectors, groups, places, everyone, monitor)
    far = distances > limit
    return places[far], distances[far], middle, limit


def _distances(vectors: Float32s, groups: Int64s, of: Int64s, among: Int64s, monitor: Monitor) -> Float64s:
    """Distance of the positions ``of`` to their neighbours ``among`` others, (len(of),)."""
    others, theirs = vectors[among], groups[among]
    distances = np.ones(len(of))
    size = max(CELLS // max(len(among), 1), 1)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    for start in monitor.in_steps("outliers", range(0, len(of), size), len(of)):
        block = of[start : start + size]
        cosines = vectors[block] @ others.T
        own = groups[block]
        begin, end = np.searchsorted(ordered, own), np.searchsorted(ordered, own, "right")
        for i in range(len(block)):
            cosines[i, order[begin[i] : end[i]]] = -1.0  # its own group, of which it is no neighbour
        k = min(NEIGHBOURS, cosines.shape[1])
        nearest = np.partition(cosines, cosines.shape[1] - k, axis=1)[:, -k:]
        distances[start : start + size] = 1.0 - nearest.mean(axis=1)
    return distances


def check_pool(pool: ActivePool, kinds: Collection[Kind] = KINDS, also_kept: bool = False) -> CheckReport:
    """Check the active pool for the given ``kinds``; no LLM is called and nothing is encoded. Rows that the curator
    decided to keep are left out, and the labels of those that the curator relabelled, unless ``also_kept``. Raises
    `UsageError` if the pool is empty, `Cancelled` between steps."""
    workspace, task, rows, repeated = pool.workspace, pool.view.task, pool.rows, pool.repeated
    notes: list[str] = []
    findings: list[Finding] = []
    none = [kind for kind in kinds if kind in NOT_OF[task.kind]]
    if none and len(kinds) < len(KINDS):  # they were asked for by name
        notes.append(f"not looked for where the task is {task.kind}: {', '.join(none)}")
    elif task.kind == "options" and "label" in none:
        notes.append("not judged: which of the options of a row is the right one")
    kinds = set(kinds) - set(none)
    vectors = pool.vectors if {*BY_VECTORS, "conflict"} & kinds else None
    if pool.fault is not None and (none := [kind for kind in BY_VECTORS if kind in kinds]):
        notes.append(f"not looked for: {', '.join(none)}: {pool.fault.what}; {pool.fault.fix}")
        kinds -= set(none)
    label_predictions = _label_predictions(pool, kinds, notes) if {"label", "conflict"} & kinds else None
    if label_predictions is None:
        kinds -= {"label"}
    if label_predictions and "label" in kinds:
        findings += label_findings(rows, label_predictions, row_evidence(pool, answers=()))
    if "mismatch" in kinds and pool.mismatches is not None:
        if not pool.mismatches.usable:
            notes.append("mismatches not looked for: outputs share too few words with their inputs (see train rows)")
            kinds -= {"mismatch"}
        findings += mismatch_findings(rows, pool.mismatches)
    if "part" in kinds:
        notes += [pool.untold] if pool.untold else []
        if pool.indexed.parts:
            findings += part_findings(pool)
        elif pool.untold:
            kinds -= {"part"}
    if set(OUTPUTS) & kinds:
        findings += fault_findings(rows, pool.faults_of(kinds))
    if (unlooked := [kind for kind in ("conflict", "duplicate", "leak") if kind in kinds]) and not compared(workspace):
        notes.append(f"not looked for, as index did not end: {', '.join(unlooked)}: icl-curate index")
        kinds -= {*unlooked}
    if {"conflict", "duplicate"} & kinds:
        quality = label_predictions.quality if label_predictions else None
        findings += repeat_findings(rows, repeated, similarities(workspace), task, quality)
    if "leak" in kinds:
        findings += leak_findings({row.row: row for row in rows}, leaks(workspace))
    if vectors is not None and "outlier" in kinds:
        findings += outlier_findings(rows, vectors, repeated, pool.monitor)
    if "class" in kinds:
        findings += class_findings(rows, max(FOLDS, pool.settings.k))
    if {"empty", "cut", "mojibake", "refusal"} & kinds:
        findings += text_findings(rows, task)
    findings = [problem for problem in findings if problem.kind in kinds]
    if not also_kept:
        findings = _without_settled(workspace, findings, notes)
    return CheckReport.of(len(rows), findings, kinds, notes)


def _without_settled(workspace: Workspace, findings: list[Finding], notes: list[str]) -> list[Finding]:
    decided, corrected = set(kept_rows(workspace).tolist()), {correction.row for correction in relabelled(workspace)}

    def settled(problem: Finding) -> bool:
        return problem.row in decided or (problem.row in corrected and problem.kind not in LASTING)

    if rows := {problem.row for problem in findings if settled(problem)}:
        note = f"{counted(len(rows), 'row')} with findings left out: you kept or relabelled them"
        notes.append(f"{note}; icl-curate check --all shows them")
    return [problem for problem in findings if not settled(problem)]


def _label_predictions(pool: ActivePool, kinds: Collection[Kind], notes: list[str]) -> LabelPredictions | None:
    """Label quality, if the pool has labels and vectors."""
    if pool.vectors is None:
        return None
    label_predictions = pool.label_predictions
    if "label" not in kinds:
        return label_predictions
    notes += left_out(pool.workspace, pool.settings, pool.view.task, (TRIALS,))  # that could contradict them
    if pool.contradicted:
        notes.append(
            f"suspected labels left out: {pool.contradicted}, so most labels may be wrong; see icl-curate suspects"
        )
    elif pool.unskilled:
        notes.append(pool.unskilled)
    elif (
        unjudged := len(pool.rows) if label_predictions is None else int(np.count_nonzero(label_predictions.labels < 0))
    ):
        alone = len({row.output for row in pool.rows}) == 1
        why = "all are the same" if alone else f"of classes with fewer than {FOLDS} rows of their own"
        notes.append(f"{counted(unjudged, 'label')} not judged: {why}")
    if label_predictions and label_predictions.power is None:
        told = "too few verified queries say which labels are right, so most rows decide"
        if skill := label_predictions.skill:
            told += f" (classifiers agree with {skill.right:.0%} of the labels, chance {skill.chance:.0%})"
        notes.append(f"{told}: icl-curate verify")
    elif label_predictions and not queries(pool.workspace, "test", 1):
        notes.append(
            "the validation queries taught what labels are right, so they cannot measure it: index --test FILE"
        )
    return label_predictions


CLEARED, CLEARED_BY_SKILLED, SKILLED = 0.2, 0.03, 0.875
"""Posterior below which the label of a row is not named, whatever confident learning says; and that where classifiers
have a `Skill.kappa` of `SKILLED` or more of verified labels. Confident learning takes all that less skilled ones get
wrong for wrong labels: 99 of 600 right rows in a pool of three emotions."""


def label_findings(
    rows: Sequence[Demonstration], label_predictions: LabelPredictions, evidence: PoolEvidence
) -> Iterator[Finding]:
    """Rows with a suspected label error in one of two views: by the ``evidence`` of classifiers and of the rows'
    sources, or by confident learning. The posterior finds wrong rows that confident learning does not count, whose
    measure is the usual probability of each label. In a source that is mostly right the posterior is too mild: there
    confident learning counts, unless the row is `CLEARED`."""
    skill, suggested = label_predictions.skill, label_predictions.suggested()
    skilled = skill is not None and skill.verified and skill.kappa >= SKILLED
    cleared = CLEARED_BY_SKILLED if skilled else CLEARED
    for place, row in enumerate(rows):
        known, quality = evidence.rows[place], float(label_predictions.quality[place])
        if known.suggested and known.posterior >= DOUBTED:
            name, severity = known.suggested, known.posterior
            own, p = 1.0 - known.posterior, known.posterior * known.chance
        elif label_predictions.suspect[place] and known.posterior >= cleared:
            name, severity = label_predictions.names[suggested[place]], 1.0 - quality
            of = label_predictions.probabilities[place]
            own, p = float(of[label_predictions.labels[place]]), float(of[suggested[place]])
        else:
            continue
        told = f"suggested {name} at {_decimals(p)}, given {row.output} at {_decimals(own)}"
        yield finding(row, "label", severity, told, RELABEL + name, given=own, suggested=p, quality=quality)


STRANGE = 0.7
"""Posterior from which on a row is named for its parts: in two pools of entities that named 2 right rows instead of 9,
and 168 wrong ones instead of 178."""


def part_findings(pool: ActivePool) -> Iterator[Finding]:
    """Rows that are `STRANGE`, and whose parts speak against them: the least probable one is told."""
    strangest: dict[int, tuple[float, str]] = {}
    for judged in pool.indexed.parts:
        for place, told in judged.strangest().items():
            row = int(pool.indexed.numbers[place])
            strangest[row] = min(told, strangest.get(row, told))
    rows = {row.row: row for row in pool.rows}
    for known in row_evidence(pool, answers=()).rows:
        if known.posterior >= STRANGE and known.parts["part"] > 0:
            one, evidence, p = rows[known.row], f"the output {strangest[known.row][1]}", known.posterior
            if known.suggested and known.chance >= LIKELY:
                yield finding(one, "part", p, evidence, RELABEL + known.suggested, suggested=known.chance)
            else:
                yield finding(one, "part", p, evidence)


def mismatch_findings(rows: Sequence[Demonstration], compared: Mismatches) -> Iterator[Finding]:
    """Rows whose output belongs to another input."""
    for place in np.flatnonzero(compared.probabilities >= SURE).tolist():
        rank, probability = float(compared.ranks[place]), float(compared.probabilities[place])
        evidence = f"{rank:.0%} of other outputs fit this input as well; not made from it at {_decimals(probability)}"
        yield finding(rows[place], "mismatch", probability, evidence, rank=rank, probability=probability)


def outlier_findings(
    rows: Sequence[Demonstration], vectors: Float32s, repeated: Int64s, monitor: Monitor = SILENT
) -> Iterator[Finding]:
    """Rows far from all others."""
    places, distances, middle, limit = far_rows(vectors, repeated, monitor)
    for place, distance in zip(places.tolist(), distances.tolist(), strict=True):
        evidence = f"far from its nearest rows: distance {_decimals(distance)}, usually {_decimals(middle)}"
        severity = min(0.3 + (distance - limit), 1.0)
        yield finding(rows[place], "outlier", severity, evidence, distance=distance, usual=middle, limit=limit)


def class_findings(rows: Sequence[Demonstration], least: int) -> Iterator[Finding]:
    """Rows of classes with fewer than ``least`` rows: too few to check labels, or to fill a prompt."""
    counts = Counter(row.output for row in rows)
    for row in rows:
        count = counts[row.output]
        if count < least:
            evidence = f"{row.output} has {counted(count, 'row')}, fewer than {least}"
            yield finding(row, "class", 0.2, evidence, REVIEW, rows=count, least=least)


def _decimals(share: float) -> str:
    """As ``.93``."""
    return f"{share:.2f}".removeprefix("0")
