"""A data set as the `datasets` library reads it: Parquet files with its features, and a card for the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import counted
from ..base.packages import VERSION
from ..pool.prompts import Template
from ..pool.records import Split, Task
from .writers import Batches, arrow_schema, to_arrow

SPLITS: dict[Split, str] = {"pool": "train", "validation": "validation", "test": "test"}
KINDS = {"labels": "text-classification", "options": "multiple-choice", "open": "question-answering"}
"""The hub's name for each kind of task."""

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def features(task: Task) -> dict[str, Any]:
    """The features of the columns, as the library writes them into a schema; outputs that are labels are a class."""
    text = {"dtype": "string", "_type": "Value"}
    listed = {"feature": text, "_type": "List"}
    named = {"names": list(task.labels), "_type": "ClassLabel"}
    return {
        "id": text,
        "source": text,
        "input": text,
        "output": named if task.kind == "labels" else text,
        "options": listed,
        "answers": listed,
        "context": text,
        "history": {"feature": {"role": text, "content": text}, "_type": "List"},
        "metadata": text,
    }


def write_with_features(batches: Batches, path: Path, task: Task, template: Template) -> None:
    """A Parquet file whose schema holds `features`; labels are numbers, with their names in the schema."""
    schema = plain = arrow_schema()
    import pyarrow as pa
    from pyarrow import parquet

    numbers = {label: number for number, label in enumerate(task.labels)}
    place = schema.get_field_index("output")
    if task.kind == "labels":
        schema = schema.set(place, pa.field("output", pa.int64()))
    told = {"info": {"features": features(task)}}
    said = {**(schema.metadata or {}), b"huggingface": json.dumps(told).encode()}
    with parquet.ParquetWriter(path, schema.with_metadata(said), compression="zstd") as writer:
        for batch in batches:
            table = to_arrow(batch, plain)
            if task.kind == "labels":
                table = table.set_column(place, "output", pa.array([numbers[row.output] for row in batch], pa.int64()))
            writer.write_table(table.cast(schema))


def card(
    name: str,
    task: Task,
    rows: Mapping[str, int],
    sources: Sequence[Mapping[str, Any]],
    taken_out: int,
    relabelled: int,
    licence: str,
) -> str:
    """A data-set card. ``rows``: exported rows by split; ``sources``: the manifest's; ``taken_out`` and ``relabelled``:
    rows of the pool that decisions left out and corrected."""
    files = "".join(f"  - split: {split}\n    path: data/{split}.parquet\n" for split in rows)
    total = sum(rows.values())
    size = next((name for most, name in SIZES if total < most), "n>1M")
    header = "".join(
        [
            f"license: {licence}\n" if licence else "",
            f"task_categories:\n- {KINDS[task.kind]}\n",
            f"size_categories:\n- {size}\n",
            "tags:\n- in-context-learning\n- icl-curate\n",
            f"configs:\n- config_name: default\n  data_files:\n{files}",
        ]
    )
    columns = (
        "Columns: `id`, `source`, `input`, `output`, `options`, `answers` (other accepted answers), `context`, "
        "`history` (the messages before the input), `metadata` (JSON)."
    )
    lines = [f"| {_cell(each['source'])} | {each['demonstrations']:,} | {each['exported']:,} |" for each in sources]
    told = [
        f"# {name}",
        f"A pool of in-context-learning demonstrations, curated with icl-curate {VERSION}.",
        "\n".join(f"- {split}: {counted(count, 'row')}" for split, count in rows.items()),
        columns,
        "## Provenance",
        f"{counted(taken_out, 'row', 'of the pool was', 'of the pool were')} left out and "
        f"{counted(relabelled, 'output')} corrected; which, when and why is in "
        "`manifest.json`.",
        "\n".join(["| source | rows in the pool | exported |", "|---|---|---|", *lines]),
    ]
    return f"---\n{header}---\n\n" + "\n\n".join(told) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
