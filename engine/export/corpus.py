"""Export of the curated corpus with its manifest: complete or not at all, and never over an existing file unless
forced.

A file system cannot rename two files in one step. A manifest beside a file must always belong to that file, so the old
manifest is removed first, then the new file is moved into place, then the new manifest. A kill between these steps
leaves a complete file without a manifest; the digest in the manifest gives the same guarantee. A folder contains its
manifest and is moved in one step, but its predecessor must be set aside first: if a kill leaves it there, the next
export puts it back. Each export also removes the partial files of killed exports.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np

from ..base import contract, memory
from ..base.arrays import Int64s
from ..base.errors import CurateError, UsageError
from ..base.packages import VERSION
from ..base.progress import SILENT, Event, Monitor
from ..index import exported as exported_as
from ..index.exported import MANIFEST, escaped
from ..index.readers.files import COMPRESSED
from ..pool.display import encodable_json
from ..pool.records import Demonstration, Split, Task
from ..pool.sets import labels_of
from ..prompting.template import AUTO, FileTemplate, Template
from ..retrieval.duplicates import normalised
from ..store import columns, decisions
from ..store.demonstrations import active_rows, check_sources, fetch, groups, task_of
from ..store.overview import EXPORTED, EXPORTED_TO
from ..store.targets import ANOTHER, check_file, check_folder, check_no_input
from ..store.versions import PoolState, state_of
from ..store.workspace import Workspace
from . import writers
from .results import ExportReport
from .writers import ALWAYS, COLUMNS, FILE_WRITERS, INPUT_KEYS, KINDS, Writer, llama_factory, write_csv

MANIFEST_VERSION = 1
"""The ``schema_version`` of a manifest, a file format of its own: not that of ``--json``."""

FORMATS = (*FILE_WRITERS, "hf")
CALIBRATION = "calibration"
"""The format of fine-tuning sets, which `calibration` writes."""
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
PART, ASIDE = ".part", ".old"
"""Suffixes of hidden names beside the target: a partial file, and a folder set aside for its successor."""
BATCH = 10_000
PART_ROWS = 100_000
"""Rows whose content is hashed at once."""
ROW_BYTES = 110
"""Memory for each row, measured on ten million short ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """What to export. ``split`` pool means its active demonstrations; ``deduplicate`` keeps the first row of each
    output in a duplicate group; ``sources`` empty means all. ``escape_formulas``: CSV cells that a spreadsheet would
    execute get an apostrophe; `index` removes it if the manifest is beside the file. The format ``hf`` is a folder with
    every split. ``licence``: the hub's name of one, for the card. ``version``: the demonstrations are those of this
    version, as they were, instead of the active ones. ``dry_run``: check, but write nothing."""

    out: Path
    format: str = "jsonl"
    split: Split = "pool"
    sources: tuple[str, ...] = ()
    deduplicate: bool = False
    template: Template = AUTO
    force: bool = False
    dry_run: bool = False
    escape_formulas: bool = True
    licence: str = ""
    version: str = ""


def usual_split(format: str | None) -> Split:
    """The split of an export of this format that names none."""
    return "validation" if format == CALIBRATION else "pool"


def format_of(out: Path) -> str:
    """The format that a file name implies. Raises `UsageError` if the name does not imply one."""
    if found := SUFFIXES.get(out.suffix.lower()):
        return found
    raise UsageError(f"cannot tell the format from the name '{out.name}'", f"--format {'|'.join(FORMATS)}")


def content_hash(workspace: Workspace) -> str | None:
    """The ``content_hash`` that an export of the active pool has in its manifest; None if no row is active."""
    rows = active_rows(workspace)
    with workspace.read() as con, _relabelled(con, None):
        return _Content.of(con, rows, rows).digest if rows.size else None


