"""Fine-tuning carried out on a small real model: what is trained on, what comes of it, and that it goes on after a
stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import transformers
from factories.calibrate_world import SETTINGS, Scripted, workspace_of
from factories.commands import Run
from factories.models import CHAT, save_model
from icl_curate.engine.backends.hf.adapters import CONFIG, ORIGIN, WEIGHTS
from icl_curate.engine.backends.hf.loading import load_description
from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.backends.hf.tokens import encode, render
from icl_curate.engine.base.errors import Cancelled, LLMError, UsageError, WorkspaceError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, LLMSettings, Request, Sampling
from icl_curate.engine.papers.calibrate import tuning
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.finetune import answer_set
from icl_curate.engine.papers.calibrate.lora import Recipe, Trainer, lesson_of
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.tuning import FOLDER, FineTuning, FineTuningPlan
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from safetensors import safe_open
from safetensors.torch import load_file, save

ASKED = {
    "sky": ("which colour has the sky?", "blue"),
    "dog": ("which animal barks?", "the dog"),
    "ferry": ("when does it run?", "in the morning"),
}
QUERIES: list[dict[str, Any]] = [
    {"id": name, "input": question, "output": answer, "context": f"{answer} it is.\n\nThe river brings timber."}
    for name, (question, answer) in ASKED.items()
]
HARD = Recipe(rate=1e-2, epochs=25, batch=2)
"""Enough for the small model to know the set by heart."""


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other take longer than the small model's sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "llama", CHAT)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "w", QUERIES)


def settings(model: Path | str, **more: Any) -> Settings:
    return Settings(llm=f"hf:{model}", device="cpu", dtype="float32", **more)


def plan(recipe: Recipe = HARD, **more: Any) -> FineTuningPlan:
    return FineTuningPlan(recipe=recipe, on="answers", **more)


def answers(name: Path | str, workspace: Workspace, dtype: str = "float32") -> list[Answer]:
    """What a model answers to the training set's own questions."""
    found = []
    backend = LocalModel(str(name), LLMSettings(device="cpu", dtype=dtype))
    for example in answer_set(workspace, "validation", settings(name)).examples:
        prompt = Prompt(tuple(Message(t["role"], t["content"]) for t in example.messages[:-1]), Query(""))  # type: ignore[arg-type]
        [answer] = asyncio.run(backend.ask([Request(prompt, sampling=Sampling(max_tokens=12))]))
        assert isinstance(answer, Answer)
        found.append(answer)
    return found


def test_an_adapter_answers_what_it_learnt_and_its_base_does_not(
    model: Path, workspace: Workspace, tmp_path: Path
) -> None:
    events: list[tuple[int, int | None]] = []
    work = FineTuning.prepare(
        workspace,
        settings(model),
        plan(out=tmp_path / "adapter"),
        Monitor(lambda e: events.append((e.done, e.total)) if e.fields else None),
    )
    done = work.run()
    assert (done.adapter, done.metrics.examples) == (str(tmp_path / "adapter"), 3)
    assert [step.step for step in done.metrics.steps] == list(range(1, 51))
    assert done.metrics.steps[0].loss > 5.0 > 1.0 > done.metrics.steps[-1].loss
    assert events == [(i, 50) for i in range(1, 51)]
    wanted = [answer for _, answer in ASKED.values()]
    assert [a.text for a in answers(tmp_path / "adapter", workspace)] == wanted
    assert [a.finish for a in answers(tmp_path / "adapter", workspace)] == ["stop"] * 3
    # most of the adapter's changes are smaller than a step of bfloat16: merged into the weights they would be lost
    assert [a.text for a in answers(tmp_path / "adapter", workspace, "bfloat16")] == wanted
    assert not set(wanted) & {a.text for a in answers(model, workspace)}
    assert not (workspace.path / FOLDER).exists() or not list((workspace.path / FOLDER).iterdir())
    again = FineTuning.prepare(workspace, settings(model), plan(out=tmp_path / "adapter")).run()
    assert again == done  # nothing is trained twice
    with pytest.raises(UsageError, match="exists"):
        FineTuning.prepare(workspace, settings(model), plan(replace(HARD, seed=1), out=tmp_path / "adapter"))


