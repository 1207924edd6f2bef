"""Topics of a pool whose truth is known: mined, learnt through the real door, selected by, and its gaps found."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.topics_world import (
    LOST,
    PLAN,
    SETTINGS,
    SUBJECTS,
    WIDTH,
    Scripted,
    Words,
    learnt_world,
    make_world,
    subject_of,
    train,
)
from icl_curate.engine.base import arrays, memory
from icl_curate.engine.base.errors import UsageError, WorkspaceError
from icl_curate.engine.base.progress import MEMORY, Event, Monitor
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.papers.topics import mining, selection
from icl_curate.engine.papers.topics import model_file as kept
from icl_curate.engine.papers.topics import train as training
from icl_curate.engine.papers.topics.match import core_request, topics_in
from icl_curate.engine.papers.topics.report import FLOOR, TOP, Survey, coverage_curves, gaps, required_topics, topics
from icl_curate.engine.papers.topics.results import TopicRun
from icl_curate.engine.papers.topics.train import TopicTraining, halves
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval.vectors import Vectors, folder_of
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.select.methods import METHODS
from icl_curate.engine.select.preview import preview
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store import runs
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import active_rows, content_keys, fetch, queries

# mining


def test_phrases_keep_to_punctuation_and_begin_and_end_with_content() -> None:
    found = dict(mining.phrases("The lost and found desk, in Grocery Stores: 42 items"))
    assert "lost and found" in found and found["grocery store"] == "grocery stores"
    assert not any(key.startswith(("the ", "and ")) or key.endswith(" and") or "42" in key for key in found)
    assert "desk grocery" not in found and "found desk in" not in found


def test_mined_topics_are_the_planted_phrases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    shots = fetch(workspace, active_rows(workspace))
    texts = [shot.input for shot in shots]
    names, vectors = mining.mine(texts, Words().encode(texts), Words().encode, size=24)
    planted = {phrase for phrases in SUBJECTS.values() for phrase in phrases}
    assert planted <= set(names)
    assert vectors.shape == (len(names), WIDTH)
    counts = Counter(word for text in texts for word in text.split())
    assert not {name for name in names if counts[name] > mining.EVERYWHERE * len(texts)}  # no boilerplate
    assert not {part for phrase in planted for part in phrase.split()} & set(names)  # no part of a longer phrase


def test_synonyms_go_to_the_better_name() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(300, 16))
    vectors = np.concatenate([base, base[:200] + 0.05 * rng.normal(size=(200, 16)), base[:250]])
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    kept_names: list[int] = []
    for i, vector in enumerate(vectors):
        if all(float(vector @ vectors[j]) < 0.9 for j in kept_names):
            kept_names.append(i)
    assert mining.without_synonyms(vectors) == kept_names


def test_a_list_of_ones_own_topics(tmp_path: Path) -> None:
    file = tmp_path / "topics.txt"
    file.write_text("# mine\nRose bush\n\nrose  bushes\ntug boat\n", encoding="utf-8")
    assert mining.read_list(file) == ["Rose bush", "tug boat"]
    file.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(UsageError, match="contains no topic"):
        mining.read_list(file)
    with pytest.raises(UsageError, match="cannot read"):
        mining.read_list(tmp_path / "absent.txt")


# training


def test_training_learns_topics_and_what_the_llm_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    backend = Scripted()
    summary = train(workspace, backend)
    metrics = summary.metrics
    assert metrics.fit.quality.average_precision > metrics.fit.by_name.average_precision
    assert summary.usage.calls == 260 == len(backend.asked) and metrics.core_by_llm is False
    assert metrics.notes and "word overlap" in metrics.notes[0]
    listed = {topic.topic: topic for topic in topics(workspace, SETTINGS).topics}
    shots = fetch(workspace, active_rows(workspace))
    for subject, phrases in SUBJECTS.items():
        for phrase in phrases:
            topic = listed[phrase]
            assert topic.active == topic.demonstrations == sum(phrase in shot.input for shot in shots)
            assert topic.sources[0][0] == f"{subject}-desk"
            assert (topic.knowledge < 0.5) == (subject in (*LOST, "kitchen"))
            assert topic.observations > 5
    again = train(workspace, backend)
    assert again.usage.cached_calls == again.usage.calls and len(backend.asked) == 260
    assert again.metrics.fit.quality == metrics.fit.quality
    assert TopicRun.from_json(runs.runs(workspace, "train-topics")[0].summary) == again


def test_topics_of_a_large_pool_are_mined_from_some_rows_and_predicted_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_MINED", 100)
    workspace, read = make_world(tmp_path / "w", monkeypatch), []
    monkeypatch.setattr(training, "fetch", lambda store, rows: read.append(rows) or fetch(store, rows))
    backend = Scripted()
    metrics = train(workspace, backend).metrics
    assert "from 100 of 240 demonstrations" in metrics.notes[1]
    assert (metrics.examples, metrics.demonstrations, len(backend.asked)) == (160, 240, 160)
    (mined,) = read
    view = PoolView(workspace, SETTINGS)
    assert len(np.unique(mined)) == 100 and np.isin(mined, view.rows).all() and mined.max() > 150
    model = selection.open_for(view).model
    assert model.covered.rows.tolist() == view.rows.tolist()
    whole = kept.strongest(model.predictor, view.rows, view.vectors(view.rows))
    assert model.covered.topics.tolist() == whole.topics.tolist()
    with workspace.read() as con:
        answered = con.execute(
            "SELECT row, correct, output FROM row_answers JOIN demonstrations USING (row)"
        ).fetchall()
    assert sorted(row for row, _, _ in answered) == mined.tolist()
    assert all(correct == (output not in (*LOST, "kitchen")) for _, correct, output in answered)
    asked = queries(workspace, "test")
    for query, chosen in zip(asked, METHODS["topick"].choose(view, asked, 3, 0), strict=True):
        assert [shot.output for shot in fetch(workspace, [p.row for p in chosen])].count(query.answers[0]) >= 2


def test_training_and_selection_say_so_before_they_take_more_memory_than_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    said: list[str] = []

    def report(event: Event) -> None:
        if event.task == MEMORY:
            said.append(event.note)

    train(workspace)
    monkeypatch.setattr(memory, "free", lambda root: 1000)
    TopicTraining.prepare(LLMClient(workspace, Scripted(), SETTINGS, Monitor(report), dry_run=True), PLAN)
    assert len(said) == 1 and said[0].startswith("training takes about 0.0 GiB of memory, and 0.0 GiB are free: ")
    view, asked = PoolView(workspace, SETTINGS, Monitor(report)), queries(workspace, "test")
    assert len(required_topics(view, asked)) == 20 and len(said) == 1  # for that the topics of all rows are not needed
    METHODS["topick"].choose(view, asked, 3, 0)
    assert any(line.startswith("topics and vectors of all rows take about 0.0 GiB") for line in said), said


def test_a_dry_run_asks_nothing_and_counts_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    backend = Scripted(instructs=True)
    cost = TopicTraining.prepare(LLMClient(workspace, backend, SETTINGS, dry_run=True), PLAN).cost()
    assert (cost.requests, backend.asked) == (240 + 60 + 200 + 60, [])


UNSAID = next(subject for subject in SUBJECTS if subject not in (*LOST, "kitchen"))


class _Judge(Scripted):
    """Says yes to every answer that names a subject, and nothing about one of the subjects."""

    spec = "judge"

    def _answer(self, request: Request) -> Result:
        self.asked.append(request.prompt.text)
        return Answer("perhaps" if f">{UNSAID}</answer" in request.prompt.text else "yes")


def test_a_judge_is_in_the_plan_and_what_it_leaves_open_is_not_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.engine.llm.marks.MOST_MISSING", 1.0)  # it leaves most open
    workspace, judge = make_world(tmp_path / "w", monkeypatch), _Judge(instructs=True)
    settings = replace(SETTINGS, metric="judge", judge_llm="judge")
    llm = LLMClient(workspace, Scripted(), settings, judge=LLMClient(workspace, judge, SETTINGS))
    training = TopicTraining.prepare(llm, PLAN)
    assert training.cost().requests == 260 + 260  # a verdict on each answer at most
    metrics = training.ask(Budget()).metrics
    assert 0 < len(judge.asked) <= 260
    assert 0 < metrics.questions < 260
    told = metrics.judge
    assert told and (told.usage.calls, told.usage.cached_calls, told.unjudged) == (260, 0, 260 - metrics.questions)
    assert len(judge.asked) == told.usage.calls - told.usage.cached_calls
    again = training.ask(Budget(max_calls=0)).metrics.judge  # nothing is counted twice
    assert again and (again.usage.calls, again.usage.cached_calls) == (260, 260)
    with workspace.read() as con:
        stored = con.execute("SELECT DISTINCT answer, correct FROM row_answers").fetchall()
        by = con.execute(
            "SELECT settings ->> '$.graded_by.metric', settings ->> '$.graded_by.judge' FROM runs"
        ).fetchall()
    assert UNSAID not in {answer for answer, _ in stored} and all(
        right for answer, right in stored if answer in SUBJECTS
    )
    assert by == [("judge", "judge")] * 2


def test_the_llm_picks_core_topics_and_adds_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    backend = Scripted(instructs=True)
    summary = train(workspace, backend)
    prompts = [text for text in backend.asked if "Candidate topics:" in text]
    assert len(prompts) == 300 and summary.metrics.core_by_llm
    assert summary.metrics.added_by_llm == len(SUBJECTS)  # named for many; what was named once is left out
    listed = {topic.topic: topic for topic in topics(workspace, SETTINGS).topics}
    assert listed["garden matters"].demonstrations == 48
    pool_and_validation = {query.input for query in queries(workspace, "validation")}
    with workspace.read() as con:
        pool_and_validation |= {text for (text,) in con.execute("SELECT input FROM active").fetchall()}
    assert all(any(text in prompt for text in pool_and_validation) for prompt in prompts)  # test queries never


def test_lambda_is_chosen_on_queries_that_nothing_was_learnt_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The LLM only answers with a demonstration that the largest λ shows: the nearest row."""
    workspace = make_world(tmp_path / "w", monkeypatch)
    view = PoolView(workspace, SETTINGS)
    asked = queries(workspace, "validation")
    found = zip(asked, view.dense_top(asked, 1), strict=True)
    nearest = {query.input: int(rows[0]) for query, (rows, _) in found}
    texts = {shot.row: shot.input for shot in fetch(workspace, list(nearest.values()))}

    class Near(Scripted):
        def _answer(self, request: Request) -> Result:
            shown, query = {shot.input for shot in request.prompt.demonstrations}, request.prompt.query
            if not shown:
                return super()._answer(request)
            return Answer(query.answers[0] if texts[nearest[query.input]] in shown else "no idea")

    backend, plan = Near(), replace(PLAN, lambdas=(0.0, 50.0))
    work = TopicTraining.prepare(LLMClient(workspace, backend, replace(SETTINGS, k=1)), plan)
    read = work.read
    assert len(read.apart) == len(read.asked) == 30 and not set(read.apart) & set(read.asked)
    assert not {query.input for query in read.apart} & set(read.texts)
    assert work.cost().requests == 200 + 30 + 2 * 30
    done = work.ask(Budget())
    chosen = done.metrics.chosen
    assert chosen is not None and chosen.queries == 30 and chosen.cosine == 50.0
    low, high = (trial.accuracy for trial in chosen.tried)
    assert low < high == 1.0
    assert kept.load(workspace, done.run).cosine == 50.0
    assert TopicRun.from_json(done.as_json()) == done
    with pytest.raises(UsageError, match="four validation queries"):
        halves(asked[:3], 0)


