"""The equations of paper 004 against straight-line float64 references."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.papers.topics import selection
from icl_curate.engine.papers.topics.match import Links, lexical_candidates, links_of, semantic_candidates
from icl_curate.engine.papers.topics.predictor import (
    Predictor,
    TorchAdam,
    eq4,
    fit,
    ranking_quality,
    sigmoid,
    started,
    topical_knowledge,
)
from icl_curate.engine.papers.topics.ranks import greedy_by_rank
from icl_curate.engine.papers.topics.report import coverage_of
from icl_curate.engine.papers.topics.selection import Coverage, greedy, required_topics
from icl_curate.engine.papers.topics.train import distinctiveness, log_distinctiveness, neighbours, soft_targets
from icl_curate.engine.pool.words import fold
from icl_curate.engine.retrieval import bm25
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

Array = NDArray[np.float32]
SCORES = st.lists(st.floats(0, 30), min_size=4, max_size=4)


def _random(seed: int, topics: int = 12, d: int = 8, n: int = 40) -> tuple[Predictor, Array]:
    """A predictor with every weight at random, and embeddings of length 1."""
    rng = np.random.default_rng(seed)
    shapes = ((d, d), (d,), (d, d), (d,), (topics, d), (topics,))
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    vectors = rng.normal(size=(n, d))
    return Predictor(*weights), (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _predict(predictor: Predictor, vector: NDArray[np.float64]) -> list[float]:
    """The MLP written out in float64."""
    p = {name: np.asarray(getattr(predictor, name), np.float64) for name in Predictor.__slots__}
    hidden = [max(0.0, float(row @ vector) + b) for row, b in zip(p["first"], p["first_bias"], strict=True)]
    inner = [
        float(e) + float(row @ np.array(hidden)) + b
        for e, row, b in zip(vector, p["second"], p["second_bias"], strict=True)
    ]
    logits = [float(row @ np.array(inner)) + b for row, b in zip(p["last"], p["last_bias"], strict=True)]
    return [1 / (1 + math.exp(-x)) for x in logits]


def _pairs(rng: np.random.Generator, texts: int, topics: int, each: int) -> Links:
    """``each`` topics of every text, drawn at random."""
    drawn = rng.permuted(np.tile(np.arange(topics), (texts, 1)), axis=1)[:, :each]
    return links_of(texts, np.repeat(np.arange(texts), each), drawn.ravel(), np.ones(drawn.size, np.float32))


# equations 2 and 3


@given(SCORES, st.lists(SCORES, min_size=4, max_size=4))
def test_soft_targets_are_equations_2_and_3(own: list[float], others: list[list[float]]) -> None:
    dst = [math.exp(s) / (1 + math.fsum(map(math.exp, row))) for s, row in zip(own, others, strict=True)]
    starts = [0, 1, 1, 4]  # texts of one, no and three topics
    wanted = [value / max(dst[a:b]) for a, b in pairwise(starts) for value in dst[a:b]]
    found = soft_targets(log_distinctiveness(np.array(own), np.array(others)), np.array(starts))
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-12)


def test_soft_targets_stand_bm25_scores_of_a_thousand() -> None:
    own, others = np.array([1000.0, 998.0]), np.full((2, 100), 1000.0)
    found = soft_targets(log_distinctiveness(own, others), np.array([0, 2]))
    assert found == pytest.approx([1.0, math.exp(-2.0)])
    alone = log_distinctiveness(np.array([1000.0]), np.empty((1, 0)))
    assert alone == pytest.approx([1000.0])  # exp(1000) / (1 + 0)


def test_distinctiveness_of_a_pool_by_rank_bm25() -> None:
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(30)]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(40)]
    names = ["word1", "word2 word3", "word4", "word5 word6", "absent"]
    index = bm25.build(np.arange(40), texts)
    okapi = BM25Okapi([text.split() for text in texts])
    core = _pairs(rng, 40, 5, 2)
    near = np.array([rng.choice(40, 10, replace=False) for _ in range(40)])
    found = distinctiveness(index, names, core, np.arange(40), near)
    scores = np.array([okapi.get_scores(name.split()) for name in names])
    for text in range(40):
        dst = [
            math.exp(scores[t, text]) / (1 + sum(math.exp(s) for s in scores[t, near[text]]))
            for t in core.of(text).tolist()
        ]
        assert found.weights[found.starts[text] : found.starts[text + 1]] == pytest.approx(
            [value / max(dst) for value in dst], rel=1e-5
        )


def test_neighbours_are_the_nearest_others() -> None:
    _, vectors = _random(1)
    own = np.where(np.arange(40) < 30, np.arange(40), -1)
    found = neighbours(vectors, vectors[:30], own, 7)
    cosines = vectors.astype(np.float64) @ vectors[:30].T.astype(np.float64)
    for i in range(40):
        order = [j for j in np.argsort(-cosines[i]).tolist() if j != own[i]]
        assert found[i].tolist() == order[:7]


def test_a_text_is_compared_with_its_100_nearest_others() -> None:
    _, vectors = _random(2, n=150)
    found = neighbours(vectors, vectors, np.arange(150))
    assert found.shape == (150, 100)  # |D_d| = 100 in the paper
    cosines = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    for i in range(150):
        assert found[i].tolist() == [j for j in np.argsort(-cosines[i]).tolist() if j != i][:100]


# candidates


def test_lexical_candidates_are_the_best_by_rank_bm25_among_whole_matches() -> None:
    rng = np.random.default_rng(3)
    words = [f"word{i}" for i in range(30)]
    texts = [" ".join(rng.choice(words, 9)) for _ in range(30)]
    names = [*words, "word1 word2", "word3 word4 word5"]
    found = lexical_candidates(bm25.build(np.arange(30), texts), names, 4)
    okapi = BM25Okapi([text.split() for text in texts])
    scores = np.array([okapi.get_scores(name.split()) for name in names])
    for text in range(30):
        whole = [t for t, name in enumerate(names) if set(name.split()) <= set(texts[text].split())]
        assert found.of(text).tolist() == sorted(whole, key=lambda t: (-scores[t, text], t))[:4]
    printed = lexical_candidates(bm25.build(np.arange(30), texts), names, 4, whole=False)
    for text in range(30):
        any_word = [t for t in range(len(names)) if scores[t, text] != 0]
        assert printed.of(text).tolist() == sorted(any_word, key=lambda t: (-scores[t, text], t))[:4]
    assert any(printed.of(text).tolist() != found.of(text).tolist() for text in range(30))


def test_semantic_candidates_are_the_nearest_not_lexical() -> None:
    _, vectors = _random(4, n=60)
    texts, names = vectors[:40], vectors[40:]
    lexical = links_of(40, np.repeat(np.arange(40), 3), np.tile([1, 5, 7], 40), np.ones(120, np.float32))
    found = semantic_candidates(texts, names, lexical, 6)
    cosines = texts.astype(np.float64) @ names.T.astype(np.float64)
    for text in range(40):
        order = [t for t in np.argsort(-cosines[text]).tolist() if t not in (1, 5, 7)]
        assert found.of(text).tolist() == order[:6]


def test_folding_knows_plurals() -> None:
    assert fold("Grocery Stores, boxes & buses") == "grocery store box buse"
    assert fold("Batteries") == fold("battery")
    assert fold("glass gas lotus") == "glass gas lotus"


# equation 4


def test_the_loss_is_equation_4() -> None:
    import torch

    rng = np.random.default_rng(5)
    logits = rng.normal(size=(6, 9)) * 3
    rows, columns = np.array([0, 0, 2, 3, 5]), np.array([1, 4, 0, 8, 2])
    targets = rng.random(5)
    core = dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), targets.tolist(), strict=True))
    wanted = 0.0
    for d in range(6):
        for t in range(9):
            share = 1 / (1 + math.exp(-logits[d, t]))
            wanted -= core[d, t] * math.log(share) if (d, t) in core else math.log(1 - share)
    found = eq4(torch.tensor(logits), *(torch.tensor(part) for part in (rows, columns, targets)))
    assert float(found) == pytest.approx(wanted)


def test_before_training_topics_are_ranked_by_cosine() -> None:
    _, vectors = _random(6, n=50)
    names, texts = vectors[:12], vectors[12:]
    predictor = started(names, np.full(12, 0.1, np.float32))
    assert (np.argsort(-predictor.logits(texts)) == np.argsort(-(texts @ names.T))).all()


def test_the_predictor_is_the_written_out_network() -> None:
    predictor, vectors = _random(7)
    wanted = [_predict(predictor, vector.astype(np.float64)) for vector in vectors]
    assert predictor.predict(vectors) == pytest.approx(np.array(wanted), abs=1e-5)
    assert np.concatenate([block for _, block in predictor.blocks(vectors)]) == pytest.approx(
        np.array(wanted), abs=1e-5
    )


def test_the_sigmoid_does_not_overflow() -> None:
    with np.errstate(over="raise"):
        assert sigmoid(np.array([-1000.0, 0.0, 1000.0], np.float32)).tolist() == [0.0, 0.5, 1.0]


def _learnable(seed: int) -> tuple[Array, Links, Array, NDArray[np.bool_]]:
    """Texts whose two topics show in their embeddings, by directions that the names' embeddings do not tell."""
    rng = np.random.default_rng(seed)
    d, topics, n = 16, 10, 400
    hidden = rng.normal(size=(topics, d))
    pairs = rng.permuted(np.tile(np.arange(topics), (n, 1)), axis=1)[:, :2]
    vectors = hidden[pairs].sum(axis=1) + 0.3 * rng.normal(size=(n, d))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = rng.normal(size=(topics, d))
    names /= np.linalg.norm(names, axis=1, keepdims=True)
    links = links_of(n, np.repeat(np.arange(n), 2), pairs.ravel(), np.ones(2 * n, np.float32))
    return vectors.astype(np.float32), links, names.astype(np.float32), np.arange(n) % 4 == 0


