"""The documentation holds what it says: pages made from the code are current, and what pages name exists."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import icl_curate
import pytest
import typer
from factories.commands import Run
from icl_curate.cli import app
from icl_curate.tui.actions import Acting
from icl_curate.tui.app import FRAME, import_tabs

ROOT = Path(icl_curate.__file__).parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
WRITTEN = [page for page in PAGES if page.name not in ("cli.md", "settings.md")]
"""Pages written by people."""

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="an installed package brings no docs")


def test_the_latest_release_in_the_changelog_is_the_version_of_the_package() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    release = re.fullmatch(r"(\S+) \(\d{4}-\d\d-\d\d\)", headings[1])
    assert release and release[1] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


# made from the code


def test_a_reference_page_is_what_the_code_says_now() -> None:
    pages = script("make_reference").PAGES
    stale = [name for name, page in pages.items() if (DOCS / "reference" / name).read_text(encoding="utf-8") != page()]
    assert not stale, "run: python docs/make_reference.py"


def test_the_reference_holds_every_command_and_option() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for words, command in commands():
        assert f" {' '.join(words)}\n" in text
        for option in options(command):
            assert option in text, (words, option)


def test_the_picture_of_the_layers_is_drawn_from_the_imports_of_now() -> None:
    assert (DOCS / "layers.svg").read_text(encoding="utf-8") == script("layers").picture(), "run: python docs/layers.py"


def test_layers_run_down_and_a_circle_is_refused(tmp_path: Path) -> None:
    layers = script("layers")
    graph = layers.parts()
    level = layers.levels(graph)
    assert all(level[below] < level[name] for name in graph for below in graph[name])
    assert {"pool", "store", "select"} <= set(graph)
    for name, text in {
        "a": "from .b import x",
        "b": "from .c import y",
        "c": "",
        "d": "from .a import z\nfrom .c import y",
    }.items():
        (tmp_path / "engine").mkdir(exist_ok=True)
        (tmp_path / "engine" / f"{name}.py").write_text(text, encoding="utf-8")
    small = layers.parts(tmp_path)
    assert layers.levels(small) == {"a": 2, "b": 1, "c": 0, "d": 3}
    assert layers.reduced(small)["d"] == {"a"}, "c is also reached by way of a"
    (tmp_path / "engine" / "c.py").write_text("from .a import x", encoding="utf-8")
    with pytest.raises(ValueError, match="circle"):
        layers.levels(layers.parts(tmp_path))


# what pages name


NAME = re.compile(r"`((?:engine|render|commands|tui)(?:\.\w+)+)`")
FILE = re.compile(
    r"`((?:engine|render|commands|tui|docs|tests|benchmarks|sample_data)/[\w/.-]*|[\w-]+\.(?:py|toml|txt))`"
)


def test_every_module_function_and_file_that_a_page_names_exists() -> None:
    wrong = []
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        missing = [dotted for dotted in NAME.findall(text) if not resolved(dotted)]
        for name in FILE.findall(text):  # one with NAME in it stands for a name of one's own
            looked_up = "/" in name or name in ("cli.py", "pyproject.toml", "constraints.txt")
            if looked_up and "NAME" not in name and not (ROOT / name).exists():
                missing.append(name)
        wrong += [f"{named(page)}: {name} does not exist" for name in missing]
    assert not wrong


def resolved(dotted: str) -> bool:
    """Whether ``engine.papers.sources.estimators.ascend`` is a module, or something in one."""
    words = dotted.split(".")
    for end in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["icl_curate", *words[:end]]))
        except ModuleNotFoundError:
            continue
        for word in words[end:]:
            found = getattr(found, word, None)
        return found is not None
    return False


def test_a_paper_page_ties_each_equation_to_code() -> None:
    for page in sorted((DOCS / "papers").glob("*.md")):
        assert len(NAME.findall(page.read_text(encoding="utf-8"))) >= 8, page
    assert resolved("engine.papers.sources.gradient.multilinear_gradient")
    assert not resolved("engine.papers.sources.gradient.no_such_function")
    assert not resolved("engine.nowhere.at_all")


LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_every_link_leads_somewhere() -> None:
    assert not [
        f"{named(page)}: {link}"
        for page in [*PAGES, ROOT / "CHANGELOG.md"]
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not link.startswith(("http://", "https://", "#")) and not (page.parent / link.partition("#")[0]).exists()
    ]


def test_every_page_is_reached_from_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")):
        assert f": {page.relative_to(DOCS).as_posix()}\n" in menu + "\n", page


# Python in pages


def test_the_python_reference_has_all_that_is_exported_and_the_options_of_every_plan() -> None:
    """Missing objects are errors of the site's build."""
    told = re.findall(r"(?m)^::: icl_curate\.([\w.]+)$", (DOCS / "reference" / "python.md").read_text(encoding="utf-8"))
    assert {*icl_curate.__all__} - {"CurateError"} <= {*told}
    assert resolved("engine.base.errors.CurateError") and "engine.base.errors" in told
    plans = set(re.findall(r"`(\w+Plan)`", (ROOT / "facade" / "pool.py").read_text(encoding="utf-8")))
    assert len(plans) == 12 and plans <= {name.rpartition(".")[2] for name in told}
    assert all(resolved(name) for name in told if "." in name)