class Counting(Scripted):
    """Each prompt has one token."""

    def _answer(self, request: Request) -> Result:
        answer = super()._answer(request)
        return replace(answer, tokens_in=1) if isinstance(answer, Answer) else answer


def test_another_llm_may_label_than_the_one_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    answering, labelling = Counting(), Counting(instructs=True)
    labelling.spec = "labelling"
    priced = [replace(SETTINGS, price_in=price, price_out=0.0) for price in (1.0, 1000.0)]
    clients = [LLMClient(workspace, *each) for each in zip((answering, labelling), priced, strict=True)]
    work = TopicTraining.prepare(clients[0], PLAN, clients[1])
    assert (work.cost().requests, work.cost().to_ask) == (300 + 260, 300 + 260)
    budget = Budget(max_cost=1e6, price=clients[0].price)
    done = work.ask(budget)
    assert (len(answering.asked), len(labelling.asked)) == (260, 300)
    assert not any("Candidate topics:" in text for text in answering.asked)
    assert all("Candidate topics:" in text for text in labelling.asked)
    assert done.metrics.core_by_llm and done.llm == "scripted" and done.usage.calls == 560
    assert budget.cost == pytest.approx((260 * 1 + 300 * 1000) / 1e6) and budget.calls == 560
    assert runs.settings(workspace, done.run)["labelled_by"] == "labelling"


