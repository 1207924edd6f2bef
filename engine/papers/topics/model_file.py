"""A trained topic model on disk: safetensors and a JSON header in ``<workspace>/topics/<run>/``.

Beside the predictor are its predictions for every row of the pool: the strongest topics of each, memory-mapped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Float32s, Int64s
from ...base.errors import UsageError
from ...base.files import replace_file
from ...base.packages import installed
from ...base.progress import SILENT, Event, Monitor
from ...retrieval.checked import check_model, header, map_safetensors, parts_of, seal_model
from ...shards.over import over_shards
from ...shards.shard import INLINE, Arrays, Engine
from ...store import runs
from ...store.workspace import Workspace
from .predictor import FIELDS, Knowledge, Predictor, sigmoid
from .stored import KIND

WEIGHTS, ROWS, HEAD = "topics.safetensors", "rows.safetensors", "topics.json"
FILES = WEIGHTS, ROWS, HEAD
FOLDER = "topics"
FORMAT = 1
STRONGEST = 32
"""Topics stored for each row; the others count as not covered in preselection."""

TASK = "cover"
_TRAIN_FIX = "icl-curate train topics"
_BINARY_FIX = "icl-curate train topics --labels binary"

Labels = Literal["soft", "binary"]
"""What a predictor learns of core topics: how distinctive they are (eq. 2 and 3), or yes and no (table 3)."""


@dataclass(frozen=True, slots=True)
class RowTopics:
    """The strongest topics of rows: ``rows`` (n,) ascending, ``topics`` (n, `STRONGEST`) int32 and their t̂ in
    ``weights`` (n, `STRONGEST`) float16, strongest first."""

    rows: Int64s
    topics: NDArray[np.int32]
    weights: NDArray[np.float16]

    def of(self, rows: Int64s) -> RowTopics:
        """Those of ``rows``, all of which must be present."""
        at = np.searchsorted(self.rows, rows)
        if len(rows) == len(self.rows):
            return self
        return RowTopics(rows, self.topics[at], self.weights[at])


@dataclass(frozen=True, slots=True)
class TopicModel:
    """A trained topic model; ``cosine`` is λ of the final score, ``knowledge`` t_LM of the LLM it was trained for."""

    run: int
    names: tuple[str, ...]
    predictor: Predictor
    knowledge: Knowledge
    encoder: str
    llm: str
    cosine: float
    covered: RowTopics


def strongest(
    predictor: Predictor,
    rows: Int64s,
    vectors: Float32s | Callable[[Int64s], Float32s],
    monitor: Monitor = SILENT,
    *,
    engine: Engine = INLINE,
    beside: Path | None = None,
) -> RowTopics:
    """The `STRONGEST` topics of rows with the embeddings ``vectors`` (n, d), which a function returns for some rows of
    a large pool, block by block: each is a shard of ``engine``, with its files in the folder ``beside``."""
    width, size = min(STRONGEST, predictor.topics), predictor.block
    topics = np.empty((len(rows), width), np.int32)
    weights = np.empty((len(rows), width), np.float16)
    spans = [slice(start, start + size) for start in range(0, len(rows), size)]
    parts = (vectors(rows[span]) if callable(vectors) else np.asarray(vectors[span]) for span in spans)
    shards = over_shards(
        partial(cover_shard, predictor), ((len(part), {"vectors": part}) for part in parts), stage=TASK,
        total=len(rows), beside=beside or Path(), engine=engine if beside else INLINE, held=True, monitor=monitor,
    )  # fmt: skip
    for i, arrays in shards:
        span = slice(i * size, (i + 1) * size)
        topics[span], weights[span] = arrays["topics"], arrays["weights"]
    return RowTopics(rows, topics, weights)


def cover_shard(predictor: Predictor, arrays: Arrays, monitor: Monitor) -> Arrays:
    """The strongest topics of ``vectors`` (n, d) and their t̂, as in `RowTopics`."""
    logits, width = predictor.logits(arrays["vectors"]), min(STRONGEST, predictor.topics)
    if installed("torch"):  # a third of the time of numpy's
        import torch

        best = torch.from_numpy(logits).topk(width).indices.numpy()
    else:
        best = np.argpartition(-logits, width - 1, axis=1)[:, :width]
    values = sigmoid(np.take_along_axis(logits, best, axis=1))  # it grows with the logit: of the others none is needed
    order = np.lexsort((best, -values), axis=1)
    monitor.report(Event(TASK, len(logits), len(logits)))
    return {
        "topics": np.take_along_axis(best, order, axis=1).astype(np.int32),
        "weights": np.take_along_axis(values, order, axis=1).astype(np.float16),
    }


def folder_of(workspace: Workspace, run: int) -> Path:
    """The folder of a run's topic model."""
    return workspace.path / FOLDER / str(run)


