"""Work over shards: what is done here, and what a worker would be sent; by a cluster, see `test_ray`."""

from __future__ import annotations

import pickle
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.shard_steps import Crumbs, blocks, computed, sines, texts_of
from icl_curate.engine.base import packages
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import SILENT, Event, Monitor
from icl_curate.engine.retrieval import encoder
from icl_curate.engine.retrieval.encoder import SentenceEncoder, bound_for, kept_encoder, load_encoder
from icl_curate.engine.retrieval.vectors import encode_shard
from icl_curate.engine.shards import storage
from icl_curate.engine.shards.over import over_shards, through_storage
from icl_curate.engine.shards.shard import Arrays, Engine, Shard, WorkerFailure, attempt, packed, unpacked
from icl_curate.engine.store.settings import Settings, resolve

COUNT = 22


def over(notes: Path, engine: Engine, count: int = COUNT, **more: Any) -> list[Arrays]:
    """The outputs in the order of the blocks."""
    step = partial(sines, notes)
    found = dict(
        over_shards(
            step, blocks(count), stage="sines", total=3 * count, beside=notes.parent / "s", engine=engine, **more
        )
    )
    return [found[i] for i in range(count)]


def test_inline_computes_in_order_writes_nothing_and_tells_of_the_whole(notes: Path) -> None:
    events: list[Event] = []
    assert len(over(notes, Engine(), monitor=Monitor(events.append))) == COUNT
    assert computed(notes) == list(range(COUNT)) and not (notes.parent / "s").exists()
    assert [(event.done, event.total) for event in events[:3]] == [(1, 66), (4, 66), (7, 66)]


def test_a_worker_that_lacks_something_is_named_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Shard("encode", 0, str(tmp_path / "absent.in"), str(tmp_path / "x.out"), 1)
    work = partial(through_storage, partial(encode_shard, Crumbs()))
    failed = attempt(lambda: work(shard, SILENT), shard, "on node7")
    assert isinstance(failed, WorkerFailure) and failed.exit_code == UsageError.exit_code
    assert failed.what == f"on node7: no access to {tmp_path / 'absent.in'}" and "--engine-storage" in failed.fix
    storage.write(shard.given, packed(["a"]))
    sent = pickle.dumps(partial(through_storage, partial(encode_shard, load_encoder(device="cpu"))))

    def lacks(*name: object, **more: object) -> None:
        raise UsageError("cannot load the encoder: not on this machine", "--encoder PATH")

    kept_encoder.cache_clear()
    monkeypatch.setattr(encoder, "load_encoder", lacks)
    failed = attempt(lambda: pickle.loads(sent)(shard, lambda event: None), shard, "on node7")
    assert failed == WorkerFailure("on node7: cannot load the encoder: not on this machine", "--encoder PATH", 2)


def test_files_that_were_damaged_are_as_good_as_absent(tmp_path: Path) -> None:
    place = storage.under(str(tmp_path), "a.out")
    arrays = {"x": np.arange(3), "empty": np.empty((0, 2), np.float16)}
    storage.write(place, arrays)
    found = storage.present(place)
    assert found is not None and storage.digest_of(found) == storage.digest_of(arrays)
    assert found["empty"].shape == (0, 2)
    whole = Path(place).read_bytes()
    for damaged in (whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b""):
        Path(place).write_bytes(damaged)
        assert storage.present(place) is None
    storage.remove([place, place])
    assert storage.present(place) is None
    assert storage.under("s3://bucket/a/?region=x", "b") == "s3://bucket/a/b?region=x"


def test_texts_come_back_as_they_were() -> None:
    texts = ["", "plain", "ümläut", "\ud800 alone", "nul \0", "🙂"]
    assert unpacked(packed(texts)) == texts
    assert unpacked(packed([])) == []
    assert texts_of(packed(texts), Monitor(lambda event: None))["lengths"].tolist() == [len(t) for t in texts]


def test_an_encoder_is_pickled_by_its_name_and_loaded_once() -> None:
    loaded = load_encoder(device="cpu")
    made, given = bound_for(loaded, "cuda").__reduce__()
    assert made is kept_encoder and given == (loaded.name, "cuda", False)
    here = load_encoder(device="cpu", full_precision=True)
    content = pickle.dumps(here)
    assert len(content) < 500
    first, second = pickle.loads(content), pickle.loads(content)
    assert isinstance(first, SentenceEncoder) and first is second
    assert first.encode(["a text"]).tobytes() == here.encode(["a text"]).tobytes()
    kept_encoder.cache_clear()


def test_an_engine_that_is_not_there_is_said_in_one_line(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda module: module != "ray")
    with pytest.raises(UsageError) as missing:
        over(notes, Engine("ray"))
    assert missing.value.what == "the engine ray needs ray, which is not installed"
    assert missing.value.fix == "pip install 'icl-curate-core[ray]'"
    assert not (notes.parent / "s").exists()
    with pytest.raises(UsageError, match="the engine ray needs ray"):
        Engine.of(Settings(engine="ray"))


def test_a_workspace_cannot_send_its_texts_to_machines_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config file may come from somebody else, and a cluster of Ray runs code."""
    (tmp_path / "config.toml").write_text('engine = "ray"\nengine_address = "203.0.113.9:6379"\n')
    settings = resolve(tmp_path, {}, {}).settings
    with pytest.raises(UsageError, match=r"config\.toml alone says where the pool is computed"):
        Engine.of(settings)
    assert Engine.of(resolve(tmp_path, {"engine": "inline"}, {}).settings).here  # nothing would be sent
    monkeypatch.setattr(packages, "installed", lambda module: True)
    given = resolve(tmp_path, {"engine_address": "10.0.0.1:6379"}, {}).settings
    assert Engine.of(given) == Engine("ray", "10.0.0.1:6379")
    own = tmp_path / "own.toml"
    shutil.copy(tmp_path / "config.toml", own)
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(own))
    assert Engine.of(resolve(tmp_path, {}, {}).settings).address == "203.0.113.9:6379"
    (tmp_path / "config.toml").write_text('engine = "ray"\nengine_storage = "s3://theirs"\n')
    with pytest.raises(UsageError, match="alone says where"):
        Engine.of(resolve(tmp_path, {}, {}).settings)
    assert Engine.of(Settings()) == Engine()
    with pytest.raises(UsageError, match="engine is 'dask'"):
        resolve(None, {"engine": "dask"}, {})