def test_core_topics_that_somebody_picked_need_no_llm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, file = make_world(tmp_path / "w", monkeypatch), tmp_path / "core.jsonl"
    shots = fetch(workspace, active_rows(workspace))
    picks = {shot.id: f"the {shot.source} desk" for shot in shots[:40]}
    lines = [json.dumps({"id": name, "topics": [topic, "rose bush", "Rose bushes"]}) for name, topic in picks.items()]
    lines += ['{"id": "of another pool", "topics": ["pool"]}', '{"id": 7, "topics": []}']
    file.write_text("\ufeff" + "\n\n".join(lines) + "\n", encoding="utf-8")
    backend = Scripted(instructs=True)
    client = LLMClient(workspace, backend, SETTINGS)
    done = TopicTraining.prepare(client, replace(PLAN, core_file=str(file))).ask(Budget())
    assert not any("Candidate topics:" in text for text in backend.asked)
    metrics = done.metrics
    assert not metrics.core_by_llm and metrics.added_by_llm == 0
    told = "core topics of 40 of 300 texts are given; the others take the topics whose words they share"
    assert metrics.notes == (f"{told}; 1 line of the file for no text that is learnt from",)
    with workspace.read() as con:
        linked = con.execute(
            "SELECT id, list(name ORDER BY name) FROM topic_links JOIN topics USING (run, topic)"
            " JOIN demonstrations USING (row) GROUP BY id"
        ).fetchall()
    told = {name: names for name, names in linked if name in picks}
    assert told == {name: sorted(["rose bush", topic]) for name, topic in picks.items()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no core topics"),
        ('{"id": "a", "topics": []}', "contains no core topics"),
        ('{"id": "a", "topics": ["b"]}\n{"id": null, "topics": []}', "line 2"),
        ('{"id": "3", "topics": ["b"]}\n{"id": 3, "topics": ["c"]}', "line 2: its row has a line already"),
        ('{"id": "a", "topics": ["b\\u0000"]}', "line 1: a topic may have"),
        (json.dumps({"id": "a", "topics": ["b" * 201]}), "line 1: a topic may have"),
        ('{"id": "a", "topics": "b"}', "line 1"),
        ('{"id": "a", "topics": [1]}', "line 1"),
        ('["a"]', "line 1"),
        ("[" * 100_000, "line 1"),
        ("\udcff", "cannot read"),
        ('{"id": "of another pool", "topics": ["b"]}', "no row or validation query"),
    ],
)
def test_core_topics_that_cannot_be_used_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    workspace, file = make_world(tmp_path / "w", monkeypatch), tmp_path / "core.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=said):
        TopicTraining.prepare(LLMClient(workspace, Scripted(), SETTINGS), replace(PLAN, core_file=str(file)))
    with pytest.raises(UsageError, match="cannot read"):
        TopicTraining.prepare(LLMClient(workspace, Scripted(), SETTINGS), replace(PLAN, core_file=str(tmp_path)))