def save(workspace: Workspace, model: TopicModel, settings: Mapping[str, Any]) -> None:
    """Write the model; the header, written last, marks it as complete."""
    from safetensors.numpy import save as to_bytes

    folder = folder_of(workspace, model.run)
    weights = {name: getattr(model.predictor, name) for name in FIELDS}
    weights |= {"knowledge": model.knowledge.share, "observations": model.knowledge.observations}
    content = to_bytes({name: np.ascontiguousarray(array) for name, array in weights.items()})
    replace_file(folder / WEIGHTS, lambda file: file.write(content))
    rows = model.covered
    covered: dict[str, NDArray[Any]] = {"rows": rows.rows, "topics": rows.topics, "weights": rows.weights}
    parts: list[bytes | memoryview] = [header(covered, {}), *parts_of(covered)]  # gigabytes: no copy is made
    replace_file(folder / ROWS, lambda file: [file.write(part) for part in parts])
    head = {
        "format": FORMAT,
        "encoder": model.encoder,
        "dimension": model.predictor.dimension,
        "llm": model.llm,
        "cosine": model.cosine,
        "topics": list(model.names),
        "settings": dict(settings),
    }
    text = json.dumps(head, indent=1, sort_keys=True)
    replace_file(folder / HEAD, lambda file: file.write(text.encode()))
    seal_model(workspace, model.run, folder, FILES)


def load(workspace: Workspace, run: int) -> TopicModel:
    """Open what `save` wrote as memory maps. Raises `WorkspaceError` if it was changed since, `UsageError` if it has
    another format.

    Stored predictions of rows are valid as long as the run is: rows never change, and a database with the run
    has the rows it used.
    """
    folder = folder_of(workspace, run)
    check_model(workspace, run, folder, "topic model", _TRAIN_FIX)
    return _load(folder, run)


def _load(folder: Path, run: int) -> TopicModel:
    try:
        head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']}")
        weights, _ = map_safetensors(folder / WEIGHTS)
        covered, _ = map_safetensors(folder / ROWS)
        for name, array in weights.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has values that are not finite")
        predictor = Predictor(*(weights[name] for name in FIELDS))
        names = tuple(head["topics"])
        if len(names) != predictor.topics or predictor.dimension != head["dimension"]:
            raise ValueError(f"{len(names)} names for {predictor.topics} topics")
        return TopicModel(
            run,
            names,
            predictor,
            Knowledge(weights["knowledge"], weights["observations"]),
            head["encoder"],
            head["llm"],
            float(head["cosine"]),
            RowTopics(covered["rows"], covered["topics"], covered["weights"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"no usable topics in {folder}: {error}", _TRAIN_FIX) from error


def latest(workspace: Workspace, llm: str = "", labels: Labels = "soft") -> int:
    """The finished run to use, of those whose predictor learnt such ``labels``: the latest of the configured LLM, else
    the latest. `UsageError` before the first."""
    noted = runs.files(workspace)
    done = [run for run in runs.runs(workspace, KIND, limit=1000) if run.status == "done" and run.run in noted]
    learnt = [run for run in done if bool(run.settings.get("soft", True)) == (labels == "soft")]
    best = max(learnt, key=lambda run: (run.llm == llm, run.run), default=None)
    if best is None:
        which, fix = ("", _TRAIN_FIX) if labels == "soft" else (f" with {labels} labels", _BINARY_FIX)
        raise UsageError(f"no topics have been learned yet{which}", fix)
    return best.run