def test_training_learns_what_the_names_do_not_tell() -> None:
    vectors, links, names, held_out = _learnable(8)
    judged = np.flatnonzero(held_out)
    before = started(names, np.full(10, 0.2, np.float32))
    after, history = fit(before, vectors, links, held_out)
    first = ranking_quality(lambda at: before.logits(vectors[at]), links, judged, 2)
    last = ranking_quality(lambda at: after.logits(vectors[at]), links, judged, 2)
    assert last.average_precision > max(0.9, first.average_precision + 0.2)
    assert last.recall > first.recall
    losses = [epoch.held_out_loss for epoch in history]
    assert min(losses) < losses[0]
    again, _ = fit(before, vectors, links, held_out)
    assert (again.last == after.last).all()


def test_training_stops_early_and_keeps_the_best_epoch() -> None:
    vectors, links, names, held_out = _learnable(9)
    links = Links(links.starts, np.random.default_rng(0).permutation(links.topics), links.weights)  # nothing to learn
    _, unique = np.unique(links.topics + 10 * links.texts(), return_index=True)
    links = links_of(len(links), links.texts()[unique], links.topics[unique], links.weights[unique])
    before = started(names, np.full(10, 0.2, np.float32))
    after, history = fit(before, vectors, links, held_out)
    losses = [epoch.held_out_loss for epoch in history]
    assert len(history) < 30 and losses.index(min(losses)) == len(losses) - 3
    z = after.logits(vectors[held_out]).astype(np.float64)
    cells = np.zeros_like(z, bool)
    for row, text in enumerate(np.flatnonzero(held_out)):
        cells[row, links.of(text)] = True
    share = 1 / (1 + np.exp(-z))
    assert -np.where(cells, np.log(share), np.log(1 - share)).sum() / len(z) == pytest.approx(min(losses), rel=1e-4)