def test_rows_with_given_core_topics_are_learnt_from_before_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, file = make_world(tmp_path / "w", monkeypatch), tmp_path / "core.jsonl"
    picks = [shot.id for shot in fetch(workspace, active_rows(workspace))[-7:]]
    lines = [{"id": name, "topics": ["rose bush", "\ud800 desk", *map(str, range(100, 230))]} for name in picks]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    plan = replace(PLAN, core_file=str(file), sample=9)
    read = TopicTraining.prepare(LLMClient(workspace, Scripted(), SETTINGS), plan)
    drawn = [read.read.example(place).id for place in read.read.places[:9].tolist()]
    assert len(drawn) == 9 and set(picks) <= set(drawn)
    assert {len(names) for names in read.named.values()} == {100} and "\ufffd desk" in read.named[picks[0]]


def test_core_topics_can_be_as_the_paper_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    work = TopicTraining.prepare(
        LLMClient(workspace, Scripted(instructs=True), SETTINGS), replace(PLAN, as_printed=True)
    )
    done = work.ask(Budget())  # the LLM adds a topic of its own to each of the 300 texts
    assert done.metrics.added_by_llm > 250 > len(SUBJECTS)


def test_a_reply_is_read_whatever_its_form() -> None:
    assert topics_in("1. Rose Bush, *tulip bulb*;\n- rose bushes.\n\n") == ["rose bush", "tulip bulb"]
    assert topics_in("3.5 mm jack, 1.refunds, (2) 1.5 V cells") == ["3.5 mm jack", "refunds", "1.5 v cells"]
    assert topics_in("I am sorry but this is a sentence far too long to be a topic") == []
    request = core_request(Query("Where?", answers=("here",)), ["a", "b"])
    assert "Candidate topics: a, b" in request.prompt.text and "Answer: here" in request.prompt.text


