"""What each command costs on pools of 100,000 to 10 million short rows.

    python benchmarks/scale.py [--rows 100000] [--encoder static|none] [--dimension 384] [--folder DIR] [--limit 3600]
        [--topics 5000] [--only NAME,NAME] [--keep]

Rows of some 60 characters, words by Zipf's law, two in a hundred an edited copy of another; 64 test queries. The
encoder is made here: one random vector for each word (``static``), as large as a real one's but computed at once.
Answers come from the offline LLM. Every command is a process of its own; shown are its seconds, its CPU seconds, its
peak memory with mapped files and without (looked at as it runs), and what the workspace grew by on the disk. ``review``
is driven without a terminal. ``--only`` runs some commands; with ``--keep`` the folder stays for further ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sizes import run

QUERIES = 64
VOCABULARY, WORDS = 50_000, 9
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u")]
BLOCK = 100_000
PAGE = "first page of review"


def vocabulary() -> list[str]:
    """Words of two to four syllables, the most frequent the shortest."""
    size = len(SYLLABLES)
    found = []
    for i in range(VOCABULARY):
        number, parts = i, []
        while number or len(parts) < 2:
            parts.append(SYLLABLES[number % size])
            number //= size
        found.append("".join(parts))
    return found


def texts(rows: int, seed: int) -> Iterator[str]:
    """The inputs: Zipf's law with exponent 1, so that the most frequent word is in more than half of the rows."""
    draw, words = np.random.default_rng(seed), np.array(vocabulary(), dtype=object)
    shares = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    before = ""
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        chosen = words[np.searchsorted(shares / shares[-1], draw.random((count, WORDS)))]
        for i, row in enumerate(chosen.tolist(), start):
            text = f"{before} {row[0]}" if before and i % 50 == 49 else " ".join(row)
            before = text
            yield text


def write(path: Path, rows: int, seed: int = 0, prefix: str = "r") -> None:
    with path.open("w") as file:
        for i, text in enumerate(texts(rows, seed)):
            line = {"id": f"{prefix}{i}", "input": text, "output": f"label {i % 12}", "source": f"s{i % 20}"}
            file.write(json.dumps(line) + "\n")


