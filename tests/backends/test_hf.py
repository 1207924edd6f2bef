"""The local model against direct forward passes, one sequence at a time."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from factories.models import CHAT, NO_SYSTEM, Reference, save_model
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.backends.hf import loading, tokens
from icl_curate.engine.backends.hf.adapters import origin_of
from icl_curate.engine.backends.hf.loading import fingerprint
from icl_curate.engine.backends.hf.model import LocalModel, generator_of, sample
from icl_curate.engine.backends.hf.tokens import encode, grouped, render, texts_of
from icl_curate.engine.backends.worker import Stopped
from icl_curate.engine.base.errors import LLMError
from icl_curate.engine.llm.reading import read
from icl_curate.engine.llm.types import Answer, Failure, LLMSettings, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("models")
    return {
        "llama": save_model(base / "llama", "llama"),
        "gpt2": save_model(base / "gpt2", "gpt2"),
        "mistral": save_model(base / "mistral", "mistral"),
        "gemma": save_model(base / "gemma", "gemma"),
        "chat": save_model(base / "chat", "llama", CHAT),
        "no-system": save_model(base / "no-system", "gpt2", NO_SYSTEM),
    }


def _prompt(question: str, choices: tuple[str, ...] = (), shots: int = 3) -> Prompt:
    messages = [Message("system", "Answer each question with a few words and nothing else.")]
    for i in range(shots):
        messages += [Message("user", f"Question: which animal barks on day {i}?"), Message("assistant", "the dog")]
    return Prompt((*messages, Message("user", question)), Query(question), (), choices)


QUESTIONS = (
    "Question: which colour has the sky?",
    "Question: does the ferry run on Sundays, and when does it leave?",
    "Question: café?",
)
OPTIONS = ("blue", "the dog", "positive", "possible", "日本語", "four times a day")


def _model(folder: Path, dtype: str = "float32", **settings: Any) -> LocalModel:
    return LocalModel(str(folder), LLMSettings(dtype=dtype, **settings))


@pytest.mark.parametrize("name", ["chat", "no-system", "gpt2"])
def test_the_text_that_is_shown_is_what_the_model_reads(name: str, folders: dict[str, Path]) -> None:
    model, prompt = _model(folders[name]), _prompt(QUESTIONS[0])
    tokenizer, _ = model._described()
    ids = encode(tokenizer, model.rendered(prompt), bool(tokenizer.chat_template))
    assert len(ids) == model.count_tokens(prompt) and QUESTIONS[0] in model.rendered(prompt)


def _ask(model: LocalModel, requests: list[Request]) -> list[Result]:
    return asyncio.run(model.ask(requests))


def _answers(results: list[Result]) -> list[Answer]:
    assert all(isinstance(result, Answer) for result in results), results
    return [result for result in results if isinstance(result, Answer)]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma", "chat"])
def test_option_scores_equal_one_pair_at_a_time(folders: dict[str, Path], kind: str) -> None:
    model, reference = _model(folders[kind]), Reference(folders[kind])
    # two groups that share their demonstrations, and a prompt of its own
    prompts = [_prompt(q, OPTIONS) for q in QUESTIONS] + [_prompt(q, OPTIONS[:2], shots=1) for q in QUESTIONS[:2]]
    prompts.append(_prompt("Question: barges?", OPTIONS[1:4], shots=0))
    answers = _answers(_ask(model, [Request(prompt, score=True) for prompt in prompts]))
    for prompt, answer in zip(prompts, answers, strict=True):
        wanted = [reference.score(prompt, choice) for choice in prompt.choices]
        assert [len(option) for option in answer.option_logprobs] == [len(option) for option in wanted]
        for got, want in zip(answer.option_logprobs, wanted, strict=True):
            assert got == pytest.approx(want, abs=1e-5)
        totals = [sum(option) for option in wanted]
        assert answer.text == prompt.choices[totals.index(max(totals))]
    assert model._tree


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma"])
def test_tree_equals_rows_when_options_share_beginnings_and_span_several_passes(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.engine.backends.hf.scoring.PASS_TOKENS_CPU", 24)
    choices = ("the", "the dog", "the dog barks", "the ferry", "positive", "possible", "possibly")
    requests = [Request(_prompt(q, choices), score=True) for q in QUESTIONS]
    model = _model(folders[kind])
    tree = _answers(_ask(model, requests))
    assert model._tree
    model._tree = False
    rows = _answers(_ask(model, requests))
    for a, b in zip(tree, rows, strict=True):
        for x, y in zip(a.option_logprobs, b.option_logprobs, strict=True):
            assert x == pytest.approx(y, abs=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma", "chat"])
def test_what_prompts_begin_with_is_read_once_and_known_in_the_next_batch(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.engine.backends.hf.scoring.PASS_TOKENS_CPU", 200)
    model, reference = _model(folders[kind]), Reference(folders[kind])
    asyncio.run(model.probe())
    assert model._loaded is not None
    read: list[int] = []
    model._loaded.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    # same instruction, other demonstrations; two prompts of each batch begin with the same long block
    batches = [
        [_prompt(q, OPTIONS[:2], shots) for q, shots in zip((*QUESTIONS, *QUESTIONS), (0, 1, 9, 9, 9, 1), strict=True)],
        [_prompt(f"{q} {q}", OPTIONS[1:3], shots) for q, shots in zip(QUESTIONS, (9, 2, 0), strict=True)],
    ]
    counts = []
    for prompts in batches:
        read.clear()
        answers = _answers(_ask(model, [Request(prompt, score=True) for prompt in prompts]))
        counts.append(sum(read))
        for prompt, answer in zip(prompts, answers, strict=True):
            for got, choice in zip(answer.option_logprobs, prompt.choices, strict=True):
                assert got == pytest.approx(reference.score(prompt, choice), abs=1e-5)
    apart = [sum(len(reference.ids(reference.text(prompt))) for prompt in prompts) for prompts in batches]
    assert counts[0] < 0.7 * apart[0]
    cold = _model(folders[kind])
    asyncio.run(cold.probe())
    assert cold._loaded is not None
    cold._loaded.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    read.clear()
    _ask(cold, [Request(prompt, score=True) for prompt in batches[1]])
    assert counts[1] < sum(read)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "chat"])
def test_a_long_prompt_is_read_without_a_mask_and_its_options_on_its_cache(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts that begin alike for a word or two only: together they would need a mask over all of their tokens."""
    monkeypatch.setattr("icl_curate.engine.backends.hf.scoring.PASS_TOKENS_CPU", 40)
    monkeypatch.setattr("icl_curate.engine.backends.hf.loaded.LONG", 40)
    model, reference = _model(folders[kind]), Reference(folders[kind])
    asyncio.run(model.probe())
    assert model._loaded is not None
    passes: list[tuple[bool, int, int]] = []

    def note(_: object, __: object, given: dict[str, Any]) -> None:
        cached = given["past_key_values"].get_seq_length()
        passes.append((given.get("attention_mask") is not None, given["input_ids"].numel(), cached))

    model._loaded.model.register_forward_pre_hook(note, with_kwargs=True)
    prompts = [_prompt(" ".join([q] * 11), OPTIONS[:3], shots=1) for q in QUESTIONS]
    answers = _answers(_ask(model, [Request(prompt, score=True) for prompt in prompts]))
    for prompt, answer in zip(prompts, answers, strict=True):
        for got, choice in zip(answer.option_logprobs, prompt.choices, strict=True):
            assert got == pytest.approx(reference.score(prompt, choice), abs=1e-5)
    lengths = [len(reference.ids(reference.text(prompt))) for prompt in prompts]
    assert min(lengths) > 45
    assert all(tokens <= 24 for masked, tokens, _ in passes if masked), "options alone are read with a mask"
    whole = [tokens + cached for masked, tokens, cached in passes if not masked and tokens > 40]
    assert sorted(whole) == sorted(length - 1 for length in lengths)
    assert all(not cached or 4 * cached >= tokens + cached for masked, tokens, cached in passes if not masked)


