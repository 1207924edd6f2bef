"""The pictures of ``review`` in README and docs: the app is driven by keys, its screen saved as SVG.

    python docs/screens.py WORKSPACE NAME 120x34 KEY KEY …
    python docs/screens.py pool FOLDER

writes ``docs/NAME.svg``. A key is one of Textual's names, ``=text`` is typed. Whatever is under way is waited for after
each of them. Nothing of the session is remembered in the workspace. ``pool`` writes the
messy files of docs/tour.md, cut from sample_data.
"""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sys
from pathlib import Path

from icl_curate.tui.app import ReviewApp

QUIET = 0.6
"""Seconds without work under way after which a screen is taken to be settled."""


async def settled(app: ReviewApp) -> None:
    quiet = 0.0
    while quiet < QUIET:
        await asyncio.sleep(0.05)
        busy = not app.tabs or any(worker.is_running for worker in app.workers)
        quiet = 0.0 if busy else quiet + 0.05


async def picture(workspace: Path, size: tuple[int, int], keys: list[str]) -> str:
    """The SVG of the screen after the keys, without the web font that Textual names: any monospace does."""
    app = ReviewApp(workspace)
    app.save = lambda: None  # type: ignore[method-assign]
    async with app.run_test(size=size) as pilot:
        await settled(app)
        for key in keys:
            await pilot.press(*(key[1:] if key.startswith("=") else [key]))
            await settled(app)
        drawn = app.export_screenshot(title="icl-curate review", simplify=True)
    drawn = drawn.replace("<text ", '<text xml:space="preserve" ')
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return drawn.replace("font-family: Fira Code", "font-family: ui-monospace, Menlo, Consolas, DejaVu Sans Mono")


SUPPORT = Path(__file__).parents[1] / "sample_data" / "support"


def messy_pool(folder: Path) -> None:
    """Three files of a pool with repeats, leaks, gaps and a broken line, and a file of queries."""
    folder.mkdir(parents=True, exist_ok=True)
    agents, crowd, archive, asked = (
        [(row["input"], row["output"]) for row in map(json.loads, (SUPPORT / name).read_text().splitlines()[:most])]
        for name, most in (
            ("pool/helpdesk_team.jsonl", 110),
            ("pool/crowd_batch.jsonl", 70),
            ("pool/archive_2019.jsonl", 60),
            ("validation.jsonl", 60),
        )
    )
    agents += [agents[3 * i] for i in range(8)] + [("", "refund_status"), ("Where is my invoice?", "")] + asked[:3]
    for name, rows, delimiter in (("agents", agents, ","), ("archive", archive, ";"), ("questions", asked, ",")):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter).writerows([("ticket", "category"), *rows])
    lines = [json.dumps({"ticket": ticket, "category": category}) for ticket, category in crowd]
    (folder / "crowd.jsonl").write_text("\n".join([*lines, '{"ticket": "half a line, "catego\n']), encoding="utf-8")


def main() -> None:
    if sys.argv[1] == "pool":
        messy_pool(Path(sys.argv[2]))
        return
    workspace, name, size, *keys = sys.argv[1:]
    width, height = map(int, size.split("x"))
    drawn = asyncio.run(picture(Path(workspace), (width, height), keys))
    Path(__file__).with_name(f"{name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