@contextmanager
def _relabelled(con: duckdb.DuckDBPyConnection, saved: PoolState | None) -> Iterator[None]:
    """The outputs that a version gave to rows, as the table ``relabelled``."""
    outputs = saved.outputs if saved else {}
    given = np.array([*outputs], np.int64), np.array([*outputs.values()], object)
    with columns.given(con, "relabelled", dict(zip(("row", "output"), given, strict=True))):
        yield


@dataclass(frozen=True, slots=True)
class _Content:
    """What is exported: the SHA-256 over the rows' hashes and their corrected outputs, and by source how many rows are
    demonstrations. Read part by part, because a large pool's hashes would fill the memory."""

    digest: str
    sources: Mapping[str, int]

    @classmethod
    def of(cls, con: duckdb.DuckDBPyConnection, rows: Int64s, shown: Int64s) -> _Content:
        """Of rows (n,), of which those ``shown`` (m,) are demonstrations, whatever split they are in now."""
        rows = np.unique(rows)
        digest, sources = hashlib.sha256(), Counter[str]()
        for start in range(0, len(rows), PART_ROWS):
            part = rows[start : start + PART_ROWS]
            span = [int(part[0]), int(part[-1])]
            with columns.given(con, "part", {"row": part, "shown": np.isin(part, shown)}):
                ((text,),) = con.execute(_CONTENT, span).fetchall()
                counted = con.execute(
                    """
                    SELECT source, count(*) FROM demonstrations JOIN part USING (row)
                     WHERE row BETWEEN ? AND ? AND shown GROUP BY source
                    """,
                    span,
                ).fetchall()
            digest.update((text or "").encode())
            sources.update(dict(counted))
        return cls(digest.hexdigest(), sources)


_CONTENT = """
    SELECT string_agg(hex(d.hash) || CASE WHEN r.output <> coalesce(c.output, d.output)
                                          THEN coalesce(c.output, d.output) ELSE '' END, '' ORDER BY row)
      FROM demonstrations d SEMI JOIN part USING (row)
      LEFT JOIN outputs_as_read r USING (row) LEFT JOIN relabelled c USING (row) WHERE row BETWEEN ? AND ?
"""


def export(workspace: Workspace, plan: ExportPlan, monitor: Monitor = SILENT) -> ExportReport:
    """Write the corpus and its manifest; in a dry run, report what would be written.

    Everything is written beside the target and renamed at the end, so after a full disk, a kill or a cancellation the
    old target is unchanged. Raises `UsageError` for an unknown format, a target that exists without ``force``, or
    nothing to export; `CurateError` if the file system refuses.
    """
    if plan.format not in FORMATS:
        raise UsageError(f"unknown format '{plan.format}'", f"use one of: {', '.join((*FORMATS, CALIBRATION))}")
    check_no_input(workspace, plan.out)
    check_target(plan)
    if plan.version and plan.split != "pool":
        raise UsageError(f"a version has no queries, but the split is {plan.split}", "leave out --split")
    chosen = Chosen.of(workspace, plan)
    exported: dict[str, int] = {split: int(rows.size) for split, rows in chosen.rows.items()}
    if not any(exported.values()):
        raise UsageError("nothing to export: no row passes the filters", "icl-curate sources")
    if plan.dry_run:
        return foreseen(plan, exported)
    needed = ROW_BYTES * sum(exported.values())
    memory.warn(monitor, "this export takes", needed, "export a part: icl-curate export --source NAME")

    def write_rows(split: Split, writer: Writer, path: Path) -> str:
        """Returns the digest of the file."""
        total = exported[split]

        def batches() -> Iterator[Sequence[Demonstration]]:
            for start in range(0, total, BATCH):
                monitor.check()
                yield chosen.fetch(workspace, split, start)
                monitor.report(Event("export", min(start + BATCH, total), total))

        writer(batches(), path, chosen.task, plan.template)
        return settled_digest(path)

    def write(temporary: Path) -> dict[str, Any]:
        if plan.format == "hf":
            (temporary / "data").mkdir(parents=True)
            digests = {}
            for split, rows in chosen.rows.items():
                if rows.size:
                    name = f"data/{writers.SPLITS[split]}.parquet"
                    digests[name] = write_rows(split, writers.write_with_features, temporary / name)
            manifest = manifest_of(workspace, plan, chosen, digests, exported)
            (temporary / "README.md").write_text(_card(plan, chosen.task, manifest), encoding="utf-8")
            return manifest
        digests = {plan.out.name: write_rows(plan.split, _writer(workspace, plan, chosen), temporary)}
        return manifest_of(workspace, plan, chosen, digests, exported)

    done = publish(plan, exported, write)
    if exported.get("pool") and not plan.version and not plan.sources:
        with suppress(CurateError), workspace.write() as con:  # a workspace that can only be read
            columns.note(con, EXPORTED, columns.now().isoformat())
            with suppress(ValueError):  # on another drive, or of no UTF-8, which a database cannot hold
                place = os.path.relpath(plan.out.resolve(), workspace.path.parent).encode().decode()
                columns.note(con, EXPORTED_TO, place)
    return done