def test_an_adapter_is_an_llm_of_its_own(model: Path, workspace: Workspace, tmp_path: Path) -> None:
    one, other = (
        FineTuning.prepare(workspace, settings(model), plan(Recipe(1e-2, 2, 2, seed=seed))).run().adapter
        for seed in (0, 1)
    )
    weights = {LocalModel(str(name)).identity()["weights"] for name in (model, one, other)}
    assert len(weights) == 3
    moved = Path(one).rename(tmp_path / "moved")
    assert LocalModel(str(moved)).identity()["weights"] in weights
    # an adapter can be trained further; its base stays the first one
    further = FineTuning.prepare(workspace, settings(moved), plan(Recipe(1e-2, 1, 2))).run().adapter
    assert json.loads((Path(further) / ORIGIN).read_text())["base"] == str(model)
    assert LocalModel(further).identity()["weights"] not in weights
    before, after = (load_file(folder / WEIGHTS) for folder in (moved, Path(further)))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_an_adapter_refuses_a_base_that_changed(tmp_path: Path, workspace: Workspace) -> None:
    own = save_model(tmp_path / "base", "llama", CHAT)
    adapter = FineTuning.prepare(workspace, settings(own), plan(Recipe(epochs=1))).run().adapter
    save_model(own, "llama", CHAT)
    assert answers(adapter, workspace)  # the same weights, written anew
    weights = transformers.AutoModelForCausalLM.from_pretrained(own)
    with torch.no_grad():
        weights.model.norm.weight.mul_(2.0)
    weights.save_pretrained(own)
    with pytest.raises(LLMError, match="has changed since the adapter was trained"):
        asyncio.run(LocalModel(adapter, LLMSettings(device="cpu")).probe())
    (Path(adapter) / ORIGIN).write_text("{")
    with pytest.raises(LLMError, match="cannot read the adapter"):
        LocalModel(adapter).identity()


def test_only_the_answer_and_its_end_are_trained_on(model: Path) -> None:
    tokenizer, _ = load_description(str(model))
    turns = [Message("system", "Answer."), Message("user", "which animal barks?"), Message("assistant", "the dog")]
    lesson = lesson_of(tokenizer, turns)
    asked = encode(tokenizer, *render(tokenizer, Prompt(tuple(turns[:-1]), Query(""))))
    assert lesson.ids[: lesson.split] == asked  # as the model will be asked
    assert tokenizer.decode(lesson.ids[lesson.split :]) == "the dog<|end|>"
    trainer = Trainer(str(model), "float32", "cpu", Recipe(batch=1, epochs=1), [lesson])
    plain: Any = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        rows = plain(torch.tensor([lesson.ids])).logits[0].double().log_softmax(-1)
    by_hand = [-float(rows[i - 1, lesson.ids[i]]) for i in range(lesson.split, len(lesson.ids))]
    [loss] = trainer.run(lambda: None)
    assert loss == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-5)


