"""The same work over a real Ray cluster of three nodes, on loopback alone. Run by `make ray`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.commands import Run
from factories.shard_steps import Crumbs, always_dies, blocks, computed, pids, sines
from icl_curate.engine.base.errors import Cancelled, CurateError, UsageError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.index import staging
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.papers.topics import predictor
from icl_curate.engine.papers.topics.model_file import strongest
from icl_curate.engine.retrieval import vectors
from icl_curate.engine.retrieval.artefacts import vectors_of
from icl_curate.engine.retrieval.checked import map_sealed
from icl_curate.engine.retrieval.vectors import Vectors
from icl_curate.engine.shards import ray_pool
from icl_curate.engine.shards.over import over_shards
from icl_curate.engine.shards.shard import Arrays, Engine, Resources
from icl_curate.engine.store.workspace import Workspace

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray

COUNT = 24


def over(notes: Path, engine: Engine, **more: Any) -> Iterator[tuple[int, Arrays]]:
    beside = notes.parent / "s"
    step = partial(sines, notes)
    return over_shards(step, blocks(COUNT), stage="sines", total=3 * COUNT, beside=beside, engine=engine, **more)


def bits(found: Iterator[tuple[int, Arrays]]) -> dict[int, bytes]:
    return {index: arrays["y"].tobytes() for index, arrays in found}


def test_a_killed_worker_and_a_killed_node_change_no_bit(cluster: Any, notes: Path) -> None:
    expected = bits(over(notes, Engine()))
    (notes / "hang-5").touch()
    events: list[Event] = []
    found: dict[int, bytes] = {}
    killed = set()
    gone = cluster.add_node(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)
    cluster.wait_for_nodes()
    for index, arrays in over(notes, Engine("ray", cluster.address), monitor=Monitor(events.append)):
        found[index] = arrays["y"].tobytes()
        if (notes / "pid").exists() and "worker" not in killed:
            os.kill(int((notes / "pid").read_text()), signal.SIGKILL)
            killed.add("worker")
        if len(found) == 8:
            os.kill(gone.all_processes["raylet"][0].process.pid, signal.SIGKILL)
            killed.add("raylet")
    assert killed == {"worker", "raylet"}
    assert found == expected
    said = [event.note for event in events if event.note]
    assert any("4 nodes of Ray with 4 CPUs" in note for note in said), said
    assert any("tried again" in note for note in said), said
    assert any("with --engine ray" in note and "does not pay" in note for note in said), said
    assert [event.done for event in events if event.total] == sorted(event.done for event in events if event.total)
    assert not (notes.parent / "s").exists()
    cluster.remove_node(gone)


def test_a_driver_that_was_killed_goes_on_where_it_was(cluster: Any, notes: Path) -> None:
    expected = bits(over(notes, Engine()))
    (notes / "computed").unlink()
    code = f"""
from functools import partial
from pathlib import Path
from factories.shard_steps import blocks, sines
from icl_curate.engine.shards.over import over_shards
from icl_curate.engine.shards.shard import Engine
notes = Path({str(notes)!r})
for index, arrays in over_shards(partial(sines, notes), blocks({COUNT}), stage="sines", total={3 * COUNT},
                                 beside=notes.parent / "s", engine=Engine("ray", {cluster.address!r}), held=True):
    print(index, flush=True)
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip
    assert driver.stdout is not None
    told = [int(driver.stdout.readline()) for _ in range(10)]
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    found = bits(over(notes, Engine("ray", cluster.address), held=True))
    assert found == expected
    begun = computed(notes)
    assert not [i for i in told if begun.count(i) > 1], "a finished part was computed again"
    assert not (notes.parent / "s").exists()


def test_a_task_that_hangs_is_cancelled_and_tried_again(cluster: Any, notes: Path) -> None:
    expected = bits(over(notes, Engine()))
    (notes / "hang-3").touch()
    events: list[Event] = []
    found = bits(
        over(notes, Engine("ray", cluster.address), need=Resources(patience=3.0), monitor=Monitor(events.append))
    )
    assert found == expected and (notes / "hung-3").exists()
    assert any("no part finished for 3 s" in event.note for event in events)


def test_an_exception_is_told_in_one_line(cluster: Any, notes: Path) -> None:
    (notes / "fail-4").touch()
    with pytest.raises(CurateError) as failed:
        bits(over(notes, Engine("ray", cluster.address)))
    assert failed.value.what.startswith("on ") and "sines failed with ValueError: block 4 is bad" in failed.value.what
    assert "\n" not in failed.value.what and "--engine inline" in failed.value.fix
    assert computed(notes).count(4) == 1  # it would fail again


