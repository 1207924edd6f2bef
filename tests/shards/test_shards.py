"""Work over shards: the same bits from every engine, whatever dies on the way."""

from __future__ import annotations

import pickle
import shutil
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.commands import Run
from factories.shard_steps import Crumbs, always_dies, blocks, computed, sines, texts_of
from icl_curate.engine.base import packages
from icl_curate.engine.base.errors import Cancelled, CurateError, UsageError
from icl_curate.engine.base.progress import CancelToken, Event
from icl_curate.engine.papers.topics import predictor
from icl_curate.engine.papers.topics.model_file import strongest
from icl_curate.engine.retrieval import encoder, vectors
from icl_curate.engine.retrieval.artefacts import vectors_of
from icl_curate.engine.retrieval.checked import map_sealed
from icl_curate.engine.retrieval.encoder import SentenceEncoder, bound_for, kept_encoder, load_encoder
from icl_curate.engine.retrieval.vectors import Vectors, encode_shard
from icl_curate.engine.shards import storage
from icl_curate.engine.shards.over import over_shards, through_storage
from icl_curate.engine.shards.run import map_shards
from icl_curate.engine.shards.shard import Arrays, Engine, Failure, Need, Shard, attempt, packed, unpacked
from icl_curate.engine.store.settings import Settings, resolve
from icl_curate.engine.store.workspace import Workspace

PROCESS = Engine("process")
COUNT = 22


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The folder where steps note what they compute."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def over(notes: Path, engine: Engine, count: int = COUNT, **more: Any) -> list[Arrays]:
    """The outputs in the order of the blocks."""
    step = partial(sines, notes)
    found = dict(
        over_shards(
            step, blocks(count), stage="sines", total=3 * count, beside=notes.parent / "s", engine=engine, **more
        )
    )
    return [found[i] for i in range(count)]


def same(found: list[Arrays], expected: list[Arrays]) -> bool:
    return [a["y"].tobytes() for a in found] == [a["y"].tobytes() for a in expected]


def test_inline_computes_in_order_writes_nothing_and_tells_of_the_whole(notes: Path) -> None:
    events: list[Event] = []
    assert len(over(notes, Engine(), report=events.append)) == COUNT
    assert computed(notes) == list(range(COUNT)) and not (notes.parent / "s").exists()
    assert [(event.done, event.total) for event in events[:3]] == [(1, 66), (4, 66), (7, 66)]


def test_processes_give_the_same_bits_though_some_die_and_one_hangs(notes: Path, tmp_path: Path) -> None:
    """Blocks 2 and 9 kill their process, which breaks a pool of Python's with all that it runs. The last never ends."""
    expected = over(notes, Engine())
    for name in ("die-2", "die-9", f"hang-{COUNT - 1}"):
        (notes / name).touch()
    events: list[Event] = []
    found = over(notes, PROCESS, need=Need(patience=15.0), report=events.append)
    assert same(found, expected)
    said = [event.note for event in events if event.note]
    assert any("its process died; tried again" in note for note in said), said
    assert any("no part finished for 15 s; tried again" in note for note in said), said
    assert any("with --engine process" in note and "does not pay" in note for note in said), said
    assert events[-2].done == events[-2].total == 3 * COUNT
    assert not (tmp_path / "s").exists()  # all that was written for the workers is gone


def test_a_part_that_always_kills_its_worker_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(CurateError, match="part 1 of dying failed 2 times: its process died"):
        [*map_shards(partial(_as_shard, always_dies), [_shard()], PROCESS, retries=1)]


def _shard() -> Shard:
    return Shard("dying", "", 0, (), "", 1)


def _as_shard(step: Any, shard: Shard, report: Any, cancel: CancelToken) -> Any:
    return step({}, report, cancel)


def test_an_exception_is_told_in_one_line_and_not_tried_again(notes: Path) -> None:
    (notes / "fail-0").touch()
    with pytest.raises(CurateError) as failed:
        over(notes, PROCESS, 1)
    assert failed.value.what == "in a process: sines failed with ValueError: block 0 is bad"
    assert "--engine inline" in failed.value.fix
    assert computed(notes) == [0]
    with pytest.raises(ValueError, match="block 0 is bad"):
        over(notes, Engine(), 1)


def test_a_worker_that_lacks_something_is_named_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Shard("encode", "", 0, (str(tmp_path / "absent.in"),), str(tmp_path / "x.out"), 1)
    work = partial(through_storage, partial(encode_shard, Crumbs()))
    failed = attempt(lambda: work(shard, lambda event: None, CancelToken()), shard, "on node7")
    assert isinstance(failed, Failure) and failed.exit_code == UsageError.exit_code
    assert failed.what == f"on node7: no access to {tmp_path / 'absent.in'}" and "--engine-storage" in failed.fix
    storage.write(shard.inputs[0], packed(["a"]))
    sent = pickle.dumps(partial(through_storage, partial(encode_shard, load_encoder(device="cpu"))))

    def lacks(*name: object, **more: object) -> None:
        raise UsageError("cannot load the encoder: not on this machine", "--encoder PATH")

    kept_encoder.cache_clear()
    monkeypatch.setattr(encoder, "load_encoder", lacks)
    failed = attempt(lambda: pickle.loads(sent)(shard, lambda event: None, CancelToken()), shard, "on node7")
    assert failed == Failure("on node7: cannot load the encoder: not on this machine", "--encoder PATH", 2)


