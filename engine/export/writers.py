"""One writer per format: demonstrations in, one file out.

Each takes batches of rows and a path that does not exist yet, and leaves a finished file there. All formats have the
same fields: ``input``, ``output``, then ``options``, ``answers``, ``context`` and ``history`` (the messages before the
input) if there are any, then ``id``, ``source`` and the columns that came with the row. A data set for the `datasets`
library is a folder: Parquet files with its features, and a card for the hub.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import counted
from ..base.packages import VERSION, arrow
from ..index import calls, exported
from ..index.exported import JSON, METADATA, SETS, escaped
from ..index.rows import ELSEWHERE, is_name_of, plain_name
from ..pool.display import display_line
from ..pool.prompts import CUE
from ..pool.records import Demonstration, Message, Split, Task
from ..pool.sets import members_of
from ..prompting.template import Template

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterable[Sequence[Demonstration]]
Writer = Callable[[Batches, Path, Task, Template], None]

COLUMNS = exported.WRITTEN
ALWAYS = COLUMNS[:4]
"""The columns that CSV has even if they are empty; of the others, those that some row fills."""
KINDS = {"options": JSON, "answers": JSON, "history": JSON, METADATA: JSON}
"""Columns of CSV and Parquet whose cells are not plain text."""
INPUT_KEYS = ("input", "options", "context", "history")
"""The input fields of a DSPy example; the other fields are the answer and provenance."""


def kinds_of(task: Task) -> Mapping[str, str]:
    """Columns whose cells are not plain text, in any format: a set of labels is a list."""
    return {exported.OUTPUT: SETS} if task.kind == "sets" else {}


def arrow_schema(task: Task) -> pa.Schema:
    """The columns of a Parquet file, with the kinds of their cells."""
    pa = arrow("writing Parquet files")
    texts = pa.list_(pa.string())
    history = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    told = kinds_of(task)
    kinds = {"options": texts, "answers": texts, "history": history, **dict.fromkeys(told, texts)}
    return pa.schema(
        [(name, kinds.get(name, pa.string())) for name in COLUMNS],
        metadata={exported.SCHEMA: json.dumps({exported.COLUMNS: {METADATA: JSON, **told}})},
    )


def output_of(row: Demonstration, task: Task) -> str | list[str]:
    """The row's output, a set of labels as the list of its members."""
    return list(members_of(row.output)) if task.kind == "sets" else row.output


def record(row: Demonstration, task: Task) -> dict[str, Any]:
    """The row as one flat JSON object that `index` reads back to the same content; empty fields are left out."""
    fields: dict[str, Any] = {"id": row.id, "input": row.input, "output": output_of(row, task), "source": row.source}
    further = {"options": list(row.options), "answers": list(row.answers), "context": row.context}
    fields |= {name: value for name, value in further.items() if value}
    if row.history is not None:
        fields["history"] = messages(row.history)
    for name, empty in EMPTY.items():  # else a column that came with the row is read as the field that it lacks
        if name not in fields and any(is_name_of(name, column) for column in row.metadata):
            fields[name] = empty
    apart = {name: value for name, value in row.metadata.items() if name in fields or plain_name(name) in ELSEWHERE}
    fields |= {METADATA: apart} if apart else {}
    return fields | {name: value for name, value in row.metadata.items() if name not in apart}


EMPTY: Mapping[str, Any] = {"options": [], "answers": [], "context": ""}


def messages(turns: Iterable[Message]) -> list[dict[str, str]]:
    """Messages as the objects that chat formats write."""
    return [{"role": turn.role, "content": turn.content} for turn in turns]


def chat(row: Demonstration, task: Task, template: Template) -> dict[str, Any]:
    """The row as one conversation, in the format of TRL, LLaMA-Factory and OpenAI: as it came if it came as one, else
    as the prompt shows it (system, user, assistant)."""
    if row.history is not None:
        turns = [*row.history, Message("user", row.input), Message("assistant", row.output)]
        if row.history and (tools := calls.tools_in(row.metadata)):
            turns = [*calls.without_tools(row.history, tools), *turns[-2:]]
            told = {"type": "function"}
            said = str(row.metadata.get(calls.SAID, ""))
            return {
                "messages": calls.written(turns, said),
                "tools": [{**told, "function": dict(tool)} for tool in tools],
            }
    else:
        *turns, asked = template.render(row.as_query(), (), task)
        begun = asked.content if asked.role == "assistant" else ""
        asked = turns.pop() if begun else asked
        question = asked.content.removesuffix(f"\n{template.cue}") if template.cue else asked.content
        prefix = template.cue.removeprefix(CUE) if template.cue.startswith(CUE) else ""
        answer = f"{prefix.strip()} {template.form.write(row.output)}".lstrip()
        turns += [replace(asked, content=question), Message("assistant", answer)]
    return {"messages": messages(turns)}


def write_jsonl(batches: Batches, path: Path, task: Task, template: Template) -> None:
    _write_lines(path, (record(row, task) for row in chain.from_iterable(batches)))


def write_chat(batches: Batches, path: Path, task: Task, template: Template) -> None:
    _write_lines(path, (chat(row, task, template) for row in chain.from_iterable(batches)))


def write_dspy(batches: Batches, path: Path, task: Task, template: Template) -> None:
    """A JSON list of flat examples: ``[dspy.Example(**e).with_inputs(*keys) for e in json.load(file)]``."""
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for i, row in enumerate(chain.from_iterable(batches)):
            file.write(("," if i else "") + "\n" + json.dumps(record(row, task), ensure_ascii=False))
        file.write("\n]\n")