def test_average_precision_and_recall_against_the_definition() -> None:
    rng = np.random.default_rng(10)
    scores = rng.integers(0, 5, (20, 15)).astype(np.float32)  # with ties
    links = _pairs(rng, 20, 15, 3)
    precisions, recalls = [], []
    for text in range(20):
        order = sorted(range(15), key=lambda t: (-scores[text, t], t))
        hits = [t in links.of(text) for t in order]
        precisions.append(sum(sum(hits[: i + 1]) / (i + 1) for i in range(15) if hits[i]) / 3)
        recalls.append(sum(hits[:4]) / 3)
    found = ranking_quality(lambda at: scores[at], links, np.arange(20), 4)
    assert (found.average_precision, found.recall) == pytest.approx((np.mean(precisions), np.mean(recalls)))


# equation 5


@settings(max_examples=30)
@given(
    st.one_of(
        st.lists(st.sampled_from([0.0, 1.0]), min_size=40, max_size=40),
        st.lists(st.floats(0, 1), min_size=40, max_size=40),
    ),
    st.floats(0, 20),
)
def test_topical_knowledge_is_equation_5_shrunk_and_clipped(values: list[float], prior: float) -> None:
    predictor, vectors = _random(11)
    covered = [_predict(predictor, vector.astype(np.float64)) for vector in vectors]
    mean = sum(values) / 40
    wanted = []
    for t in range(12):
        total = math.fsum(row[t] for row in covered)
        known = math.fsum(row[t] * value for row, value in zip(covered, values, strict=True))
        wanted.append(min(0.9, max(0.1, (known + prior * mean) / (total + prior))))
    found = topical_knowledge(predictor, vectors, np.array(values), prior)
    assert found.share == pytest.approx(wanted, abs=1e-5)
    assert found.observations == pytest.approx([math.fsum(row[t] for row in covered) for t in range(12)], rel=1e-4)