def test_an_interrupted_pass_leaves_no_half_read_beginning(folders: dict[str, Path]) -> None:
    model, reference = _model(folders["llama"]), Reference(folders["llama"])
    asyncio.run(model.probe())
    assert model._loaded is not None
    calls = 0

    def stop_in_the_second_layer(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first pass reads the common beginning
            raise Stopped

    hook = model._loaded.model.model.layers[1].register_forward_pre_hook(stop_in_the_second_layer)
    requests = [Request(_prompt(q, OPTIONS[:2]), score=True) for q in QUESTIONS]
    with pytest.raises(Stopped):
        _ask(model, requests)
    hook.remove()
    for request, answer in zip(requests, _answers(_ask(model, requests)), strict=True):
        for got, choice in zip(answer.option_logprobs, request.prompt.choices, strict=True):
            assert got == pytest.approx(reference.score(request.prompt, choice), abs=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma", "chat"])
def test_greedy_generation_equals_the_direct_loop_alone_and_in_a_batch(folders: dict[str, Path], kind: str) -> None:
    model, reference = _model(folders[kind]), Reference(folders[kind])
    prompts = [_prompt(q) for q in QUESTIONS] + [_prompt("Question: barges?", shots=1), _prompt("Hills", shots=0)]
    requests = [Request(prompt, sampling=Sampling(max_tokens=9)) for prompt in prompts]
    together = _answers(_ask(model, requests))
    alone = [_answers(_ask(model, [request]))[0] for request in requests]
    for prompt, batched, single in zip(prompts, together, alone, strict=True):
        assert batched.tokens == single.tokens
        assert batched.logprobs == pytest.approx(single.logprobs, abs=1e-5)
        tokens, values = reference.greedy(prompt, 9)
        kept = len(batched.logprobs)  # the answer may have ended at a stop text
        assert "".join(batched.tokens) == reference.tokenizer.decode(tokens[:kept], skip_special_tokens=True)
        assert batched.logprobs == pytest.approx(values[:kept], abs=1e-5)
        assert kept == len(tokens) or batched.finish == "stop"
        assert batched.tokens_in == len(reference.ids(reference.text(prompt))) == model.count_tokens(prompt)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma", "chat"])
def test_prompts_of_several_beginnings_are_read_apart_and_continued_together(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.engine.backends.hf.model.PASS_TOKENS_CPU", 120)
    model, reference, most = _model(folders[kind]), Reference(folders[kind]), 7
    asyncio.run(model.probe())
    assert model._loaded is not None
    read: list[tuple[int, int]] = []
    model._loaded.model.register_forward_pre_hook(
        lambda _, __, given: read.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    pairs = zip((*QUESTIONS, *QUESTIONS), (0, 1, 9, 9, 9, 1), strict=True)
    prompts = [_prompt(question, shots=shots) for question, shots in pairs]
    answers = _answers(_ask(model, [Request(prompt, sampling=Sampling(max_tokens=most)) for prompt in prompts]))
    for prompt, answer in zip(prompts, answers, strict=True):
        _, values = reference.greedy(prompt, most)
        assert answer.logprobs == pytest.approx(values[: len(answer.logprobs)], abs=1e-5)
    steps = [rows for rows, tokens in read if tokens == 1]
    assert len(steps) < most and sum(tokens > 1 for _, tokens in read) > 2, read
    own = sum(answer.tokens_in for answer in answers)
    assert model._loaded.window or sum(rows * tokens for rows, tokens in read if tokens > 1) < own


def test_long_prompts_that_begin_alike_for_a_few_tokens_are_read_alone_without_a_mask(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icl_curate.engine.backends.hf.model.LONG", 60)
    monkeypatch.setattr("icl_curate.engine.backends.hf.model.PASS_TOKENS_CPU", 60)
    model, most = _model(folders["llama"]), 3
    asyncio.run(model.probe())
    assert model._loaded is not None
    masked: list[bool] = []
    model._loaded.model.register_forward_pre_hook(
        lambda _, __, given: masked.append("attention_mask" in given) if given["input_ids"].shape[1] > 1 else None,
        with_kwargs=True,
    )
    prompts = [_prompt(" ".join([question] * 11), shots=0) for question in QUESTIONS[:2]]
    _answers(_ask(model, [Request(prompt, sampling=Sampling(max_tokens=most)) for prompt in prompts]))
    assert masked == [False, False]


def test_a_prefix_is_shared_only_where_no_padding_pushes_it_out_of_the_window(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """A long prompt with a short answer beside a short one with a long answer: each fits into the window alone."""
    prompts, most = [_prompt(QUESTIONS[0], shots=9), _prompt(QUESTIONS[1], shots=3)], [4, 60]
    lengths = [_model(folders["gemma"]).count_tokens(prompt) for prompt in prompts]
    folder = Path(shutil.copytree(folders["gemma"], tmp_path / "gemma"))
    config = json.loads((folder / "config.json").read_text())
    config["sliding_window"] = max(sum(pair) for pair in zip(lengths, most, strict=True))
    assert config["sliding_window"] < max(lengths) + max(most)
    (folder / "config.json").write_text(json.dumps(config))
    model = _model(folder)
    pairs = zip(prompts, most, strict=True)
    requests = [Request(prompt, sampling=Sampling(max_tokens=count)) for prompt, count in pairs]
    together = _answers(_ask(model, requests))
    for request, batched in zip(requests, together, strict=True):
        (alone,) = _answers(_ask(model, [request]))
        assert batched.tokens == alone.tokens and batched.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_a_drawn_answer_depends_on_seed_and_repeat_and_not_on_its_batch(folders: dict[str, Path]) -> None:
    model = _model(folders["llama"])
    sampling = Sampling(max_tokens=12, temperature=0.9, top_p=0.95, seed=3)
    requests = [Request(_prompt(q), sampling=sampling) for q in QUESTIONS]
    together = _answers(_ask(model, requests))
    alone = [_answers(_ask(model, [request]))[0] for request in requests]
    assert [a.tokens for a in together] == [a.tokens for a in alone]
    draws = [Request(_prompt(QUESTIONS[0]), sampling=replace(sampling, repeat=i)) for i in range(6)]
    assert len({answer.tokens for answer in _answers(_ask(model, draws))}) > 1


def test_sampling_follows_the_model_within_the_nucleus() -> None:
    torch.manual_seed(11)
    logprobs = torch.randn(50).mul(2).log_softmax(-1)
    truth = (logprobs / 1.5).softmax(-1)
    ordered, index = truth.sort(descending=True)
    nucleus = index[: int((ordered.cumsum(0) - ordered < 0.6).sum())].tolist()
    draws = [Sampling(temperature=1.5, top_p=0.6, repeat=i) for i in range(2000)]
    chosen = [sample(logprobs, generate, generator_of(generate, "prompt")) for generate in draws]
    assert set(chosen) <= set(nucleus)
    for token in nucleus:
        expected = float(truth[token] / truth[nucleus].sum())
        spread = 5 * (expected * (1 - expected) / len(chosen)) ** 0.5  # five standard errors
        assert abs(chosen.count(token) / len(chosen) - expected) <= spread


def test_a_template_without_a_system_turn_gets_it_in_the_first_user_turn(folders: dict[str, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["no-system"])
    text, chat = render(tokenizer, _prompt("Hills", shots=0))
    assert chat
    assert text.startswith("<|user|>Answer each question with a few words and nothing else.\n\nHills")


def test_the_texts_of_tokens_are_those_of_the_answer() -> None:
    """A tokenizer as that of Llama 2 and Mistral 7B, whose tokens lose their blank where each is decoded alone."""
    words = ["<unk>", "</s>", "▁The", "▁label", "▁is", "▁billing", "▁due", "<0xE6>", "<0x97>", "<0xA5>"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    core.decoder = decoders.Sequence(parts)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")
    ids = [2, 3, 4, 5, 7, 8, 9, 6, 1]
    texts = texts_of(tokenizer, ids)
    assert texts == ["The", " label", " is", " billing", "", "", "日", " due", ""]
    assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=True)
    assert texts_of(tokenizer, ids[:6])[-2:] == ["", "\ufffd\ufffd"]


def test_a_model_whose_template_begins_a_thought_is_not_scored_and_its_thoughts_are_no_answer(tmp_path: Path) -> None:
    opening = CHAT.replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}")
    model = LocalModel(str(save_model(tmp_path / "m", "llama", opening)))
    found = asyncio.run(model.probe())
    assert not found.scoring and "thinks" in model.identity() and "thinks" in " ".join(found.notes)
    request = Request(_prompt(QUESTIONS[0], OPTIONS), sampling=Sampling(max_tokens=20))
    (answer,) = _answers(_ask(model, [request]))
    assert answer.text.startswith("<think>\n")
    assert len(answer.tokens) == len(answer.logprobs) == len(answer.entropies) == answer.tokens_out + 1
    assert not read(request, answer).usable and read(request, answer).how == "cut off while thinking"


def test_generation_stops_before_a_stop_text(folders: dict[str, Path]) -> None:
    model = _model(folders["chat"])
    prompt = _prompt(QUESTIONS[1])
    free = _answers(_ask(model, [Request(prompt, sampling=Sampling(max_tokens=10))]))[0]
    stop = free.tokens[4]
    cut = _answers(_ask(model, [Request(prompt, sampling=Sampling(max_tokens=10, stop=(stop,)))]))[0]
    assert stop not in cut.text.lstrip()
    assert cut.finish == "stop"
    assert cut.logprobs == pytest.approx(free.logprobs[: len(cut.logprobs)], abs=1e-6)
    assert "".join(cut.tokens).strip() == cut.text or len(cut.tokens) <= 5


def test_a_prompt_beyond_the_context_fails_alone(folders: dict[str, Path]) -> None:
    model = _model(folders["llama"])
    assert model.context_tokens == 512
    long, short = _prompt("barges " * 600, OPTIONS[:2]), _prompt(QUESTIONS[0], OPTIONS[:2])
    requests = [Request(long, score=True), Request(short, score=True), Request(long), Request(short)]
    results = _ask(model, requests)
    assert [type(result) for result in results] == [Failure, Answer, Failure, Answer]
    assert {result.kind for result in results if isinstance(result, Failure)} == {"context"}


def test_the_identity_changes_with_weights_template_and_dtype_alone(folders: dict[str, Path], tmp_path: Path) -> None:
    base = _model(folders["llama"]).identity()
    assert _model(folders["llama"], batch_size=3, timeout=1).identity() == base
    assert _model(folders["llama"], dtype="bfloat16").identity() != base
    copy = save_model(tmp_path / "copy", "llama")
    same = dict(_model(copy).identity())
    assert same["weights"] == base["weights"]  # equal weights, wherever they lie
    model = transformers.AutoModelForCausalLM.from_pretrained(copy)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] += 0.5
    model.save_pretrained(copy)
    assert _model(copy).identity()["weights"] != base["weights"]
    assert _model(folders["chat"]).identity()["template"] != base["template"]
    ended = dict(_model(copy).identity())
    (copy / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert _model(copy).identity() == ended | {"ends": [1, 2]}
    (copy / "generation_config.json").write_text("[")
    assert _model(copy).identity() == ended


def test_the_fingerprint_of_an_adapter_changes_with_its_description_and_its_base(tmp_path: Path) -> None:
    adapter, base, other = tmp_path / "adapter", tmp_path / "base", tmp_path / "other"
    for folder in (adapter, base, other):
        folder.mkdir()
        (folder / "config.json").write_text(folder.name)
    (adapter / "adapter_model.safetensors").write_bytes(b"small")
    described = {"base_model_name_or_path": str(base), "lora_alpha": 8}

    def seen(**changed: object) -> str:
        (adapter / "adapter_config.json").write_text(json.dumps(described | changed))
        return loading.fingerprint(str(adapter))

    first = seen()
    (base / "model.safetensors").write_bytes(b"trained on")
    later = seen(), seen(lora_alpha=80), seen(base_model_name_or_path=str(other)), seen()
    assert len({first, *later}) == 4 and later[0] == later[3]
    seen(base_model_name_or_path=str(adapter))  # of itself: it ends


def test_a_model_that_does_not_load_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in (str(tmp_path / "empty"), "./no/such/model"):
        with pytest.raises(LLMError) as caught:
            asyncio.run(LocalModel(name).probe())
        assert caught.value.fix


SHORT = [Request(_prompt(QUESTIONS[0], shots=0), sampling=Sampling(max_tokens=2))]


def _pickle_instead(folder: Path, weights: str, pickled: str) -> Path:
    torch.save(load_file(folder / weights), folder / pickled)
    (folder / weights).unlink()
    return folder


def _refused(name: Path) -> LLMError:
    with pytest.raises(LLMError, match="pickled files alone") as caught:
        asyncio.run(_model(name).probe())
    assert "\n" not in str(caught.value)
    return caught.value


def test_pickled_weights_are_refused_until_they_are_converted(folders: dict[str, Path], tmp_path: Path) -> None:
    own = Path(shutil.copytree(folders["llama"], tmp_path / "own model"))
    command = _refused(_pickle_instead(own, "model.safetensors", "pytorch_model.bin")).fix.partition(": ")[2]
    subprocess.run(["sh", "-c", command.replace("python", sys.executable, 1)], check=True, capture_output=True)
    assert _answers(_ask(_model(own), SHORT))


def test_a_pickled_adapter_is_refused_until_it_is_converted(folders: dict[str, Path], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(folders["llama"])
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    adapted.peft_config["default"].base_model_name_or_path = str(folders["llama"])
    adapted.save_pretrained(tmp_path / "adapter")
    own = _pickle_instead(tmp_path / "adapter", "adapter_model.safetensors", "adapter_model.bin")
    command = _refused(own).fix.partition(": ")[2]
    subprocess.run(["sh", "-c", command.replace("python", sys.executable, 1)], check=True, capture_output=True)
    assert _answers(_ask(_model(own), SHORT))


class _Runs:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.file), "w")


def test_what_a_pickle_would_run_is_not_run(folders: dict[str, Path], tmp_path: Path) -> None:
    own = Path(shutil.copytree(folders["llama"], tmp_path / "own"))
    (own / "model.safetensors").unlink()
    torch.save({"weight": _Runs(tmp_path / "ran")}, own / "pytorch_model.bin")
    assert "weights_only" not in _refused(own).fix
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 1 / 0 }}",
        "{% for",
        "{{ messages + 1 }}",
        "{% for i in range(1000000000) %}{% endfor %}",
    ],
)
def test_a_template_that_does_what_it_may_not_is_told_in_one_line(tmp_path: Path, template: str) -> None:
    with pytest.raises(LLMError, match=r"the chat template of .* fails") as caught:
        asyncio.run(_model(save_model(tmp_path / "model", "gpt2", template)).probe())
    assert "\n" not in caught.value.what


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "takes more than 0.5 seconds",
        ),
        ("{{ 'long ' * 210000 }}", "adds more than 1,048,576 characters"),
    ],
)
def test_a_template_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, why: str
) -> None:
    monkeypatch.setattr(tokens, "CPU_SECONDS", 0.5)
    before = sys.gettrace()
    with pytest.raises(LLMError, match=rf"the chat template of .* fails: \w+: {why}"):
        _model(save_model(tmp_path / "model", "gpt2", template)).rendered(_prompt(QUESTIONS[0], OPTIONS))
    assert sys.gettrace() is before


