"""The rules of the house: what may import what, and what starting must not load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import icl_curate
import pytest

ROOT = Path(icl_curate.__file__).parent
FLOORS = [  # from the ground up; parts on one floor do not import each other
    {"base"},
    {"pool"},
    {"grading", "prompting"},
    {"store"},
    {"http", "shards"},
    {"retrieval", "jobs"},
    {"index", "llm"},
    {"checks", "trials"},
    {"select"},
    {"export"},
    {"evaluate"},
    {"curate"},
    {"backends", "baselines"},
    {"papers"},
    {"watch", "report"},
]
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
HEAVY = {
    "torch",
    "sentence_transformers",
    "transformers",
    "openai",
    "textual",
    "scipy",
    "sklearn",
    "cleanlab",
    "pandas",
    "pyarrow",
}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(path: Path) -> frozenset[str]:
    """Dotted names that a file imports, relative ones resolved to ``engine.pool.records`` and, as a name may be that of
    a module, ``engine.pool.records.Query``."""
    package = list(path.relative_to(ROOT).parent.parts)
    found: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            stem = [*base, *(node.module.split(".") if node.module else [])]
            found |= {".".join([*stem, alias.name]) for alias in node.names} | (
                {".".join(stem)} if node.module else set()
            )
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return frozenset(found)


def _part(dotted: str) -> str | None:
    parts = dotted.split(".")
    return parts[1] if parts[0] == "engine" and len(parts) > 1 else None


ENGINE = sorted((ROOT / "engine").rglob("*.py"))
FRONT = ("render", "facade", "serving", "tui", "commands")
"""Floors above the engine, from the ground up."""
FRONT_FILES = [*(path for floor in FRONT for path in sorted((ROOT / floor).rglob("*.py"))), ROOT / "cli.py"]


def _offenders(paths: Iterable[Path], wrong: Callable[[str, str], bool]) -> list[str]:
    """Each import of these files that is ``wrong``, as a line; it is asked with the part a file is of and the name."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in sorted(_imports(path))
        if wrong(path.relative_to(ROOT).parts[0], name)
    ]


def test_the_engine_imports_no_front_end_and_nothing_that_draws() -> None:
    above = {*FRONT, "cli", "typer", "textual", "rich", "starlette", "uvicorn"}
    assert not _offenders(ENGINE, lambda _, name: name.split(".")[0] in above)


def test_every_import_in_the_engine_points_down() -> None:
    wrong = []
    for path in ENGINE:
        own = _part(".".join(path.relative_to(ROOT).with_suffix("").parts))
        parts = {_part(name) for name in _imports(path)} - {None, own}
        wrong += [
            f"{path.relative_to(ROOT)} imports {part}"
            for part in sorted(filter(None, parts))
            if own in LEVEL and LEVEL[part] >= LEVEL[own]
        ]
    assert not wrong


def test_front_ends_import_what_lies_below_them() -> None:
    above: dict[str, set[str]] = {
        "cli.py": set(),
        "commands": {"cli", "facade"},
        "tui": {"cli", "commands", "facade"},
        "serving": {"cli", "commands", "tui", "facade"},
        "facade": {"cli", "commands", "tui", "serving"},
        "render": {"cli", "commands", "tui", "serving", "facade"},
    }
    assert not _offenders(FRONT_FILES, lambda own, name: name.split(".")[0] in above[own])


def test_front_ends_use_no_library_of_another() -> None:
    strange = {
        "render": {"textual", "typer"},
        "facade": {"textual", "typer", "starlette", "uvicorn"},
        "serving": {"textual", "typer", "rich"},
        "tui": {"typer", "starlette", "uvicorn"},
        "commands": {"textual", "starlette", "uvicorn"},
        "cli.py": {"textual"},
    }
    assert not _offenders(FRONT_FILES, lambda own, name: name.split(".")[0] in strange[own])


WITHOUT_TEXTUAL = [
    *sorted((ROOT / "tui" / "tabs").glob("*/model.py")),
    *sorted((ROOT / "tui" / "tabs").glob("*/rows.py")),
    *(ROOT / "tui" / "tabs" / "problems" / name for name in ("groups.py", "suspects.py")),
    ROOT / "tui" / "walk.py",
]


def test_models_and_rows_of_tabs_import_no_textual_by_any_way() -> None:
    assert len(WITHOUT_TEXTUAL) > 10
    assert not {start: way for start in WITHOUT_TEXTUAL if (way := _way_to_textual(start))}


def _way_to_textual(start: Path) -> str:
    """The file by way of which a file imports textual; empty if it does not."""
    seen: set[Path] = set()
    stack = [start]
    while stack:
        here = stack.pop()
        seen.add(here)
        for name in _imports(here):
            if name.split(".")[0] == "textual":
                return str(here.relative_to(ROOT))
            base = ROOT.joinpath(*name.split("."))
            stack += [
                file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file() and file not in seen
            ]
    return ""