def test_after_a_stop_only_the_rest_is_computed(notes: Path, tmp_path: Path) -> None:
    """Finished parts are known by the manifest, and those that a worker finished for a dead driver by their names."""
    expected = over(notes, Engine(), 6)
    (notes / "computed").unlink()
    step = partial(sines, notes)
    all_of = {"stage": "sines", "total": 18, "beside": tmp_path / "s", "engine": PROCESS, "kept": True}
    stopped = over_shards(step, blocks(6), **all_of)
    first = [index for index, _ in islice(stopped, 3)]
    stopped.close()
    assert len((tmp_path / "s" / "sines.jsonl").read_text().splitlines()) == 3
    with (tmp_path / "s" / "sines.jsonl").open("a") as torn:
        torn.write('{"shard": "/s')
    (tmp_path / "s" / "sines-of-other-rows-0.out").touch()
    (tmp_path / "s" / ".sines-of-other-rows-1.out.123-4.tmp").touch()  # its worker was killed as it wrote
    before = computed(notes)
    found = dict(over_shards(step, blocks(6), **all_of))
    assert same([found[i] for i in range(6)], expected)
    again = computed(notes)[len(before) :]
    assert not set(again) & set(first) and set(before + again) == set(range(6))
    assert not (tmp_path / "s").exists()


def test_a_cancelled_stage_stops_its_workers(notes: Path) -> None:
    (notes / "hang-3").touch()  # the last: where there is one core, those before it come first
    token = CancelToken()

    def stop(event: Event) -> None:
        if event.done:
            token.cancel()

    with pytest.raises(Cancelled):
        over(notes, PROCESS, 4, report=stop, cancel=token)


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
    assert texts_of(packed(texts), lambda event: None, CancelToken())["lengths"].tolist() == [len(t) for t in texts]


def test_vectors_by_processes_are_those_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "BLOCK", 40)
    texts = [f"text number {i * i % 97} of {i}" for i in range(300)] * 2
    rows, keys = np.arange(600), np.arange(1, 601, dtype=np.uint64)
    kept = {}
    for engine in (Engine(), PROCESS):
        stored = Vectors.create(tmp_path / engine.kind, "crumbs", 16)
        assert stored.fill(Crumbs(), rows, texts, keys, engine=engine) == 600
        kept[engine.kind] = stored.matrix.tobytes(), (tmp_path / engine.kind / "rows.u64").read_bytes()
        assert not (tmp_path / engine.kind / "shards").exists()
    assert kept["process"] == kept["inline"]


def test_index_with_processes_stores_what_index_stores(run: Run, tmp_path: Path) -> None:
    """The command, with the published encoder in the workers."""
    (tmp_path / "pool.jsonl").write_text(
        "".join(f'{{"input": "shot {i} tells of {i * i}", "output": "o{i % 3}"}}\n' for i in range(20))
    )
    kept = {}
    for engine in ("inline", "process"):
        done = run("index", str(tmp_path / "pool.jsonl"), "--engine", engine, "-w", str(tmp_path / engine))
        assert done.code == 0, done.err
        stored = vectors_of(Workspace.open(tmp_path / engine), "all-MiniLM-L6-v2")
        lexical, _ = map_sealed(tmp_path / engine / "lexical" / "bm25.safetensors")
        hashes, _ = map_sealed(tmp_path / engine / "minhash.safetensors")
        assert not (tmp_path / engine / "shards").exists()
        arrays = {"vectors": stored.matrix} | lexical | hashes
        kept[engine] = {name: array.tobytes() for name, array in arrays.items()}
    assert len(kept["inline"]["vectors"]) == 20 * 4 * 384 and kept["process"] == kept["inline"]
    refused = run(
        "index", str(tmp_path / "pool.jsonl"), "--engine", "process", "--device", "cuda", "-w", str(tmp_path / "w")
    )
    assert refused.code == 2 and "--engine process encodes on the CPU, not on cuda" in refused.err


def test_topics_by_processes_are_those_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are the vectors of their names, of which there may be more than a part has."""
    monkeypatch.setattr(predictor, "BLOCK_BYTES", 4 * 50 * 30)
    monkeypatch.setattr(vectors, "BLOCK", 20)
    names = [f"topic {i}" for i in range(50)]
    here, there = (vectors.encoded(Crumbs(), names, tmp_path / "s", engine=engine) for engine in (Engine(), PROCESS))
    assert here.shape == (50, 16) and here.tobytes() == there.tobytes()
    model = predictor.started(here, np.full(50, 0.1, np.float32))
    rows, pool = np.arange(200), np.random.default_rng(1).normal(size=(200, 16)).astype(np.float32)
    one, other = (strongest(model, rows, pool, engine=engine, beside=tmp_path / "s") for engine in (Engine(), PROCESS))
    assert one.topics.tobytes() == other.topics.tobytes() and one.weights.tobytes() == other.weights.tobytes()
    assert one.topics[:, 0].tolist() == model.predict(pool).argmax(axis=1).tolist()
    assert not (tmp_path / "s").exists()


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
    with pytest.raises(UsageError, match="engine is 'spark'"):
        over(notes, Engine("spark"))
    monkeypatch.setattr(packages, "installed", lambda module: module != "ray")
    with pytest.raises(UsageError) as missing:
        over(notes, Engine("ray"))
    assert missing.value.what == "the engine ray needs ray, which is not installed"
    assert missing.value.fix == "pip install 'icl-curate[ray]'"
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
    (tmp_path / "config.toml").write_text('engine = "process"\nengine_storage = "s3://theirs"\n')
    with pytest.raises(UsageError, match="alone says where"):
        Engine.of(resolve(tmp_path, {}, {}).settings)
    assert Engine.of(Settings()) == Engine()
    with pytest.raises(UsageError, match="engine is 'dask'"):
        resolve(None, {"engine": "dask"}, {})
