"""The pictures of ``review`` in the README: the app is driven by keys, its screen saved as SVG.

    python docs/screens.py WORKSPACE NAME 120x34 KEY KEY …

writes ``docs/NAME.svg``. A key is one of Textual's names, ``=text`` is typed. Whatever is under way is waited for after
each of them. Nothing of the session is remembered in the workspace.
"""

from __future__ import annotations

import asyncio
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


def main() -> None:
    workspace, name, size, *keys = sys.argv[1:]
    width, height = map(int, size.split("x"))
    drawn = asyncio.run(picture(Path(workspace), (width, height), keys))
    Path(__file__).with_name(f"{name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