def test_a_part_that_always_kills_its_worker_is_given_up(cluster: Any, tmp_path: Path) -> None:
    given: Any = {"stage": "dying", "total": 3, "beside": tmp_path / "s", "engine": Engine("ray", cluster.address)}
    with pytest.raises(CurateError, match="part 1 of dying failed 4 times: "):
        [*over_shards(always_dies, blocks(1), **given)]


def test_after_a_stop_only_the_rest_is_computed(cluster: Any, notes: Path, tmp_path: Path) -> None:
    """Finished parts are known by their names, those that a worker finished for a dead driver too."""
    expected = bits(over(notes, Engine()))
    (notes / "computed").unlink()
    stopped = over(notes, Engine("ray", cluster.address), held=True)
    first = [index for index, _ in islice(stopped, 3)]
    stopped.close()
    (tmp_path / "s" / "sines-of-other-rows-0.out").touch()
    (tmp_path / "s" / ".sines-of-other-rows-1.out.123-4.tmp").touch()  # its worker was killed as it wrote
    assert bits(over(notes, Engine("ray", cluster.address), held=True)) == expected
    begun = computed(notes)
    assert not [i for i in first if begun.count(i) > 1] and set(begun) == set(range(COUNT))
    assert not (tmp_path / "s").exists()


def test_a_cancelled_stage_stops_its_workers(cluster: Any, notes: Path) -> None:
    (notes / "hang-3").touch()
    token = CancelToken()

    def stop(event: Event) -> None:
        if event.done:
            token.cancel()

    with pytest.raises(Cancelled):
        bits(over(notes, Engine("ray", cluster.address), monitor=Monitor(stop, token)))


def test_index_by_a_cluster_stores_what_index_stores(cluster: Any, run: Run, tmp_path: Path) -> None:
    """The command, with the published encoder in the workers."""
    (tmp_path / "pool.jsonl").write_text(
        "".join(f'{{"input": "shot {i} tells of {i * i}", "output": "o{i % 3}"}}\n' for i in range(20))
    )
    stored = {}
    for engine in (("inline",), ("ray", "--engine-address", cluster.address, "--device", "cpu")):
        folder = tmp_path / engine[0]
        done = run("index", str(tmp_path / "pool.jsonl"), "-w", str(folder), "--engine", *engine)
        assert done.code == 0, done.err
        lexical, _ = map_sealed(folder / "lexical" / "bm25.safetensors")
        hashes, _ = map_sealed(folder / "minhash.safetensors")
        assert not (folder / "shards").exists()
        arrays = {"vectors": vectors_of(Workspace.open(folder), "all-MiniLM-L6-v2").matrix} | lexical | hashes
        stored[engine[0]] = {name: array.tobytes() for name, array in arrays.items()}
    assert len(stored["inline"]["vectors"]) == 20 * 4 * 384 and stored["ray"] == stored["inline"]