def test_a_tab_with_a_state_keeps_it_in_a_model() -> None:
    """Of all tabs Overview alone shows what was read and no more."""
    tabs = {path.parent.name for path in (ROOT / "tui" / "tabs").glob("*/tab.py")}
    assert tabs - {path.parent.name for path in WITHOUT_TEXTUAL if path.name == "model.py"} == {"overview"}


VERSIONS = {
    "render/terminal.py": {"JSON_VERSION"},
    "engine/evaluate/results.py": {"SUMMARY_VERSION"},
    "engine/export/corpus.py": {"MANIFEST_VERSION"},
}
"""The modules that write a ``schema_version``, and what they write; only the first writes that of ``--json``."""


def test_the_version_of_json_has_one_owner_and_every_file_format_its_own() -> None:
    found: dict[str, set[str]] = {}
    for path in (file for part in ("engine", *FRONT) for file in (ROOT / part).rglob("*.py")):
        for node in ast.walk(_tree(path)):
            for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                if isinstance(key, ast.Constant) and key.value == "schema_version":
                    found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(ast.unparse(value))
    assert found == VERSIONS


MOST_LINES, MOST_METHODS = 400, 25
"""Of a class of the screen. What Textual calls by its name is not counted among the methods: each key and each message
has one of its own, which hands it on."""


def test_work_that_asks_is_prepared_first() -> None:
    """Two visible steps: `prepare` reads, searches and probes, `ask` pays; no constructor does either."""
    work = [
        (path, node)
        for path in ENGINE
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef) and {"cost", "ask"} <= _methods(node) and node.name != "PaidWork"
    ]
    assert len(work) > 10
    assert [f"{path}: {node.name}" for path, node in work if "__init__" in _methods(node)] == []
    assert [f"{path}: {node.name}" for path, node in work if "prepare" not in _methods(node)] == []


def _methods(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


VAGUE = {"found", "one", "known", "each", "kept"}
SPAN = 5
"""Lines over which such a name is still beside what it names."""


def test_a_local_that_lives_for_long_says_what_it_holds() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{function.lineno} {name}"
        for path in (*ENGINE, *FRONT_FILES)
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, lines in _lines_of_locals(function).items()
        if name in VAGUE and max(lines) - min(lines) >= SPAN
    ]
    assert offenders == []


def _lines_of_locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name | ast.arg):
            lines.setdefault(node.id if isinstance(node, ast.Name) else node.arg, []).append(node.lineno)
    return lines


def test_no_class_of_the_screen_does_everything() -> None:
    wrong = []
    for path in sorted((ROOT / "tui").rglob("*.py")):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
                own = [one.name for one in methods if not _called_by_textual(one)]
                lines = (node.end_lineno or 0) - node.lineno + 1
                if len(own) > MOST_METHODS or lines > MOST_LINES:
                    wrong.append(f"{node.name}: {lines} lines, {len(own)} methods")
    assert not wrong