# equations 6 and 7


def test_knowledge_is_shrunk_as_if_by_four_average_questions() -> None:
    predictor, vectors = _random(3, n=6)
    right = np.array([True, False, True, True, False, True])
    predicted = np.array([_predict(predictor, vector) for vector in vectors.astype(np.float64)])
    expected = (predicted[right].sum(axis=0) + 4 * right.mean()) / (predicted.sum(axis=0) + 4)
    found = topical_knowledge(predictor, vectors, right.astype(np.float64))
    assert found.share == pytest.approx(np.clip(expected, 0.1, 0.9), abs=1e-5)


def test_right_and_wrong_answers_give_the_bits_that_they_gave_before() -> None:
    for seed in range(20):
        predictor, vectors = _random(seed, topics=30, n=300)
        right = np.random.default_rng(seed).random(300) < 0.4
        predicted = predictor.predict(vectors)  # the sums over right answers alone
        total, weighted = (part.sum(axis=0, dtype=np.float64) for part in (predicted, predicted[right]))
        share = np.clip((weighted + 4 * right.mean()) / (total + 4), 0.1, 0.9).astype(np.float32)
        assert topical_knowledge(predictor, vectors, right.astype(np.float64)).share.tobytes() == share.tobytes()


def test_a_query_is_judged_by_its_256_heaviest_topics() -> None:
    weights = np.random.default_rng(0).permutation(400).astype(np.float32)
    assert required_topics(weights).tolist() == np.argsort(-weights)[:256].tolist()
    assert sorted(required_topics(weights[:100]).tolist()) == list(range(100))


def _z(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    return [(v - mean) / spread for v in values]


def _covered(predictor: Predictor, vectors: NDArray[np.float64], coverage: Coverage) -> list[float]:
    if coverage == "pooled":
        return _predict(predictor, vectors.mean(axis=0))
    each = [_predict(predictor, vector) for vector in vectors]
    return [1 - math.prod(1 - t for t in topic) for topic in zip(*each, strict=True)]


def _exhaustive(
    predictor: Predictor, weights: Array, vectors: Array, cosines: NDArray[np.float64], factor: float, k: int,
    coverage: Coverage,
) -> list[int]:  # fmt: skip
    """Every candidate's gain in coverage at every step, by eq. 6 and 7 as printed with ``pooled``; the term that is
    subtracted is included."""
    exact = vectors.astype(np.float64)
    picked: list[int] = []
    first = 0.0  # the union keeps the spread of the first pick
    while len(picked) < min(k, len(exact)):
        left = [i for i in range(len(exact)) if i not in picked]
        before = (
            _covered(predictor, exact[picked], coverage) if picked and coverage != "alone" else [0.0] * len(weights)
        )
        gains = []
        for i in left:
            after = _covered(predictor, exact[[*picked, i] if coverage != "alone" else [i]], coverage)
            gains.append(math.fsum(w * (a - b) for w, a, b in zip(weights.tolist(), after, before, strict=True)))
        if len(left) == 1:
            picked += left
            break
        first = first or statistics.pstdev(gains)
        relevance, nearness = _z(gains), _z([float(cosines[i]) for i in left])
        if coverage == "union":
            relevance = [(gain - statistics.fmean(gains)) / first for gain in gains]
        picked.append(max(zip(left, relevance, nearness, strict=True), key=lambda each: each[1] + factor * each[2])[0])
    return picked


@pytest.mark.parametrize("coverage", ["union", "pooled", "alone"])
@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_selection_is_the_exhaustive_greedy_one(
    factor: float, coverage: Coverage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "step_of", lambda *_: 0.0)  # the reference breaks no near ties
    for seed in range(8):
        predictor, vectors = _random(20 + seed)
        query, candidates = vectors[0], vectors[1:]
        knowledge = np.random.default_rng(seed).uniform(0.1, 0.9, 12).astype(np.float32)
        weights = predictor.predict(query[None])[0] / knowledge
        cosines = candidates.astype(np.float64) @ query.astype(np.float64)
        found = greedy(predictor, weights, candidates, cosines, factor, 6, coverage)
        wanted = _exhaustive(predictor, weights, candidates, cosines, factor, 6, coverage)
        assert [position for position, *_ in found] == wanted


def test_selection_of_more_than_there_are_takes_each_once() -> None:
    predictor, vectors = _random(30, n=5)
    found = greedy(predictor, np.ones(12, np.float32), vectors, np.zeros(5), 0.5, 9)
    assert sorted(position for position, *_ in found) == [0, 1, 2, 3, 4]


def test_coverage_and_redundancy_count_what_was_new() -> None:
    required = np.array([0.9, 0.8, 0.7, 0.1, 0.0, 0.0], np.float32)
    covered = np.array([[1.0, 0, 0, 0, 1, 0.5], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]], np.float32)
    coverage, redundancy = coverage_of(required, covered, 3)
    assert coverage.tolist() == [1, 3, 3]
    assert redundancy == pytest.approx([0.0, 1 / 3, 3 / 4])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_coverage_is_the_expected_number_of_topics_that_some_shot_has(seed: int) -> None:
    rng = np.random.default_rng(seed)
    required, covered = rng.random(7).astype(np.float32), rng.random((4, 7)).astype(np.float32)
    needed = np.argsort(-required)[:3].tolist()
    coverage, redundancy = coverage_of(required, covered, 3)
    for shot in range(4):
        have = covered.astype(np.float64)[: shot + 1]
        assert coverage[shot] == pytest.approx(sum(1 - math.prod(1 - have[:, t]) for t in needed))
        twice = sum(have[shot, t] * (1 - math.prod(1 - have[:shot, t])) for t in range(7))
        assert redundancy[shot] == pytest.approx(twice / have[shot].sum())