def test_classes_that_docstrings_name_lead_to_their_headings() -> None:
    html = '<h3 id="icl_curate.Pool">Pool</h3> <code>Pool</code> <code>Row</code> <code>rows</code> <code>Pool()</code>'
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/python.md"))
    linked = script("names").on_page_content(html, page)
    assert linked == html.replace("<code>Pool</code>", '<a href="#icl_curate.Pool"><code>Pool</code></a>')
    page.file.src_uri = "index.md"
    assert script("names").on_page_content(html, page) == html


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's build runs it in Jupyter; it is kept without what it shows."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((DOCS / "notebooks" / "curate.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for cell in cells:
        assert not cell["outputs"]
        exec("".join(cell["source"]), names)
    assert names["after"].methods["dense"].accuracy > names["before"].methods["dense"].accuracy
    assert len(list(tmp_path.rglob("curated.jsonl"))) == 1
    assert sum(len(cell["source"]) for cell in cells) < 40


# commands in pages


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command by its words, groups included."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        if words:
            yield words, command
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*words, name))

    yield from walk(typer.main.get_command(app), ())


def options(command: Any) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}


def typed(text: str) -> Iterator[str]:
    """Command lines of code blocks and of inline code, the program's name left off."""
    blocks = re.findall(r"```(?:bash|text)\n(.*?)```", text, re.DOTALL) + re.findall(r"(?m)^ {4}(.*)$", text)
    for block in blocks:
        for line in block.splitlines():
            for part in re.split(r"&&|;", line.partition("    #")[0]):
                if found := re.match(r"\s*(?:\$ )?(?:\S*/)?icl-curate (.+)", part):
                    yield found[1].partition(" #")[0]
    yield from re.findall(r"`(?:\S*/)?icl-curate ([^`]+)`", text.replace("\n", " "))


ALWAYS = {"--help", "-h"}


def mistakes(lines: Iterable[tuple[str, str]]) -> list[str]:
    """What cannot be typed of command lines, each with the place where it stands."""
    known = dict(commands())
    root = options(typer.main.get_command(app)) | ALWAYS
    wrong = []
    for where, line in lines:
        words = shlex.split(line.replace("…", "X"))
        while words and words[0] in root:
            words = words[1:]
        if not words or words[0] in ("COMMAND", "X"):
            continue
        name = max((n for n in known if tuple(words[: len(n)]) == n), key=len, default=None)
        if not name:
            wrong.append(f"{where}: no such command: {line}")
            continue
        rest = words[len(name) :]
        given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)}
        if strange := given - options(known[name]) - ALWAYS:
            wrong.append(f"{where}: {line}: {strange}")
        if getattr(known[name], "commands", {}) and rest and re.match(r"[a-z]", rest[0]):
            wrong.append(f"{where}: no such command: {line}")
    return wrong


def test_every_command_that_a_page_shows_can_be_typed() -> None:
    texts = {named(page): page.read_text(encoding="utf-8") for page in WRITTEN}
    assert not mistakes((name, line) for name, text in texts.items() for line in typed(text))