def _writer(workspace: Workspace, plan: ExportPlan, chosen: Chosen) -> Writer:
    writer = FILE_WRITERS[plan.format]
    if writer is not write_csv:
        return writer
    filled = _filled(workspace, chosen)
    return partial(write_csv, columns=filled, write=escaped if plan.escape_formulas else str)


def first_record(workspace: Workspace, plan: ExportPlan) -> str:
    """The first row as an export would write it, under the header of a CSV file; of a format that is no text, its
    columns as JSON. Raises `UsageError` if there is nothing to export."""
    chosen = Chosen.of(workspace, plan)
    first = chosen.fetch(workspace, plan.split, 0, 1)
    if not first:
        raise UsageError("nothing to export: no row passes the filters", "icl-curate sources")
    if plan.format in ("parquet", "hf"):
        return json.dumps(writers.record(first[0], chosen.task), ensure_ascii=False, indent=1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "first"
        _writer(workspace, plan, chosen)([first], path, chosen.task, plan.template)
        return path.read_text(encoding="utf-8")


def records(workspace: Workspace, plan: ExportPlan) -> Iterator[dict[str, Any]]:
    """The rows that an export would write, each as its JSON object. Raises `UsageError` for an unknown version or
    source."""
    chosen = Chosen.of(workspace, plan)
    for start in range(0, chosen.all.size, BATCH):
        yield from (writers.record(row, chosen.task) for row in chosen.fetch(workspace, plan.split, start))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows to export by split, ascending, (n,); ``saved`` is the version that the pool's are from, and ``task`` the
    kind of their answers."""

    rows: Mapping[Split, Int64s]
    saved: PoolState | None
    task: Task

    @classmethod
    def of(cls, workspace: Workspace, plan: ExportPlan) -> Chosen:
        """What the plan chooses; of the format ``hf`` every split."""
        saved = state_of(workspace, plan.version) if plan.version else None
        splits = writers.SPLITS if plan.format == "hf" else (plan.split,)
        return cls({split: _rows(workspace, plan, split, saved) for split in splits}, saved, _task(workspace, saved))

    @property
    def all(self) -> Int64s:
        return np.concatenate(list(self.rows.values()))

    def fetch(self, workspace: Workspace, split: Split, start: int, most: int = 0) -> list[Demonstration]:
        """A batch of rows from ``start`` on, or at most so many."""
        some = self.rows[split][start : start + (most or BATCH)]
        return self.saved.fetch(workspace, some) if self.saved and split == "pool" else fetch(workspace, some)


def check_target(plan: ExportPlan) -> None:
    """Raise `UsageError` if the target must not be overwritten; clean up after killed exports first."""
    if not plan.out.name:
        raise UsageError(f"'{plan.out}' is no name of a file or a new folder", ANOTHER)
    if plan.format != "hf" and plan.out.suffix.lower() in COMPRESSED:
        plain = plan.out.with_suffix("")
        what = f"{plan.out} is named as compressed, which no export is"
        raise UsageError(what, f"export to {plain} and then compress it")
    if not plan.dry_run:
        with suppress(OSError):  # an unwritable target is reported when it is written
            _clear(plan)
    if plan.format == "hf":
        data = [f"data/{name}.parquet" for name in writers.SPLITS.values()]
        check_folder(plan.out, plan.force, ["README.md", manifest_path(plan).name, *data])
    else:
        check_file(plan.out, plan.force)


def foreseen(plan: ExportPlan, exported: Mapping[str, int], **told: Any) -> ExportReport:
    """The result of a dry run: number of rows to write, by split; ``told`` are more fields of the report."""
    return ExportReport(str(plan.out), str(manifest_path(plan)), plan.format, exported, **told)


def publish(
    plan: ExportPlan, exported: Mapping[str, int], write: Callable[[Path], dict[str, Any]], **told: Any
) -> ExportReport:
    """``write`` creates a temporary file or folder and returns the manifest; then both are moved into place."""
    temporary = plan.out.with_name(f".{plan.out.name}.{os.getpid()}{PART}")
    try:
        plan.out.parent.mkdir(parents=True, exist_ok=True)
        manifest = write(temporary)
        _publish(plan, temporary, manifest)
    except OSError as error:
        part = isinstance(error, FileExistsError | NotADirectoryError)
        raise CurateError(
            f"cannot write {plan.out}: {'part of its path is a file' if part else error.strerror or error}",
            "free disk space or choose another location; nothing was changed",
        ) from error
    finally:
        with suppress(OSError):  # where nothing could be written nothing is there
            _remove(temporary)
    return ExportReport(str(plan.out), str(manifest_path(plan)), plan.format, exported, manifest, **told)


def manifest_path(plan: ExportPlan) -> Path:
    """Where the manifest goes: inside a folder, beside a file."""
    return plan.out / "manifest.json" if plan.format == "hf" else plan.out.with_name(plan.out.name + MANIFEST)


def _rows(workspace: Workspace, plan: ExportPlan, split: Split, saved: PoolState | None) -> Int64s:
    """The rows to export, ascending. Those of a version may be in another split now, or retired."""
    of_version = saved if split == "pool" else None
    table = "active" if split == "pool" and of_version is None else "demonstrations"
    where = ["split = ?", "retired_at IS NULL"] if of_version is None else ["row IN (SELECT unnest(?))"]
    values: list[Any] = [split] if of_version is None else [of_version.rows]
    if plan.sources and split == "pool":
        where.append("source IN (SELECT unnest(CAST(? AS VARCHAR[])))")
        values.append(list(plan.sources))
    with workspace.read() as con:
        if plan.sources and not plan.version:
            check_sources(con, plan.sources)
        rows = columns.numbers(con, f"SELECT row FROM {table} WHERE {' AND '.join(where)} ORDER BY row", values)
    return _first_of_repeats(workspace, rows, of_version) if plan.deduplicate and split == "pool" else rows


def _first_of_repeats(workspace: Workspace, rows: Int64s, saved: PoolState | None) -> Int64s:
    """Of the rows (n,), ascending, those that repeat no earlier one of them: as in `check`, in one group of duplicates
    and with the same output. Rows of a group with different outputs may all be right."""
    of = groups(workspace)[rows]
    _, places, sizes = np.unique(of, return_inverse=True, return_counts=True)
    together, seen, repeats = rows[sizes[places] > 1], set(), []
    for start in range(0, together.size, BATCH):
        some = together[start : start + BATCH]
        for row in saved.fetch(workspace, some) if saved else fetch(workspace, some):
            key = of[np.searchsorted(rows, row.row)], normalised(row.output)
            if key in seen:
                repeats.append(row.row)
            seen.add(key)
    return np.setdiff1d(rows, np.array(repeats, np.int64))


def settled_digest(path: Path) -> str:
    """The SHA-256 of a finished file, once it is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _task(workspace: Workspace, saved: PoolState | None) -> Task:
    """The kind of answers; the labels of a version are its own, and those of the queries."""
    task = task_of(workspace)
    if saved is None or not task.labels:
        return task
    with workspace.read() as con:
        outputs = con.execute(
            """
            SELECT DISTINCT output FROM demonstrations
             WHERE split <> 'pool' AND retired_at IS NULL
                OR row IN (SELECT unnest($1)) AND row NOT IN (SELECT unnest($2))
            """,
            [saved.rows, np.array([*saved.outputs], np.int64)],
        ).fetchall()
    every = [*(output for (output,) in outputs), *saved.outputs.values()]
    return replace(task, labels=labels_of(task.kind, every))


def _card(plan: ExportPlan, task: Task, manifest: Mapping[str, Any]) -> str:
    counts = manifest["counts"]
    return writers.card(
        plan.out.name,
        task,
        {writers.SPLITS[split]: count for split, count in counts["exported"].items() if count},
        manifest["sources"],
        max(0, counts["pool"] - counts["exported"]["pool"]),
        len(manifest["relabelled"]),
        plan.licence,
    )


def manifest_of(
    workspace: Workspace,
    plan: ExportPlan,
    chosen: Chosen,
    digests: dict[str, str],
    exported: Mapping[str, int],
) -> dict[str, Any]:
    """The manifest of every format: ``digests`` of the files written, ``exported`` rows by split."""
    with workspace.read() as con, _relabelled(con, chosen.saved):
        shown = chosen.rows.get("pool", chosen.all[:0])
        content = _Content.of(con, chosen.all, shown)
        counts, sources = pool_counts(con)
        relabelled = corrections(con, shown)
        indexed, meta = files(con), dict(con.execute("SELECT key, value FROM meta ORDER BY key").fetchall())
    template = plan.template
    return {
        "schema_version": MANIFEST_VERSION,
        "tool": "icl-curate",
        "version": VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "format": plan.format,
        "files": digests,
        **_columns(workspace, plan, chosen),
        **({"llama_factory": llama_factory(plan.out)} if plan.format in ("chat", CALIBRATION) else {}),
        "input_keys": list(INPUT_KEYS),
        "counts": counts | {"exported": exported},
        "sources": [
            {
                "source": name,
                **sources.get(name, {"demonstrations": 0, "active": 0}),
                "exported": content.sources.get(name, 0),
            }
            for name in sorted({*sources, *content.sources})
        ],
        "filters": {"split": plan.split, "sources": list(plan.sources), "deduplicate": plan.deduplicate},
        **({"pool_version": contract.to_json(chosen.saved.version)} if chosen.saved else {}),
        "template": asdict(template) if isinstance(template, FileTemplate) else {"digest": template.digest},
        "content_hash": content.digest,
        "decisions": [
            asdict(entry)
            | {"targets": list(entry.targets), "decided_at": entry.decided_at.isoformat(timespec="seconds")}
            for entry in reversed(decisions.history(workspace))
        ],
        "relabelled": relabelled,
        "indexed_files": indexed,
        "workspace": {key: value for key, value in meta.items() if key in {"schema_version", "encoder", "task"}},
    }


def pool_counts(con: duckdb.DuckDBPyConnection) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
    """How many rows the pool has, and by source its demonstrations and the active ones."""
    rows = con.execute(
        """
        SELECT source, count(*), count(*) FILTER (row IN (SELECT row FROM active)) FROM pool GROUP BY source
        """
    ).fetchall()
    ((retired,),) = con.execute("SELECT count(*) FROM demonstrations WHERE retired_at IS NOT NULL").fetchall()
    pool, active = (sum(row[i] for row in rows) for i in (1, 2))
    counts = {"pool": pool, "active": active, "retired": retired}
    return counts, {source: {"demonstrations": total, "active": left} for source, total, left in rows}


def corrections(con: duckdb.DuckDBPyConnection, rows: Int64s) -> list[dict[str, str]]:
    """Of these rows those whose output is another than in the files, with the table ``relabelled``."""
    changed = con.execute(
        """
        SELECT row, d.id, r.output, coalesce(c.output, d.output) AS now
          FROM outputs_as_read r JOIN demonstrations d USING (row) LEFT JOIN relabelled c USING (row)
         WHERE now <> r.output ORDER BY row
        """
    ).fetchall()
    chosen = set(np.intersect1d(rows, np.array([row for row, *_ in changed], np.int64)).tolist())
    return [{"id": name, "from": was, "to": now} for row, name, was, now in changed if row in chosen]


def files(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The indexed files with their digests."""
    rows = con.execute("SELECT path, digest, rows FROM files ORDER BY path").fetchall()
    return [{"path": path, "digest": digest, "rows": count} for path, digest, count in rows]


def _filled(workspace: Workspace, chosen: Chosen) -> tuple[str, ...]:
    """The columns of a table in which some row has something, and those that are always there: a reader cannot tell the
    type of a column that is empty throughout."""
    with workspace.read() as con, columns.given(con, "wanted", {"row": chosen.all}):
        fills = con.execute(
            """
            SELECT bool_or(len(options) > 0), bool_or(len(answers) > 0), bool_or(context <> ''),
                   bool_or(history IS NOT NULL), bool_or(metadata <> '{}')
              FROM demonstrations SEMI JOIN wanted USING (row)
            """
        ).fetchall()
    rest = COLUMNS[len(ALWAYS) :]
    return (*ALWAYS, *(name for name, filled in zip(rest, *fills, strict=True) if filled))


def _columns(workspace: Workspace, plan: ExportPlan, chosen: Chosen) -> dict[str, Any]:
    """What the manifest says of the columns: of a CSV file, how to read each cell."""
    told = {
        **({exported_as.METADATA: exported_as.JSON} if plan.format in ("jsonl", "dspy") else {}),
        **writers.kinds_of(chosen.task),
    }
    if plan.format != "csv":
        return {exported_as.COLUMNS: told} if told and plan.format not in ("chat", CALIBRATION) else {}
    kinds = {name: KINDS.get(name, exported_as.TEXT) for name in _filled(workspace, chosen)}
    return {exported_as.FORMULAS: plan.escape_formulas, exported_as.COLUMNS: {**kinds, **told}}


def _publish(plan: ExportPlan, temporary: Path, manifest: dict[str, Any]) -> None:
    """Move the finished files into place, in the order explained in the module's docstring."""
    text = encodable_json(json.dumps(manifest, indent=2, ensure_ascii=False)) + "\n"
    target = manifest_path(plan)
    if plan.format == "hf":
        _write_settled(temporary / target.name, text)
        aside = plan.out.with_name(f".{plan.out.name}.{os.getpid()}{ASIDE}")
        if plan.out.exists():
            plan.out.rename(aside)
        temporary.rename(plan.out)
        _remove(aside)
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}{PART}")
    try:
        _write_settled(beside, text)
        target.unlink(missing_ok=True)
        temporary.replace(plan.out)
        beside.replace(target)
    finally:
        _remove(beside)


def _write_settled(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _clear(plan: ExportPlan) -> None:
    """Restore the folder that a killed export had set aside, and remove partial files of killed exports."""
    names = {plan.out.name, manifest_path(plan).name}
    for path in sorted(plan.out.parent.iterdir()):
        found = _LEFT.fullmatch(path.name)
        if found is None or found["name"] not in names or _is_running(int(found["pid"])):
            continue
        if found["ending"] == ASIDE and not plan.out.exists():
            path.rename(plan.out)
        else:
            _remove(path)


_LEFT = re.compile(rf"\.(?P<name>.+)\.(?P<pid>\d+)(?P<ending>{re.escape(PART)}|{re.escape(ASIDE)})", re.DOTALL)


def _is_running(pid: int) -> bool:
    """Whether the process that owns a hidden name is still running; True if this cannot be determined."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0) if os.name == "posix" else None
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