# selection


def test_picks_come_from_the_subject_and_leave_the_query_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    view = PoolView(workspace, SETTINGS)
    asked = queries(workspace, "test")
    picks = METHODS["topick"].choose(view, asked, 3, 0)
    for query, chosen in zip(asked, picks, strict=True):
        shots = fetch(workspace, [pick.row for pick in chosen])
        assert len({pick.row for pick in chosen}) == 3
        assert [shot.output for shot in shots].count(query.answers[0]) >= 2
    own = fetch(workspace, view.rows[:1])[0].as_query()
    assert own.row not in {pick.row for pick in METHODS["topick"].choose(view, [own], 240, 0)[0]}
    alone = [METHODS["topick"].choose(view, [query], 3, 0)[0] for query in asked]
    assert [[pick.row for pick in chosen] for chosen in alone] == [[pick.row for pick in chosen] for chosen in picks]

    def embed(given: list[Query]) -> Any:
        with ThreadPoolExecutor(1) as pool:  # a server may be asked: another thread does not wait for it
            assert pool.submit(arrays._lock.acquire, blocking=False).result()
            pool.submit(arrays._lock.release).result()
        return PoolView.embed(view, given)

    with monkeypatch.context() as patch:
        patch.setattr(view, "embed", embed)
        assert METHODS["topick"].choose(view, asked, 3, 0) == picks
        METHODS["topick-ranks"].choose(view, asked, 3, 0)
    assert METHODS["topick"].choose(view, [], 3, 0) == [] and METHODS["topick"].choose(view, asked[:1], 0, 0) == [[]]