def test_every_command_that_help_on_the_screen_names_can_be_typed() -> None:
    import_tabs()
    found, actions = [Acting], set(FRAME)
    for part in found:
        found += part.__subclasses__()
        actions |= set(part.ACTIONS)
    shown = [(action.name, action.cli.removeprefix("icl-curate ")) for action in actions if action.cli]
    assert len(shown) > 50 and not mistakes(shown)


# the readme


def test_the_readme_is_short_and_needs_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    made = [match[1] for line in lines if (match := re.match(r" {4}make (\w+)", line))]
    assert made == ["demo", "test"]
    for target in [*made, "docs"]:
        assert re.search(rf"(?m)^{target}:", makefile)


def test_the_rows_that_the_tour_previews_are_shown_on_every_processor(support: Path, run: Run) -> None:
    """Vectors in bfloat16, which some processors compute, change the order of near ties, but not the rows shown."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    query, k = re.search(r"preview \"(.+)\" -k (\d+)", text).groups()  # type: ignore[union-attr]
    shown = re.findall(r"(?m)^ {4}\d 0\.\d{3} \w+ +(\w\w-\d{4}) .* (\w+)$", text)
    rows = run("preview", query, "-k", int(k) + 1, "-w", support, "--json").json["demonstrations"]
    assert {(row["id"], row["output"]) for row in rows[:-1]} == set(shown)
    assert len(shown) == int(k) and len({label for _, label in shown}) > 1  # the point of the tour
    assert min(row["score"] for row in rows[:-1]) > rows[-1]["score"] + 0.002


def test_every_extra_that_is_named_exists() -> None:
    extras = {
        project["name"]: set(project["optional-dependencies"])
        for folder in (".", "full")
        for project in [tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]]
    }
    for page in WRITTEN:
        for name, named_extras in re.findall(r"(icl-curate[\w-]*)\[([\w,]+)\]", page.read_text(encoding="utf-8")):
            assert set(named_extras.split(",")) <= extras[name], page


# the contracts


SHOWN: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "sources": ("sources",),
    "demos": ("demos", "-n", "1"),
    "flips": ("flips", "-n", "1"),
    "preview": ("preview", "a question", "-m", "bm25", "-k", "2"),
    "prune, suspects prune, flips prune, undo, redo, tune": ("prune", "--source", "noisy", "--dry-run"),
    "history": ("history",),
    "config": ("config",),
}
"""Contracts that cost nothing to see; the others have tests of their own."""


def test_the_page_of_contracts_names_every_key() -> None:
    told = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    known = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", told))))
    kept = json.loads((Path(__file__).parent / "commands" / "json_keys.json").read_text(encoding="utf-8"))
    lacking = {command: {key for key in keys if key.isidentifier()} - known for command, keys in kept.items()}
    assert not {command: keys for command, keys in lacking.items() if keys}


def contract(heading: str) -> list[tuple[str, set[str]]]:
    """What the page promises under a heading: keys of the object (the first paragraph), and of its lists by name."""
    text = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found: list[tuple[str, set[str]]] = []
    for paragraph in re.split(r"\n\n+", section.strip()):
        for part in re.split(r"(?<=[.;]) ", " ".join(paragraph.split())):
            if match := re.match(r"`(\w+)\[\]`: (.+)", part):
                found.append((match[1], set(re.findall(r"`(\w+)`", match[2]))))
            elif not found and part.startswith("`"):
                found.append(("", set(re.findall(r"`(\w+)`", part))))
    return found


@pytest.mark.parametrize("heading", SHOWN)
def test_a_contract_holds_what_its_page_promises(heading: str, taught: Path, run: Run) -> None:
    promised = contract(heading)
    assert promised and all(keys for _, keys in promised)
    if heading == "history":
        assert run("prune", "--source", "noisy", "-w", taught).code == 0
    done = run(*SHOWN[heading], "--json", "-w", taught)
    assert done.code == 0, done.err
    shown = done.json
    assert shown["schema_version"] == 1
    for name, keys in promised:
        rows = [shown] if not name else shown[name]
        assert rows, f"no {name} to look at"
        for row in rows:
            assert keys <= set(row), (heading, name, keys - set(row))