def test_topics_by_a_cluster_are_those_of_this_process(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are the vectors of their names, of which there may be more than a part has."""
    monkeypatch.setattr(predictor, "BLOCK_BYTES", 4 * 50 * 30)
    monkeypatch.setattr(vectors, "BLOCK", 20)
    engines = (Engine(), Engine("ray", cluster.address))
    names = [f"topic {i}" for i in range(50)]
    here, there = (vectors.encoded(Crumbs(), names, tmp_path / "s", engine=engine) for engine in engines)
    assert here.shape == (50, 16) and here.tobytes() == there.tobytes()
    model = predictor.started(here, np.full(50, 0.1, np.float32))
    rows, pool = np.arange(200), np.random.default_rng(1).normal(size=(200, 16)).astype(np.float32)
    mine, theirs = (strongest(model, rows, pool, engine=engine, beside=tmp_path / "s") for engine in engines)
    assert mine.topics.tobytes() == theirs.topics.tobytes() and mine.weights.tobytes() == theirs.weights.tobytes()
    assert mine.topics[:, 0].tolist() == model.predict(pool).argmax(axis=1).tolist()
    assert not (tmp_path / "s").exists()


def test_vectors_by_a_cluster_are_those_of_this_process(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By way of a storage of its own, as two workspaces may share one."""
    monkeypatch.setattr(vectors, "BLOCK", 25)
    texts = [f"text number {i * i % 97} of {i}" for i in range(500)]
    rows, keys = np.arange(500), np.arange(1, 501, dtype=np.uint64)
    kept = []
    for engine in (Engine(), Engine("ray", cluster.address, str(tmp_path / "shared"))):
        stored = Vectors.create(tmp_path / engine.kind, "crumbs", 16)
        assert stored.fill(Crumbs(), rows, lambda wanted: [texts[row] for row in wanted], keys, engine=engine) == 500
        kept.append((stored.matrix.tobytes(), (tmp_path / engine.kind / "rows.u64").read_bytes()))
    assert kept[0] == kept[1]
    assert not [*(tmp_path / "shared").iterdir()]


def test_a_gpu_task_does_not_end_its_process(cluster: Any, notes: Path) -> None:
    """Ray's default would load the model again for each shard."""
    found = dict(
        over_shards(
            pids, blocks(6), stage="pids", total=18, beside=notes.parent / "s",
            engine=Engine("ray", cluster.address), need=Resources(gpus=None),
        )
    )  # fmt: skip
    assert len({int(arrays["pid"][0]) for arrays in found.values()}) == 1
    assert {int(arrays["gpus"][0]) for arrays in found.values()} == {1}


def test_what_a_cluster_lacks_is_said_in_one_line(cluster: Any, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("ray", cluster.address)
    monkeypatch.setattr(ray_pool, "SETTLING", 0.0)
    with pytest.raises(UsageError, match=r"no node of Ray at .* has a free GPU"):
        bits(over(notes, engine, need=Resources(gpus=2.0)))
    strange = types.ModuleType("not_on_the_workers")
    exec("def work(version, work, shard): ...", strange.__dict__)
    strange.work.__module__ = strange.__name__
    monkeypatch.setitem(sys.modules, strange.__name__, strange)
    with monkeypatch.context() as patch, pytest.raises(UsageError) as lacking:
        patch.setattr(ray_pool, "_computed", strange.work)
        bits(over(notes, engine))
    assert lacking.value.what.startswith("the nodes of Ray lack the package icl-curate")
    assert lacking.value.fix.startswith("pip install 'icl-curate-core[ray]==")
    with monkeypatch.context() as patch, pytest.raises(CurateError, match=r"icl-curate is .*, here it is 9"):
        patch.setattr(ray_pool, "VERSION", "9")
        bits(over(notes, engine))


def rows_of(workspace: Workspace) -> list[Any]:
    with workspace.read() as con:
        told = "row, id, input, output, source, split, hash, file, line"
        return [
            con.execute(f"SELECT {told} FROM demonstrations ORDER BY row").fetchall(),
            con.execute("SELECT * FROM skipped ORDER BY ALL").fetchall(),
        ]


def indexed(folder: Path, pattern: str, engine: Engine) -> tuple[list[Any], list[str]]:
    """What an index stores and tells."""
    said: list[str] = []
    workspace = Workspace.create(folder)
    index_pool(workspace, IndexPlan(paths=(pattern,), engine=engine), Monitor(lambda event: said.append(event.note)))
    return rows_of(workspace), [note for note in said if note]


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files that count as large."""
    monkeypatch.setattr(staging, "APART", 0)
    monkeypatch.setattr(staging, "LEAST", 400)
    (folder := tmp_path / "shared").mkdir()
    for number in range(2):
        lines = [json.dumps({"input": f"shot {number} {i}", "output": "o"}) for i in range(200)]
        (folder / f"pool-{number}.jsonl").write_text("\n".join([*lines, "no record"]))
    return folder


def test_nodes_read_the_files_that_lie_in_the_storage(cluster: Any, pool: Path, tmp_path: Path) -> None:
    pattern = str(pool / "pool-*.jsonl")
    expected, told = indexed(tmp_path / "here", pattern, Engine())
    found, said = indexed(tmp_path / "there", pattern, Engine("ray", cluster.address, str(pool)))
    assert found == expected and [note for note in said if note in told] == told
    assert any(re.match(r"read: \d+ parts on \d nodes of Ray", note) for note in said), said
    assert sorted(path.name for path in pool.rglob("*")) == ["pool-0.jsonl", "pool-1.jsonl"]
    found, said = indexed(tmp_path / "w", pattern, Engine("ray", cluster.address, str(tmp_path / "other")))
    assert found == expected and not any(note.startswith("read: ") for note in said)


def test_an_address_that_does_not_answer_is_said_at_once(notes: Path) -> None:
    ray.shutdown()
    start = time.monotonic()
    with pytest.raises(UsageError, match=r"no Ray cluster answers at 127\.0\.0\.1:1: "):
        bits(over(notes, Engine("ray", "127.0.0.1:1")))
    assert time.monotonic() - start < 5


def test_a_cluster_of_this_machine_reads_every_file(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By paths from this process's folder."""
    ray.shutdown()
    monkeypatch.chdir(pool)
    expected, _ = indexed(tmp_path / "here", "pool-*.jsonl", Engine())
    found, said = indexed(tmp_path / "there", "pool-*.jsonl", Engine("ray"))
    assert found == expected and any("parts on 1 node of Ray" in note for note in said), said