def test_a_prompt_that_a_template_refuses_fails_alone(tmp_path: Path) -> None:
    refusing = "{% if messages[1:] %}{{ raise_exception('one turn alone') }}{% endif %}" + CHAT
    model = _model(save_model(tmp_path / "model", "gpt2", refusing))
    one, two = _prompt(QUESTIONS[0], OPTIONS[:2], shots=0), _prompt(QUESTIONS[0], OPTIONS[:2])
    one = replace(one, messages=one.messages[1:])
    for score in (True, False):
        requests = [Request(prompt, score, Sampling(max_tokens=2)) for prompt in (two, one)]
        refused, answer = _ask(model, requests)
        assert isinstance(refused, Failure) and refused.kind == "request" and "one turn alone" in refused.message
        assert isinstance(answer, Answer)
    assert model.count_tokens(two) > model.count_tokens(one)


def test_a_damaged_file_of_weights_is_told_in_one_line(folders: dict[str, Path], tmp_path: Path) -> None:
    own = Path(shutil.copytree(folders["llama"], tmp_path / "own"))
    (own / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(LLMError, match="cannot load hf:"):
        asyncio.run(_model(own).probe())


@pytest.mark.parametrize("name", ["/nowhere/model", "./model", "model.gguf", "~/model.gguf"])
def test_a_path_that_does_not_exist_is_not_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(LLMError, match="there is no such file or folder"):
        asyncio.run(LocalModel(name, LLMSettings()).probe())


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", '{"model_type": "llama", "num_attention_heads": 0}'),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"tokenizer_class": 5}'),
        ("config.json", '{"model_type": "llama", "dtype": "float99"}'),
    ],
)
def test_a_damaged_description_is_told_in_one_line(
    folders: dict[str, Path], tmp_path: Path, file: str, text: str
) -> None:
    shutil.copytree(folders["llama"], tmp_path / "m")
    (tmp_path / "m" / file).write_text(text)
    with pytest.raises(LLMError, match=f"cannot load hf:{tmp_path / 'm'}: "):
        asyncio.run(LocalModel(str(tmp_path / "m"), LLMSettings(device="cpu", dtype="auto")).probe())