def test_a_training_goes_on_where_it_was_stopped(model: Path, workspace: Workspace, tmp_path: Path) -> None:
    recipe = Recipe(1e-2, 4, 2, seed=3)
    straight = FineTuning.prepare(workspace, settings(model), plan(recipe, out=tmp_path / "straight")).run()
    cancel = CancelToken()

    def stop(event: Any) -> None:
        if event.done == 3:
            cancel.cancel()

    with pytest.raises(Cancelled):
        FineTuning.prepare(
            workspace, settings(model), plan(recipe, out=tmp_path / "again"), Monitor(stop, cancel)
        ).run()
    assert not (tmp_path / "again").exists()
    resumed = FineTuning.prepare(workspace, settings(model), plan(recipe, out=tmp_path / "again")).run()
    assert resumed.metrics.resumed_at == 3
    assert resumed.metrics.steps == straight.metrics.steps
    one, two = (load_file(tmp_path / name / WEIGHTS) for name in ("straight", "again"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not list((workspace.path / FOLDER).glob("*"))


def test_what_was_kept_survives_a_kill(
    model: Path, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "KEEP_EVERY", 0.0)

    def die(event: Any) -> None:
        if event.done == 3:
            raise RuntimeError  # nothing more is written, as after a kill

    recipe = Recipe(1e-2, 4, 2)
    with pytest.raises(RuntimeError):
        FineTuning.prepare(workspace, settings(model), plan(recipe, out=tmp_path / "adapter"), Monitor(die)).run()
    assert FineTuning.prepare(workspace, settings(model), plan(replace(recipe, seed=1))).run().metrics.resumed_at == 0
    [state] = (workspace.path / FOLDER).glob("*.safetensors")
    whole, tensors = state.read_bytes(), load_file(state)
    with safe_open(state, framework="pt") as stored:
        key = stored.metadata()["key"]
    for damaged in (b"", whole[:-9], b"x" * 99, save({}, {"key": key}), save(tensors, {"key": key, "losses": "3"})):
        state.write_bytes(damaged)
        with pytest.raises(WorkspaceError, match="state of the unfinished training is damaged") as told:
            FineTuning.prepare(workspace, settings(model), plan(recipe, out=tmp_path / "adapter")).run()
        assert str(state) in told.value.fix
    state.write_bytes(whole)
    with monkeypatch.context() as full, pytest.raises(torch.cuda.OutOfMemoryError):  # nothing that is whole is deleted
        full.setattr("safetensors.safe_open", Mock(side_effect=torch.cuda.OutOfMemoryError))
        FineTuning.prepare(workspace, settings(model), plan(recipe, out=tmp_path / "adapter")).run()
    done = FineTuning.prepare(workspace, settings(model), plan(recipe, out=tmp_path / "adapter")).run()
    assert done.metrics.resumed_at == 2
    assert len(done.metrics.steps) == 8


def test_what_came_to_the_target_meanwhile_is_kept_and_so_is_what_was_trained(
    model: Path, workspace: Workspace, tmp_path: Path
) -> None:
    recipe, out, link = Recipe(epochs=1), tmp_path / "adapter", tmp_path / "link"
    FineTuning.prepare(workspace, settings(model), plan(recipe, out=out)).run()
    before = (out / WEIGHTS).read_bytes()
    other = replace(recipe, seed=1)

    def write(event: object) -> None:
        (out / "notes.txt").write_text("mine")

    work = FineTuning.prepare(workspace, settings(model), plan(other, out=out, force=True), Monitor(write))
    with pytest.raises(UsageError, match="holds notes"):
        work.run()
    assert ((out / WEIGHTS).read_bytes(), (out / "notes.txt").read_text()) == (before, "mine")
    (out / "notes.txt").unlink()
    link.symlink_to(out)
    (out / ORIGIN).write_text("{")  # what is replaced need not be whole
    done = FineTuning.prepare(workspace, settings(model), plan(other, out=link, force=True)).run()
    assert (done.adapter, done.metrics.resumed_at) == (str(link), 1)  # nothing is trained twice
    assert link.is_symlink()
    assert (out / WEIGHTS).read_bytes() != before
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()


def test_documents_are_cut_and_examples_that_do_not_fit_are_left_out(model: Path, tmp_path: Path) -> None:
    long = {"id": "long", "input": "question " * 600, "output": "no", "context": "One.\n\nTwo."}
    workspace = workspace_of(tmp_path / "w", [*QUERIES, long])
    work = FineTuning.prepare(workspace, settings(model, document_tokens=4), plan())
    assert (len(work.lessons), work.too_long) == (3, 1)
    assert "1 example is too long for the model and left out" in work.cost().warnings, "a dry run tells of it, too"
    tokenizer, _ = load_description(str(model))
    asked = Calibration.prepare(
        LLMClient(workspace, LocalModel(str(model)), settings(model, document_tokens=4), dry_run=True),
        queries_of(workspace, "validation", len(QUERIES)),
        CalibrationPlan(split="validation"),
    )
    cut = 0
    for example, row, case in zip(work.set.examples, QUERIES, asked.cases, strict=False):
        texts = [document.text for document in case.documents]
        assert example.messages[1]["content"].startswith(f"Document [1]: {texts[0]}\n\nDocument [2]: {texts[1]}\n\n")
        for text, whole in zip(texts, row["context"].split("\n\n"), strict=True):
            words = whole.split()
            shown = len(text.split())
            assert text == " ".join(words[:shown])
            assert shown == 1 or len(encode(tokenizer, text, True)) <= 4
            if text != whole:
                assert len(encode(tokenizer, " ".join(words[: shown + 1]), True)) > 4
                cut += 1
    assert cut
    assert work.set.document_tokens == 4
    with pytest.raises(UsageError, match="no example fits"):
        FineTuning.prepare(workspace_of(tmp_path / "v", [long]), settings(model), plan())


def test_a_conversation_that_the_chat_template_refuses_is_left_out(workspace: Workspace, tmp_path: Path) -> None:
    refusing = (
        "{% for m in messages %}{% if WORD in m['content'] %}{{ raise_exception('no dogs') }}{% endif %}{% endfor %}"
    )
    some = save_model(tmp_path / "some", "llama", refusing.replace("WORD", "'barks'") + CHAT)
    work = FineTuning.prepare(workspace, settings(some), plan(Recipe(epochs=1)))
    (warning,) = work.cost().warnings
    assert warning.startswith("1 conversation was left out: the chat template of") and warning.endswith("no dogs")
    assert (work.cost().examples, work.run().metrics.warnings) == (2, (warning,))
    every = save_model(tmp_path / "every", "llama", refusing.replace("WORD", "'?'") + CHAT)
    with pytest.raises(LLMError, match="no dogs"):
        FineTuning.prepare(workspace, settings(every), plan())


def test_what_cannot_be_trained_is_refused_with_the_way_out(
    run: Run, model: Path, workspace: Workspace, tmp_path: Path
) -> None:
    where = ("-w", workspace.path, "--json")
    for llm in ("offline", "openai:gpt-9"):
        with pytest.raises(UsageError, match="not on this machine") as refused:
            FineTuning.prepare(workspace, Settings(llm=llm), plan())
        assert "export SET.jsonl --format calibration" in refused.value.fix
    with pytest.raises(UsageError, match="no validation queries have been calibrated yet"):
        FineTuning.prepare(workspace, settings(model), FineTuningPlan(recipe=HARD))
    with pytest.raises(UsageError, match="test queries are for evaluation"):
        FineTuning.prepare(workspace, settings(model), plan(split="test"))
    local = ("--llm", f"hf:{model}", "--device", "cpu")
    told = run("train", "calibration", "--on", "answers", "--dry-run", "--batch", 2, *local, *where).json
    assert (told["examples"], told["steps"]) == (3, 6)
    out = tmp_path / "adapter"
    done = run("train", "calibration", "--on", "answers", "--epochs", 1, "--out", out, *local, *where)
    assert done.code == 0, done.err
    assert (done.json["calls"], done.json["adapter"]) == (0, str(out))
    assert set(done.json["metrics"]) == {
        "on", "split", "examples", "counts", "too_long", "steps", "trained_tokens", "parameters", "recipe",
        "document_tokens", "resumed_at", "seconds", "warnings",
    }  # fmt: skip
    assert "Warning" not in done.err
    assert {CONFIG, WEIGHTS, ORIGIN} <= {file.name for file in out.iterdir()}


SCORED = {"full": (True, True), "answers": (False, True), "plain": (False, False)}
"""Whether examples of an arm show scores of documents, and of earlier answers (docs/how-to/calibrate.md)."""


def test_each_arm_trains_on_what_its_rounds_showed(run: Run, model: Path, tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", [{"id": "q", "input": "What?", "output": "yes", "context": "A.\n\nB."}])
    backend = Scripted(
        {("q", 0): ("no", 0.3), ("q", 1): ("yes", 0.6), ("q", "A."): ("x", 0.5), ("q", "B."): ("x", 0.4)}
    )
    client = LLMClient(workspace, backend, SETTINGS)
    rounds = CalibrationPlan(rounds=1, split="validation", arms=tuple(SCORED))
    Calibration.prepare(client, queries_of(workspace, "validation"), rounds).ask(Budget())
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    learnt = {}
    for arm, (documents, answers_) in SCORED.items():
        of_arm = ("--arm", arm, "-w", workspace.path, "--json")
        exported = run("export", tmp_path / f"{arm}.jsonl", "--format", "calibration", *of_arm)
        assert exported.code == 0, exported.err
        [line] = (tmp_path / f"{arm}.jsonl").read_text().splitlines()
        messages = json.loads(line)["messages"]
        said = messages[1]["content"]
        assert ("Document [1] (Uncertainty Score" in said, "Round 1: no (Uncertainty Score" in said) == (
            documents,
            answers_,
        )
        assert (said.count("Uncertainty Score"), messages[-1]["content"]) == (2 * documents + answers_, "yes")
        local = ("--llm", f"hf:{model}", "--device", "cpu")
        trained = run("train", "calibration", "--epochs", 1, *local, *of_arm)
        assert trained.code == 0, trained.err
        learnt[arm] = trained.json["tokens_in"]
        assert learnt[arm] == len(tokenizer.apply_chat_template(messages)["input_ids"])
    assert learnt["full"] > learnt["answers"] > learnt["plain"]


def test_rounds_of_a_calibration_are_learnt_from(model: Path, tmp_path: Path) -> None:
    """The paper's set, by way of the adapter that the plain set gave: untrained, this model is never right."""
    workspace = workspace_of(tmp_path / "w", QUERIES)
    taught = FineTuning.prepare(workspace, settings(model), plan()).run().adapter
    chosen = settings(taught, max_tokens=12)
    backend = LocalModel(taught, LLMSettings(device="cpu", dtype="float32"))
    walk = CalibrationPlan(rounds=1, split="validation")
    done = Calibration.prepare(LLMClient(workspace, backend, chosen), queries_of(workspace, "validation"), walk).ask(
        Budget()
    )
    notes: list[str] = []
    for length in (None, 200):
        client = LLMClient(
            workspace, backend, replace(chosen, document_tokens=length), Monitor(lambda e: notes.append(e.note))
        )
        Calibration.prepare(client, queries_of(workspace, "validation"), walk)
    assert [note for note in notes if "another length" in note] == [
        f"hf:{taught} learnt from documents of another length: leave out --document-tokens"
    ]
    rounds = FineTuning.prepare(workspace, settings(model), FineTuningPlan(recipe=Recipe(1e-2, 1, 2))).run()
    assert rounds.metrics.counts["kept_right"] == 3
    assert rounds.metrics.counts["queries"] == len(done.queries)  # type: ignore[union-attr]