def write_csv(
    batches: Batches,
    path: Path,
    task: Task,
    template: Template,
    columns: Sequence[str] = COLUMNS,
    write: Callable[[str], str] = escaped,
) -> None:
    """RFC 4180 with a header and these ``columns``; lists and what came with a row are JSON in their cell. Cells that a
    spreadsheet would execute as a formula start with an apostrophe unless ``write`` says otherwise."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        sets = task.kind == "sets"
        cells = CELLS | ({"output": lambda row: json.dumps(output_of(row, task), ensure_ascii=False)} if sets else {})
        for row in chain.from_iterable(batches):
            writer.writerow(write(cells[column](row)) for column in columns)


def _history(row: Demonstration) -> str:
    return "" if row.history is None else json.dumps(messages(row.history), ensure_ascii=False)


CELLS: dict[str, Callable[[Demonstration], Any]] = {
    "id": lambda row: row.id,
    "source": lambda row: row.source,
    "input": lambda row: row.input,
    "output": lambda row: row.output,
    "options": lambda row: _json(row.options),
    "answers": lambda row: _json(row.answers),
    "context": lambda row: row.context,
    "history": _history,
    METADATA: lambda row: _json(row.metadata),
}
"""The cells of a row in CSV, by column."""


def write_parquet(batches: Batches, path: Path, task: Task, template: Template) -> None:
    schema = arrow_schema(task)
    from pyarrow import parquet

    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(to_arrow(batch, schema, task))


FILE_WRITERS: dict[str, Writer] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
    "chat": write_chat,
    "dspy": write_dspy,
}


def to_arrow(rows: Sequence[Demonstration], schema: pa.Schema, task: Task) -> pa.Table:
    """The rows as a table of `arrow_schema`."""
    import pyarrow as pa

    cells = CELLS | {
        "output": lambda row: output_of(row, task),
        "options": lambda row: list(row.options),
        "answers": lambda row: list(row.answers),
        "history": lambda row: None if row.history is None else messages(row.history),
    }
    return pa.table({column: [cells[column](row) for row in rows] for column in COLUMNS}, schema=schema)


def _write_lines(path: Path, objects: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for item in objects:
            file.write(json.dumps(item, ensure_ascii=False) + "\n")


def _json(value: Any) -> str:
    if not value:
        return ""
    return json.dumps(list(value) if isinstance(value, tuple) else dict(value), ensure_ascii=False)


SPLITS: dict[Split, str] = {"pool": "train", "validation": "validation", "test": "test"}
CATEGORIES = {
    "labels": "text-classification",
    "sets": "text-classification",
    "options": "multiple-choice",
    "open": "question-answering",
}
"""The hub's name for each kind of task."""

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def features(task: Task) -> dict[str, Any]:
    """The features of the columns, as the library writes them into a schema; labels are a class."""
    text = {"dtype": "string", "_type": "Value"}
    listed = {"feature": text, "_type": "List"}
    named = {"names": list(task.labels), "_type": "ClassLabel"} if task.labels else text
    outputs = {"labels": named, "sets": {"feature": named, "_type": "List"}}
    history = {"feature": {"role": text, "content": text}, "_type": "List"}
    others = {"options": listed, "answers": listed, "history": history}
    return dict.fromkeys(COLUMNS, text) | others | {"output": outputs.get(task.kind, text)}


def write_with_features(batches: Batches, path: Path, task: Task, template: Template) -> None:
    """A Parquet file whose schema holds `features`; labels are numbers, with their names in the schema."""
    schema = plain = arrow_schema(task)
    import pyarrow as pa
    from pyarrow import parquet

    numbers = {label: number for number, label in enumerate(task.labels)}
    place = schema.get_field_index("output")
    kind = pa.list_(pa.int64()) if task.kind == "sets" else pa.int64()
    if task.labels:
        schema = schema.set(place, pa.field("output", kind))
    told = {"info": {"features": features(task)}}
    said = {**(schema.metadata or {}), b"huggingface": json.dumps(told).encode()}
    with parquet.ParquetWriter(path, schema.with_metadata(said), compression="zstd") as writer:
        for batch in batches:
            table = to_arrow(batch, plain, task)
            if task.labels:
                outputs = (output_of(row, task) for row in batch)
                named = [numbers[each] if isinstance(each, str) else [numbers[one] for one in each] for each in outputs]
                table = table.set_column(place, "output", pa.array(named, kind))
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
            f"task_categories:\n- {CATEGORIES[task.kind]}\n",
            f"size_categories:\n- {size}\n",
            "tags:\n- in-context-learning\n- icl-curate\n",
            f"configs:\n- config_name: default\n  data_files:\n{files}",
        ]
    )
    columns = (
        "Columns: `id`, `source`, `input`, `output`, `options`, `answers` (other accepted answers), `context`, "
        "`history` (the messages before the input), `metadata` (JSON)."
    )
    names = [display_line(source["source"]).replace("|", "\\|") for source in sources]
    counts = [f"{source['demonstrations']:,} | {source['exported']:,}" for source in sources]
    lines = [f"| {name} | {rows} |" for name, rows in zip(names, counts, strict=True)]
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


def llama_factory(out: Path) -> Mapping[str, Any]:
    """The entry of a file of conversations in LLaMA-Factory's ``dataset_info.json``; TRL and OpenAI need none."""
    return {out.stem: {"file_name": out.name, **_SHAREGPT}}


_SHAREGPT: Mapping[str, Any] = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
    },
}