def make_encoder(folder: Path, dimension: int) -> None:
    """A sentence-transformers model whose vectors are means of one random vector for each word."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = {word: i for i, word in enumerate(["[UNK]", *vocabulary()])}
    tokeniser = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokeniser.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = torch.randn(len(known), dimension, generator=torch.Generator().manual_seed(0))
    module = StaticEmbedding(tokeniser, embedding_weights=weights)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))


def commands(folder: Path, encodes: bool, topics: int) -> dict[str, list[str]]:
    """Each command by its name in the table, in the order in which they run; ``topics`` are trained."""
    asked = next(texts(1, 2))
    few = ["--sample", "2000", "--questions", "100", "--epochs", "3", "--size", str(topics)]
    pool, workspace = ["index", str(folder / "pool.jsonl"), "--test", str(folder / "test.jsonl")], folder / "w"
    dense = {
        "index, vectors": [*pool],
        "preview dense": ["preview", asked, "-m", "dense"],
        "preview dpp": ["preview", asked, "-m", "dpp"],
        f"evaluate dense, {QUERIES} queries": ["evaluate", "-m", "dense"],
        f"evaluate dpp, {QUERIES} queries": ["evaluate", "-m", "dpp"],
        "train topics": ["train", "topics", *few],
        "preview topick": ["preview", asked, "-m", "topick"],
        f"evaluate topick, {QUERIES} queries": ["evaluate", "-m", "topick"],
    }
    made = {
        "index --no-encode": [*pool, "--no-encode"],
        "index again, unchanged": [*pool, "--no-encode"],
        "status": ["status"],
        "demos": ["demos"],
        "demos --search": ["demos", "-s", asked[:12]],
        "preview bm25": ["preview", asked, "-m", "bm25"],
        f"evaluate bm25, {QUERIES} queries": ["evaluate", "-m", "bm25"],
        **(dense if encodes else {}),
        PAGE: [],
        "prune --source": ["prune", "--source", "s1"],
        "preview bm25, pruned": ["preview", asked, "-m", "bm25"],
        "undo": ["undo"],
        "export": ["export", str(folder / "out.jsonl"), "--force"],
        "export --deduplicate": ["export", str(folder / "out.jsonl"), "--deduplicate", "--force"],
    }
    return {name: [*words, "-w", str(workspace)] if words else [] for name, words in made.items()}


async def first_page(workspace: Path) -> None:
    """Seconds until Overview and then the first rows of Demos are shown, counted from a started interpreter."""
    start = time.perf_counter()
    from icl_curate.tui.app import ReviewApp

    app = ReviewApp(workspace)
    app.save = lambda: None  # type: ignore[method-assign]
    async with app.run_test(size=(120, 40)):
        while app.tab is None or app.tab.stale or any(not worker.is_finished for worker in app.workers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        overview = time.perf_counter() - start
        app.visit("demos")
        await asyncio.sleep(0)
        while "r0" not in _shown(app) and time.perf_counter() - start < 600:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print(f"overview {overview:.1f} s, rows {time.perf_counter() - start - overview:.1f} s")


def _shown(app: object) -> str:
    """The text on the screen."""
    compositor = app.screen._compositor  # type: ignore[attr-defined]
    return "\n".join("".join(part.text for part in strip) for strip in compositor.render_strips())


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=100_000)
    arguments.add_argument("--encoder", choices=("static", "none"), default="static")
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--topics", type=int, default=5000, help="Topics that are trained.")
    arguments.add_argument("--folder", type=Path, help="Where the files go; gone afterwards.")
    arguments.add_argument("--limit", type=float, default=3600.0, help="Seconds a command may take.")
    arguments.add_argument("--only", default="", help="Beginnings of names of commands, separated by commas.")
    arguments.add_argument("--keep", action="store_true", help="Keep the folder.")
    arguments.add_argument("--first-page", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.first_page:
        return asyncio.run(first_page(given.first_page))
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ICL_CURATE_"))]:
        del os.environ[name]
    folder = given.folder or Path(tempfile.mkdtemp(prefix="scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"ICL_CURATE_CONFIG": str(folder / "none.toml"), "ICL_CURATE_LLM": "offline"}
    os.environ |= {"ICL_CURATE_ENCODER": str(folder / "encoder"), "HF_HUB_OFFLINE": "1"}
    try:
        if not (folder / "pool.jsonl").exists():
            write(folder / "pool.jsonl", given.rows)
            write(folder / "test.jsonl", QUERIES, 1, "q")
        if not (folder / "encoder").exists():  # the offline LLM needs one, too
            make_encoder(folder / "encoder", given.dimension)
        wanted = commands(folder, given.encoder == "static", given.topics)
        table(folder, wanted, [*filter(None, given.only.split(","))], given.limit)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


def table(folder: Path, wanted: dict[str, list[str]], only: list[str], limit: float) -> None:
    print(f"{(folder / 'pool.jsonl').stat().st_size / 1e6:,.0f} MB of rows; load {os.getloadavg()[0]:.1f}")
    print(f"{'':34}{'s':>9}{'CPU s':>9}{'MiB':>9}{'own MiB':>9}{'disk MB':>9}", flush=True)
    for name, words in wanted.items():
        if only and not name.startswith(tuple(only)):
            continue
        before = size_of(folder / "w")
        program = None if words else [sys.executable, __file__, "--first-page", str(folder / "w")]
        cost = run(words, folder, limit, program)
        grown = (size_of(folder / "w") - before) / 1e6
        said = (folder / "out").read_text(errors="replace").strip() if program else ""
        fell = f"   exit code {cost.code}: {cost.said[:150]}" if cost.code else f"   {said}" if said else ""
        figures = f"{cost.wall:9.1f}{cost.cpu:9.1f}{cost.peak / 1024:9,.0f}{cost.own / 1024:9,.0f}{grown:9,.0f}"
        print(f"{name:34}{figures}   load {os.getloadavg()[0]:.1f}{fell}", flush=True)
    for path in sorted((folder / "w").rglob("*")):
        if path.is_file() and path.stat().st_size > 1e6:
            print(f"  {path.stat().st_size / 1e6:9,.0f} MB  {path.relative_to(folder / 'w')}")


if __name__ == "__main__":
    main()
