"""The rule of the house: a core that stands alone, rooms that add to it, and rooms that read all."""

from __future__ import annotations

import ast
import subprocess
import sys
from itertools import islice
from pathlib import Path

import icl_curate

ROOT = Path(icl_curate.__file__).parent
ENGINE = ROOT / "engine"
ADDING = {"backends", "baselines", "papers"}
READING = {"watch", "report"}
SAMPLE = ROOT / "sample_data" / "support"


def imported(path: Path, root: Path = ROOT) -> set[str]:
    """Dotted names below ``root`` that a file imports at any depth of its body: statements in functions, in branches
    for types, and `import_module` with a text."""
    package = list(path.relative_to(root).parent.parts)
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("icl_curate.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = [*base, *(node.module.split(".") if node.module else [])]
            stem = stem[1:] if stem[:1] == ["icl_curate"] else stem
            names |= {".".join([*stem, alias.name]) for alias in node.names} | {".".join(stem)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names |= {
                part.value.lstrip(".")
                for part in node.args
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
    return names


def room_of(dotted: str) -> str:
    """The room of the engine that a name is of; empty for others."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == "engine" and len(parts) > 1 else ""


def strangers(rooms: set[str], allowed: set[str]) -> list[str]:
    """Imports of adding and reading rooms by the files of ``rooms`` (of the core, if it is empty) but for those
    ``allowed``."""
    files = [
        path
        for path in sorted(ENGINE.rglob("*.py"))
        if (own := path.relative_to(ENGINE).parts[0]) in rooms or (not rooms and own not in ADDING | READING)
    ]
    assert files
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in sorted(imported(path))
        if room_of(name) in (ADDING | READING) - allowed
    ]


def test_the_core_imports_no_adding_and_no_reading_room_at_any_depth() -> None:
    assert not strangers(set(), set())


def test_rooms_that_add_import_the_core_and_themselves_alone() -> None:
    """But for a paper that trains a model on this machine: it loads it as its backend does."""
    assert not strangers({"backends"}, {"backends"})
    assert not strangers({"baselines"}, {"baselines"})
    assert not strangers({"papers"}, {"papers", "backends"})


def test_papers_do_not_import_each_other() -> None:
    """``register.py`` names all of them."""
    papers = {path.name for path in (ENGINE / "papers").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert not [
        f"{path.relative_to(ROOT)} imports {name}"
        for own in sorted(papers)
        for path in sorted((ENGINE / "papers" / own).rglob("*.py"))
        for name in sorted(imported(path))
        if name.startswith("engine.papers.") and name.split(".")[2] in papers - {own}
    ]


def test_an_import_is_seen_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "engine" / "pool" / "odd.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..papers.topics import train\n"
        "def f():\n    from .. import watch\n    import_module('engine.baselines.mdl')\n"
        "    import icl_curate.engine.report\n"
    )
    assert {room_of(name) for name in imported(path, tmp_path)} - {""} == {"papers", "watch", "baselines", "report"}


ALONE = f"""
import sys
import icl_curate.engine.base.registry as registry
registry.EXTENSIONS.clear()
from icl_curate.cli import main
from icl_curate.engine.llm.spec import BACKENDS, BackendKind
from icl_curate.engine.llm.types import Answer, Capabilities

class Echo:
    '''Answers as the last demonstration does.'''
    spec, local, max_in_flight, batch_size = "echo", True, 1, 32
    def identity(self):
        return {{"spec": self.spec}}
    def count_tokens(self, prompt):
        return len(prompt.text.split())
    async def probe(self):
        return Capabilities(logprobs=False, scoring=False)
    async def ask(self, requests):
        shown = [request.prompt.demonstrations for request in requests]
        return [Answer(shots[-1].output if shots else "nothing", tokens_in=1, tokens_out=1) for shots in shown]
    async def close(self):
        pass

BACKENDS.add("echo", BackendKind(lambda spec, settings, encode, encoder: Echo()))

def run(*words):
    sys.argv = ["icl-curate", *words]
    try:
        main()
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise SystemExit(f"{{' '.join(words)}}: exit {{stop.code}}")
    loaded = sorted(name for name in sys.modules for room in {sorted(ADDING | READING)!r}
                    if name.startswith(f"icl_curate.engine.{{room}}"))
    if loaded:
        raise SystemExit(f"{{' '.join(words)}} loads {{loaded}}")
"""
"""A fresh interpreter in which no extension is loaded and an LLM of one's own answers, and ``run`` with the words of a
command."""

JOURNEY = (
    ("index", "{folder}/*-pool.jsonl", "--validation", "{folder}/queries.jsonl"),
    ("check",),
    ("evaluate", "-m", "bm25", "--split", "validation", "--llm", "echo"),
    ("train", "sources", "--llm", "echo", "--depth", "4"),
    ("curate", "--max-calls", "200", "--llm", "echo", "--yes"),
    ("preview", "my card was not accepted", "-m", "dense", "-k", "2"),
    ("export", "{folder}/out.jsonl"),
)


def test_the_core_works_with_no_extension(tmp_path: Path) -> None:
    """In one interpreter: what an earlier command loads would be seen after it."""
    for path in sorted((SAMPLE / "pool").glob("*.jsonl")):
        with path.open() as file:
            (tmp_path / f"{path.stem}-pool.jsonl").write_text("".join(islice(file, 20)))
    with (SAMPLE / "validation.jsonl").open() as file:
        (tmp_path / "queries.jsonl").write_text("".join(islice(file, 30)))
    lines = [
        f"run(*{[word.format(folder=tmp_path) for word in words]!r}, '-w', {str(tmp_path / 'w')!r})"
        for words in JOURNEY
    ]
    selected = f"""
from icl_curate import Selector
assert len(Selector({str(tmp_path / "w")!r}, method="bm25", k=2).select("my card was not accepted")) == 2
"""
    code = ALONE + "\n".join(lines) + selected
    code += "\nprint('all is done')"  # the commands set how the interpreter ends
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("all is done\n"), done.stderr[-2_000:]