def test_picks_after_the_first_come_from_a_shortlist_of_300(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    view, asked = PoolView(workspace, SETTINGS), [Query("small rose bush")]
    seen: list[int] = []
    greedy = selection.greedy

    def counting(predictor: Any, weights: Any, vectors: Any, *more: Any) -> Any:
        seen.append(len(vectors))
        return greedy(predictor, weights, vectors, *more)

    monkeypatch.setattr(selection, "greedy", counting)
    assert selection.SHORTLIST == 300  # section 3.2.2 of the paper
    selection.topick(view, asked, 3)
    monkeypatch.setattr(selection, "SHORTLIST", 50)
    selection.topick(view, asked, 3)
    selection.topick(view, asked, 60)  # never shorter than what is asked for
    assert seen == [240, 50, 60]


def test_variants_have_models_of_their_own_and_are_named_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    asked = queries(workspace, "test")
    with pytest.raises(UsageError) as raised:
        METHODS["topick-binary"].choose(PoolView(workspace, SETTINGS), asked, 3, 0)
    assert "--labels binary" in raised.value.fix
    soft = METHODS["topick"].choose(PoolView(workspace, SETTINGS), asked, 3, 0)
    run = train(workspace, plan=replace(PLAN, soft=False)).run
    view = PoolView(workspace, SETTINGS)
    binary = METHODS["topick-binary"].choose(view, asked, 3, 0)
    assert METHODS["topick"].choose(view, asked, 3, 0) == soft != binary
    assert kept.latest(workspace, labels="binary") == run != kept.latest(workspace)
    released = METHODS["topick-ranks"].choose(view, asked, 3, 0)
    assert released != soft and all(pick.adds for chosen in released for pick in chosen)
    for method, picks in (("topick-binary", binary), ("topick-ranks", released)):
        selector = Selector(workspace, settings=replace(SETTINGS, method=method))
        shots = fetch(workspace, [pick.row for pick in picks[0]])
        assert [s.demonstration.id for s in selector.select(asked[0])] == [shot.id for shot in shots]
        seen = preview(workspace, asked[0], replace(SETTINGS, method=method))
        assert seen.needs and [s.demonstration.id for s in seen.shots] == [shot.id for shot in shots]
        assert [subject_of(shot.input) for shot in shots].count(subject_of(asked[0].input)) >= 2
    assert METHODS["topick-ranks"].choose(view, [], 3, 0) == []


def test_what_a_query_needs_and_a_pick_adds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    view = PoolView(workspace, SETTINGS)
    query = Query("quiet rose bush colleague small compost heap")
    needed = [need.topic for need in selection.needs(view, query, 4)]
    assert {"rose bush", "compost heap"} <= set(needed)
    first = selection.topick(view, [query], 1)[0][0]
    assert {topic for topic, _ in first.adds} & {"rose bush", "compost heap"}
    assert all(gain > 0 for _, gain in first.adds)


def test_unknown_topics_draw_the_picks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    view = PoolView(workspace, SETTINGS)
    mixed = [Query(f"small {a} morning {b}") for a in SUBJECTS["garden"] for b in SUBJECTS["kitchen"]]

    with workspace.read() as con:
        outputs = dict(con.execute("SELECT row, output FROM demonstrations").fetchall())
    blind = [outputs[p[0].row] for p in selection.topick(view, mixed, 1, knowledge=False)].count("kitchen")
    aware = [outputs[p[0].row] for p in selection.topick(view, mixed, 1)].count("kitchen")
    assert aware > blind


def test_rows_indexed_after_training_can_be_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    late = tmp_path / "late.jsonl"
    text = "quiet tug boat small anchor chain"
    late.write_text(json.dumps({"id": "late", "input": text, "output": "harbour"}) + "\n", encoding="utf-8")
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "w-pool.jsonl"), str(late))))
    (row,) = [shot.row for shot in fetch(workspace, active_rows(workspace)) if shot.id == "late"]
    stored = Vectors.open(folder_of(workspace.path, "words"))
    stored.write(np.array([row]), Words().encode([text]), content_keys(workspace)[[row]])
    view = PoolView(workspace, SETTINGS)
    assert row in [c.row for c in selection.topick(view, [Query("tug boat small anchor chain")], 5)[0]]
    model = kept.load(workspace, kept.latest(workspace))
    assert row not in model.covered.rows and row in selection.topics_of_rows(model, view).rows