def test_topics_that_a_shot_hardly_has_are_not_covered_whatever_their_rank() -> None:
    required = np.linspace(1, 0.1, 30).astype(np.float32)
    faint, strong = np.full(30, 1e-6, np.float32), np.zeros(30, np.float32)
    strong[0] = 1.0
    assert coverage_of(required, faint[None])[0][0] < 1e-3 < 0.999 < coverage_of(required, strong[None])[0][0]
    assert len(coverage_of(required, np.empty((0, 30), np.float32))[0]) == 0


def test_adam_takes_the_steps_of_torchs() -> None:
    import torch

    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(size=(11, 5)))
    ours, theirs = (
        [torch.from_numpy(np.random.default_rng(1).normal(size=size)).requires_grad_() for size in ((5, 7), (7,))]
        for _ in range(2)
    )

    def loss(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.softplus(x @ parameters[0] + parameters[1]).pow(2).sum()

    adam, reference = TorchAdam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2)
    for _ in range(100):
        adam.step(torch.autograd.grad(loss(ours), ours))
        reference.zero_grad()
        loss(theirs).backward()
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine - other).abs().max() < 1e-12


# topics by their ranks


def test_the_ranking_by_ranks_written_out() -> None:
    predictor, vectors = _random(40)
    query, candidates = vectors[0], vectors[1:]
    share = np.random.default_rng(1).uniform(0.1, 0.9, 12).astype(np.float32)
    required = predictor.predict(query[None])[0]
    cosines = candidates.astype(np.float64) @ query.astype(np.float64)

    def ranked(row: Sequence[float]) -> list[float]:
        order = sorted(range(len(row)), key=lambda t: (-row[t], t))
        return [(1 + order.index(t)) ** -0.53 for t in range(len(row))]

    def filtered(row: Sequence[float]) -> list[float]:
        bar = float(np.quantile(np.asarray(row, np.float32), 0.1))
        return [0.0 if value <= bar else value for value in row]

    wanted, known = ranked(filtered(required.tolist())), [r + 0.01 for r in ranked(share.tolist())]
    exact, picked = candidates.astype(np.float64), []
    while len(picked) < 5:
        relevance = []
        for i in range(len(exact)):
            row = _predict(predictor, exact[[i, *picked]].mean(axis=0))
            scores = ranked([t / c for t, c in zip(row if picked else filtered(row), known, strict=True)])
            relevance.append(math.fsum(a * b for a, b in zip(scores, wanted, strict=True)))
        total = [r + 0.1 * c for r, c in zip(_z(relevance), _z(cosines.tolist()), strict=True)]
        picked.append(max((i for i in range(len(exact)) if i not in picked), key=lambda i: total[i]))
    found = greedy_by_rank(predictor, share, required, candidates, cosines, 5)
    assert [position for position, *_ in found] == picked
    for _, _, relevance_of_pick, parts in found:
        assert parts.sum() == pytest.approx(relevance_of_pick, rel=1e-5)