@pytest.mark.parametrize(
    ("origin", "why"), [("{}", "no 'base' in icl_curate.json"), ("[]", "list"), ('{"base": 1', "")]
)
def test_an_adapter_that_names_no_base_is_told_in_one_line(tmp_path: Path, origin: str, why: str) -> None:
    (tmp_path / "icl_curate.json").write_text(origin)
    with pytest.raises(LLMError, match=f"cannot read the adapter in {tmp_path}: .*{why}"):
        origin_of(str(tmp_path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_among_the_weights_is_no_endless_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(LLMError, match=r"cannot load hf:.*model\.safetensors: .* not a file"):
        fingerprint(str(tmp_path))


def test_closing_drops_the_weights_and_asking_loads_them_again(folders: dict[str, Path]) -> None:
    async def twice() -> tuple[list[Result], list[Result]]:
        request = Request(_prompt(QUESTIONS[0], OPTIONS), score=True)
        first = await model.ask([request])
        await model.close()
        assert model._loaded is None
        return first, await model.ask([request])

    model = _model(folders["llama"])
    first, second = asyncio.run(twice())
    assert _answers(first)[0].option_logprobs == _answers(second)[0].option_logprobs


def test_bfloat16_scores_stay_close_to_float32(folders: dict[str, Path]) -> None:
    requests = [Request(_prompt(q, OPTIONS[:3]), score=True) for q in QUESTIONS]
    exact = _answers(_ask(_model(folders["llama"]), requests))
    model = _model(folders["llama"], dtype="bfloat16")
    rough = _answers(_ask(model, requests))
    assert model._tree
    flat = lambda answers: [v for a in answers for option in a.option_logprobs for v in option]  # noqa: E731
    differences = [abs(a - b) for a, b in zip(flat(exact), flat(rough), strict=True)]
    assert max(differences) < 1.0
    assert max(differences) > 0.0  # it really ran in bfloat16


@given(st.lists(st.lists(st.integers(0, 1), max_size=40), min_size=1, max_size=12))
def test_prompts_are_grouped_once_each(prompts: list[list[int]]) -> None:
    assert sorted(place for group in grouped(prompts) for place in group) == list(range(len(prompts)))


def test_prompts_with_a_long_common_beginning_are_computed_together() -> None:
    system, first, second = list(range(20)), list(range(100, 160)), list(range(200, 260))
    prompts = [system + shots + [end] for end in (1, 2, 3) for shots in (first, second)] + [[*system, 9]]
    assert sorted(map(sorted, grouped(prompts))) == [[0, 2, 4], [1, 3, 5], [6]]
    assert grouped([[*system, end] for end in (1, 2)]) == [[0, 1]]  # what follows is not worth a prefix of its own


def test_cuda_gets_more_requests_at_once(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(folders["llama"])
    sizes = {}
    for device in ("cpu", "mps", "cuda"):
        monkeypatch.setattr("icl_curate.engine.backends.hf.model.device_named", lambda _, device=device: device)
        sizes[device] = model.batch_size
    few = LLMSettings().batch_size
    assert sizes == {"cpu": few, "mps": few, "cuda": 4 * few}, "only there too large a batch is divided"


def test_what_was_preloaded_is_taken_once_and_only_as_it_was(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = save_model(tmp_path / "copy", "llama")
    loading.preload(str(copy), "float32", "cpu")
    (early,) = loading._preloaded
    model = _model(copy)
    assert model._described() is early.description and model._ready().model is early.model
    assert _model(copy)._ready().model is not early.model
    for dtype, path in (("bfloat16", copy), ("float32", folders["gpt2"])):
        loading.preload(str(copy), "float32", "cpu")
        (early,) = loading._preloaded
        other = _model(path, dtype=dtype)._ready().model
        assert other is not early.model and not loading._preloaded
    loading.preload(str(copy), "float32", "cpu")
    (early,) = loading._preloaded
    early.model.save_pretrained(copy, max_shard_size="100KB")  # other files, as after training
    assert _model(copy)._described() is not early.description and _model(copy)._ready().model is not early.model


def test_what_the_hub_may_change_is_not_preloaded() -> None:
    loading.preload("nobody/nothing", "auto", "cpu")
    assert not loading._preloaded