def _called_by_textual(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """An action, a handler of messages, or a hook of a reactive attribute."""
    handles = [one.func for one in method.decorator_list if isinstance(one, ast.Call)]
    by_name = method.name.startswith(("action_", "on_", "watch_", "validate_"))
    return by_name or any(isinstance(one, ast.Name) and one.id == "on" for one in handles)


def test_every_part_of_the_engine_has_its_floor() -> None:
    parts = {path.relative_to(ROOT / "engine").parts[0].removesuffix(".py") for path in ENGINE} - {"__init__"}
    assert parts <= set(LEVEL)


def test_no_import_runs_in_a_circle() -> None:
    graph = {}
    for path in ENGINE:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        graph[name] = _imports(path)
    for start in graph:
        seen: set[str] = set()
        stack = [n for n in graph[start] if n in graph]
        while stack:
            here = stack.pop()
            assert here != start, f"{start} imports itself by way of others"
            if here not in seen:
                seen.add(here)
                stack += [n for n in graph[here] if n in graph]


def test_the_store_reads_and_writes_without_arrow() -> None:
    assert not [path.name for path in (ROOT / "engine" / "store").glob("*.py") if "pyarrow" in path.read_text()]


def test_inside_the_package_imports_are_relative() -> None:
    assert not _offenders([*ENGINE, *FRONT_FILES], lambda _, name: name.split(".")[0] == "icl_curate")


def _names(path: Path) -> set[str]:
    """What a module can be asked for: the names that it binds, those of modules beside a package's ``__init__``."""
    beside = {other.stem for other in path.parent.iterdir()} if path.name == "__init__.py" else set()
    bound = {
        node.id for node in ast.walk(_tree(path)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
    return bound | beside


def test_no_comma_follows_a_command_that_is_copied() -> None:
    """A shell would take it for a part of the command's last word, such as the name of a file."""
    command = re.compile(r"icl-curate [a-z-]+(?: [^ ;:,']+)*(?<![)]),(?= [a-z]|$)")
    found = []
    for part in ("engine", "commands", "render", "facade", "serving", "integrations"):
        for file in (ROOT / part).rglob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
            for node in ast.walk(tree):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                texts |= {id(each) for each in parts} if len(parts) > 1 else set()
                told = "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in parts)
                if id(node) not in texts and (comma := command.search(told)):
                    found.append(f"{file.name}: {comma[0]}")
    assert not [each for each in found if "icl-curate is " not in each and "command as you" not in each]


def test_benchmarks_ask_for_what_is_there() -> None:
    """No run imports them all, and neither does mypy."""
    wrong = []
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("icl_curate."):
                found = ROOT.joinpath(*node.module.split(".")[1:])
                module = found / "__init__.py" if found.is_dir() else found.with_suffix(".py")
                missing = {alias.name for alias in node.names} - (_names(module) if module.exists() else set())
                wrong += [f"{path.name}:{node.lineno}: no {name} in {node.module}" for name in sorted(missing)]
    assert not wrong


def test_there_is_one_door_to_every_llm() -> None:
    """`asking` looks at where prompts would go; nothing else opens what sends them."""
    openers = {"open_backend", "OpenAIServer", "LocalModel"}
    allowed = {"engine/backends/register.py", "engine/llm/asking.py"}
    for path in [*ENGINE, *FRONT_FILES]:
        calls = [node.func for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
        named = {f.id for f in calls if isinstance(f, ast.Name)} | {
            f.attr for f in calls if isinstance(f, ast.Attribute)
        }
        assert not named & openers or str(path.relative_to(ROOT)) in allowed, path


def _loaded(code: str, *arguments: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``code``."""
    probe = f"import sys\n{code}\nprint('MODULES', *{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("MODULES")), "")
    assert line, done.stderr
    return set(line.split()[1:])


COMMAND = """
from icl_curate.cli import main
sys.argv = ["icl-curate", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    assert stop.code in (0, None), stop.code
"""


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not _loaded("import icl_curate") & {*HEAVY, "duckdb", "numpy", "typer"}


def test_the_command_line_imports_typer_alone() -> None:
    assert not _loaded("import icl_curate.cli") & {*HEAVY, "duckdb", "numpy", "rich"}


def test_a_job_that_waits_for_its_turn_loads_no_engine() -> None:
    assert not _loaded("import icl_curate.cli, icl_curate.engine.jobs.child") & {*HEAVY, "duckdb", "numpy", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["index", "--help"]])
def test_help_and_version_load_no_engine(arguments: list[str]) -> None:
    assert not _loaded(COMMAND, *arguments) & {*HEAVY, "duckdb", "numpy"}


@pytest.mark.parametrize(
    "arguments", [["status"], ["status", "--json"], ["sources", "--json"], ["history"], ["config"], ["jobs"]]
)
def test_reading_commands_load_no_model(arguments: list[str], tmp_path: Path) -> None:
    from icl_curate.engine.store.workspace import Workspace

    Workspace.create(tmp_path)
    assert not _loaded(COMMAND, *arguments, "-w", str(tmp_path)) & HEAVY


def test_indexing_and_comparing_without_vectors_load_no_data_frames_and_no_model(tmp_path: Path) -> None:
    pool, test, folder = tmp_path / "pool.jsonl", tmp_path / "test.jsonl", str(tmp_path / "w")
    pool.write_text("".join(f'{{"input": "shot {i} tells", "output": "o{i % 3}"}}\n' for i in range(12)))
    test.write_text("".join(f'{{"input": "query {i}", "output": "o{i % 3}"}}\n' for i in range(6)))
    place = ("--no-encode", "-w", folder)
    assert not _loaded(COMMAND, "index", str(pool), "--test", str(test), *place) & (HEAVY - {"scipy"})
    compared = ("evaluate", "-m", "zero,random,bm25", "--dry-run")
    assert not _loaded(COMMAND, *compared, "-w", folder) & (HEAVY - {"scipy"})


SERVED = """
from pathlib import Path
import icl_curate.serving.service as serving
from icl_curate.engine.store.settings import Settings
service = serving.Service(Path(sys.argv[1]), Settings(method="bm25", k=2))
(found,) = service.answer([serving.Ask((serving.Query("shot 3"),), "bm25", 2)])
assert len(found[0]["demonstrations"]) == 2, found
service.close()
"""


def test_selection_for_a_serving_process_loads_no_model_and_no_compiler(tmp_path: Path) -> None:
    from icl_curate.engine.index.build import IndexPlan, index_pool
    from icl_curate.engine.store.workspace import Workspace

    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(f'{{"input": "shot {i} tells", "output": "o{i % 3}"}}\n' for i in range(12)))
    index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(pool),), encoder=None))
    loaded = _loaded(SERVED, str(tmp_path / "w"))
    assert not loaded & (HEAVY | {"numba", "starlette", "rich", "typer"})


def test_right_and_wrong_are_said_by_the_metric_alone() -> None:
    """Who asks whether an answer is right goes by `grading.metrics`, so that any metric decides."""
    allowed = {ROOT / "engine" / "pool" / "answers.py", *(ROOT / "engine" / "grading").glob("*.py")}
    others = [path for path in (*ENGINE, *FRONT_FILES) if path not in allowed]
    assert not _offenders(others, lambda _, name: name.rpartition(".")[2] == "is_correct")