def test_topick_covers_at_least_as_much_as_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    view = PoolView(workspace, SETTINGS)
    asked = queries(workspace, "test")
    required = required_topics(view, asked)

    def curve(method: str) -> tuple[Any, Any]:
        return coverage_curves(
            view, required, [[p.row for p in chosen] for chosen in METHODS[method].choose(view, asked, 4, 0)], 5
        )

    (ours, redundant), (chance, _) = curve("topick"), curve("random")
    assert ours.shape == (4,) and redundant[0] == 0
    assert (np.diff(ours) >= 0).all() and ours[0] > chance[0]


def test_without_a_model_the_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_world(tmp_path / "w", monkeypatch)
    for ask in (
        lambda: selection.topick(PoolView(workspace, SETTINGS), queries(workspace, "test"), 1),
        lambda: topics(workspace, SETTINGS),
        lambda: gaps(workspace, SETTINGS),
    ):
        with pytest.raises(UsageError) as raised:
            ask()
        assert "train topics" in raised.value.fix
    summary = train(workspace)
    weights = kept.folder_of(workspace, summary.run) / kept.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(WorkspaceError, match=r"checksum mismatch in topics.safetensors") as damaged:
        gaps(workspace, SETTINGS)
    assert "train topics" in damaged.value.fix


# gaps


def test_planted_gaps_are_found_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch, LOST)
    found = gaps(workspace, SETTINGS)
    phrases = {phrase for subject in LOST for phrase in SUBJECTS[subject]}
    asked = queries(workspace, "validation")
    first = found[: len(phrases)]
    assert {gap.topic for gap in first} <= phrases | set(LOST)
    assert {subject_of(gap.topic) for gap in first} == set(LOST)
    for gap in first:
        truly = sum(gap.topic in query.input for query in asked)
        assert gap.queries == pytest.approx(truly, abs=2)
        assert gap.coverage < 0.5 and gap.knowledge < 0.5
        assert all(subject_of(query.input) in LOST for query in gap.examples)
    assert [gap.severity for gap in found] == sorted((gap.severity for gap in found), reverse=True)


def test_behind_a_topic_stand_the_rows_that_cover_and_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch, LOST)
    decide(workspace, "prune", "source", ["garden-desk"])
    survey = Survey(workspace, SETTINGS)
    view, asked = PoolView(workspace, SETTINGS), queries(workspace, "validation")
    needs = survey.model.predictor.predict(view.embed(asked))
    covers = survey.model.predictor.predict(view.vectors(active_rows(workspace)))
    bar = np.sort(needs, axis=1)[:, -min(TOP, needs.shape[1])]
    for topic in survey.topics():
        at = survey.model.names.index(topic.topic)
        members = survey.members(topic.topic, limit=10)
        needing = {q.row: needs[i, at] for i, q in enumerate(asked) if needs[i, at] >= max(bar[i], FLOOR)}
        assert dict(members.queries) == pytest.approx(needing)
        assert len(needing) == topic.queries
        weights = [weight for _, weight in members.demonstrations]
        assert weights == sorted(weights, reverse=True)
        place = {row: i for i, row in enumerate(active_rows(workspace).tolist())}
        for row, weight in members.demonstrations:
            assert weight == pytest.approx(covers[place[row], at], abs=2e-3)
        assert len(members.core) == topic.active
        assert members.core <= set(place)
    by_name = {topic.topic: topic for topic in survey.topics()}
    for gap in survey.gaps(limit=1000):
        topic = by_name[gap.topic]
        found = (topic.queries, topic.covered, topic.severity)
        assert found == (gap.queries, gap.coverage, gap.severity)
    with pytest.raises(KeyError):
        survey.members("no such topic")


def test_a_gap_opens_when_a_source_is_pruned_and_closes_when_it_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)

    def severity() -> float:
        found = gaps(workspace, SETTINGS, limit=1000)
        return sum(gap.severity for gap in found if subject_of(gap.examples[0].input) == "kitchen")

    before = severity()
    decide(workspace, "prune", "source", ["kitchen-desk"])
    pruned = severity()
    assert pruned > before + 5
    decide(workspace, "restore", "source", ["kitchen-desk"])
    assert severity() == pytest.approx(before)
