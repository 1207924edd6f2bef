"""The picture of the layers, drawn from the imports: docs/layers.svg.

    python docs/layers.py            # writes the picture
    python docs/layers.py --check    # writes nothing; exit code 1 if the picture is out of date

The standard library alone: files are parsed, nothing is imported. A part's level is one above the highest part that it
imports, so every line runs down. Left out are lines that follow from others, and those to the modules at the bottom
that everyone may use.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path(__file__).with_name("layers.svg")
STOREYS = ("cli", "commands", "tui", "serving", "facade", "render", "engine")
"""What the package is made of, from the top down."""

ABOUT = {
    "cli": "the apps, root options, main",
    "commands": "options in, engine called, result shown",
    "tui": "the screen of review: Textual",
    "serving": "selection over HTTP: Starlette",
    "facade": "Pool: all of it in Python",
    "render": "tables and lines on a terminal: rich",
    "engine": "everything that computes; knows no screen",
}

BOX, GAP, RISE, MARGIN = (96, 30), 14, 46, 24
"""Width and height of a part's box, the gap between two, the space between two levels, and the border."""

Graph = Mapping[str, frozenset[str]]


def imports(path: Path, root: Path = ROOT) -> set[str]:
    """Dotted names within the package that a file imports relatively, from ``root``: ``engine.pool.records``."""
    package = list(path.relative_to(root).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            stem = ".".join(filter(None, base))
            found |= {f"{stem}.{alias.name}" if stem else alias.name for alias in node.names}
    return found


def storeys(root: Path = ROOT) -> Graph:
    """Which storey imports which."""
    return _graph(((path.relative_to(root).parts, imports(path, root)) for path in _files(root)), STOREYS, 0)


def parts(root: Path = ROOT) -> Graph:
    """Which part of the engine imports which."""
    engine = root / "engine"
    names = {path.relative_to(engine).parts[0].removesuffix(".py") for path in engine.rglob("*.py")} - {"__init__"}
    files = ((path.relative_to(root).parts, imports(path, root)) for path in engine.rglob("*.py"))
    return _graph(files, names, 1)


def _files(root: Path) -> list[Path]:
    return [root / "cli.py", *(path for name in STOREYS for path in (root / name).rglob("*.py"))]


def _graph(files: Iterable[tuple[tuple[str, ...], set[str]]], names: Iterable[str], depth: int) -> Graph:
    """``depth``: the position in a dotted name of the node."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for path, imported in files:
        own = path[depth].removesuffix(".py") if len(path) > depth else ""
        if own not in found:
            continue
        for name in imported:
            words = name.split(".")
            if len(words) > depth and words[:depth] == list(path[:depth]) and words[depth] in found:
                found[own].add(words[depth])
    return {name: frozenset(below - {name}) for name, below in found.items()}


def levels(graph: Graph) -> dict[str, int]:
    """0 for what imports nothing of the graph, else one above the highest it imports. `ValueError` for a circle."""
    found: dict[str, int] = {}

    def level(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            raise ValueError(f"imports run in a circle: {' → '.join([*above, name])}")
        if name not in found:
            found[name] = 1 + max((level(below, (*above, name)) for below in graph[name]), default=-1)
        return found[name]

    for name in graph:
        level(name)
    return found


def reduced(graph: Graph) -> Graph:
    """The same without imports that also lead there by way of another part."""

    def reach(name: str) -> set[str]:
        return set(graph[name]).union(*(reach(below) for below in graph[name]))

    return {
        name: frozenset(b for b in below if not any(b in reach(other) for other in below - {b}))
        for name, below in graph.items()
    }


def picture(root: Path = ROOT) -> str:
    """The picture as SVG: the storeys above, the parts of the engine below them."""
    everyone = parts(root)
    shared = {name for name, level in levels(everyone).items() if level == 0}
    graph = {name: below - shared for name, below in everyone.items() if name not in shared}
    by_name = levels(graph)
    rows = [sorted(n for n in by_name if by_name[n] == i) for i in range(max(by_name.values()) + 1)]
    width = max(len(row) for row in rows) * (BOX[0] + GAP) - GAP + 2 * MARGIN
    width = max(width, 640)
    upper = len(STOREYS) * 34
    height = 2 * MARGIN + upper + 26 + len(rows) * (BOX[1] + RISE) - RISE + 54
    places: dict[str, tuple[float, float]] = {}
    for i, row in enumerate(reversed(rows)):
        left = (width - len(row) * (BOX[0] + GAP) + GAP) / 2
        for j, name in enumerate(row):
            places[name] = left + j * (BOX[0] + GAP), MARGIN + upper + 26 + i * (BOX[1] + RISE)
    boxes = (_box(name, *at) for name, at in places.items())
    drawn = [*_storeys(width), *_lines(reduced(graph), places), *boxes, *_bar(shared, width, height - MARGIN - 28)]
    about = "Layers of icl-curate: five storeys, and the parts of the engine from the top down"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{about}" font-family="system-ui, sans-serif" font-size="13">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _storeys(width: int) -> Iterable[str]:
    for i, name in enumerate(STOREYS):
        y = MARGIN + i * 34
        fill = "#e8eef7" if name != "engine" else "#dff0e4"
        yield f'<rect x="{MARGIN}" y="{y}" width="{width - 2 * MARGIN}" height="28" rx="4" fill="{fill}"/>'
        yield f'<text x="{MARGIN + 12}" y="{y + 19}" font-weight="600" fill="#1d2733">{name}</text>'
        yield f'<text x="{MARGIN + 110}" y="{y + 19}" fill="#4a5568">{escape(ABOUT[name])}</text>'


def _bar(names: Iterable[str], width: int, y: int) -> Iterable[str]:
    yield f'<rect x="{MARGIN}" y="{y}" width="{width - 2 * MARGIN}" height="28" rx="4" fill="#f1f1ec"/>'
    text = f"for everyone: {', '.join(sorted(names))}"
    yield f'<text x="{width / 2:g}" y="{y + 19}" text-anchor="middle" fill="#4a5568">{escape(text)}</text>'


def _lines(graph: Graph, places: Mapping[str, tuple[float, float]]) -> Iterable[str]:
    for name in sorted(graph):
        for below in sorted(graph[name]):
            (x1, y1), (x2, y2) = places[name], places[below]
            begin, end = y1 + BOX[1], y2
            middle = (begin + end) / 2
            x1, x2 = x1 + BOX[0] / 2, x2 + BOX[0] / 2
            path = f"M{x1:g},{begin:g} C{x1:g},{middle:g} {x2:g},{middle:g} {x2:g},{end:g}"
            yield f'<path d="{path}" fill="none" stroke="#9aa8b8" stroke-width="1.3"/>'


def _box(name: str, x: float, y: float) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="5" fill="#dff0e4" stroke="#5b9a70"/>'
        f'<text x="{x + BOX[0] / 2:g}" y="{y + 20:g}" text-anchor="middle" fill="#1d2733">{escape(name)}</text>'
    )


def main() -> int:
    drawn = picture()
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn:
        return 0
    if "--check" in sys.argv:
        sys.stderr.write("out of date: docs/layers.svg\n")
        return 1
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
