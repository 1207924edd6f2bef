"""Stored vectors: what is there, what is missing, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.patience import PATIENCE
from icl_curate.engine.base.errors import Cancelled, UsageError, WorkspaceError
from icl_curate.engine.base.progress import SILENT, CancelToken, Event, Monitor
from icl_curate.engine.retrieval import checked
from icl_curate.engine.retrieval import vectors as module
from icl_curate.engine.retrieval.encoder import Local
from icl_curate.engine.retrieval.vectors import TokenVectors, Vectors, folder_of


class Lengths(Local):
    """An encoder whose vector of a text is its length, counted call by call."""

    name = "lengths"
    dimension = 3

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str], monitor: Monitor = SILENT) -> np.ndarray:
        monitor.check()
        self.calls.append(list(texts))
        monitor.report(Event("encode", len(texts), len(texts)))
        return np.array([[len(text)] * 3 for text in texts], np.float32)

    def encode_tokens(self, texts: Sequence[str], monitor: Monitor = SILENT) -> list[np.ndarray]:
        self.calls.append(list(texts))
        return [np.full((len(text), 2), len(text), np.float16) for text in texts]


def keys_for(texts: Sequence[str]) -> np.ndarray:
    """What stands for the content of rows that say these texts."""
    return np.array([zlib.crc32(text.encode()) + 1 for text in texts], np.uint64)


def fill(store: Vectors, encoder: Lengths, rows: Sequence[int], texts: Sequence[str], *more: Any) -> int:
    of = dict(zip(rows, texts, strict=True))
    return store.fill(
        encoder, np.array(rows), lambda wanted: [of[row] for row in wanted.tolist()], keys_for(texts), *more
    )


def keep(store: TokenVectors, encoder: Lengths, rows: Sequence[int], texts: Sequence[str]) -> int:
    return store.fill(encoder, rows, texts, keys_for(texts).tolist())


def create(folder: Path) -> Vectors:
    return Vectors.create(folder, "lengths", 3)


def test_fill_encodes_each_row_once(tmp_path: Path) -> None:
    store, encoder = create(tmp_path / "v"), Lengths()
    assert store.matrix.shape == (0, 3)
    assert fill(store, encoder, [4, 1], ["four", "o"]) == 2
    assert fill(store, encoder, [4, 1, 9], ["four", "o", "nine!"]) == 1
    assert encoder.calls == [["four", "o"], ["nine!"]]
    again = Vectors.open(tmp_path / "v")
    assert again.encoded.tolist() == [i in (1, 4, 9) for i in range(10)]
    assert again.matrix[:, 0].tolist() == [0, 1, 0, 0, 4, 0, 0, 0, 0, 5]
    assert isinstance(again.matrix, np.memmap)
    assert again.missing(np.array([1, 2, 4, 50]), keys_for(["o", "?", "four", "?"])).tolist() == [2, 50]
    with pytest.raises(ValueError, match="read-only"):
        again.matrix[0] = 1


def test_a_cancelled_fill_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    store, encoder, token = create(tmp_path), Lengths(), CancelToken()
    texts = ["x" * (i + 1) for i in range(10)]
    events: list[Event] = []

    def stop_in_the_second_block(event: Event) -> None:
        events.append(event)
        if event.done == 8:
            token.cancel()

    with pytest.raises(Cancelled):
        fill(store, encoder, range(10), texts, Monitor(stop_in_the_second_block, token))
    assert [(event.done, event.total) for event in events] == [(4, 10), (8, 10)]
    assert fill(store, encoder, range(10), texts) == 2
    assert sorted(text for call in encoder.calls for text in call) == texts
    assert store.matrix[:, 0].tolist() == list(range(1, 11))


def test_texts_are_asked_for_window_by_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 3)
    monkeypatch.setattr(module, "WINDOW", 8)
    rows = np.array([21, 1, 30, 7, 4, 2, 23, 0, 9, 22, 3])
    texts = {row: "x" * (1 + row * 7 % 5) + str(row) for row in rows.tolist()}
    keys = keys_for([texts[row] for row in rows.tolist()])
    asked: list[list[int]] = []

    def of(wanted: np.ndarray) -> list[str]:
        asked.append(wanted.tolist())
        return [texts[row] for row in wanted.tolist()]

    store, encoder = create(tmp_path / "all"), Lengths()
    assert store.fill(encoder, rows, of, keys) == 11
    assert asked == [[0, 1, 2, 3, 4, 7], [9], [21, 22, 23], [30]]  # eight row numbers each, none without a row
    blocks = encoder.calls
    assert [len(block) for block in blocks] == [3, 3, 1, 3, 1]
    for window in asked:
        longest_first = sorted((texts[row] for row in window), key=lambda text: -len(text))
        assert [text for block in blocks for text in block if text in longest_first] == longest_first
    held = {row: store.matrix[row, 0] for row in texts}
    assert held == {row: len(text) for row, text in texts.items()}
    # what a run that died has left out is encoded in the blocks in which it would have been
    other, again = create(tmp_path / "some"), Lengths()
    done = [row for row, text in texts.items() if text in blocks[0] or text in blocks[3]]
    places = np.flatnonzero(np.isin(rows, done))
    other.write(
        rows[places], np.array([[len(texts[row])] * 3 for row in rows[places].tolist()], np.float32), keys[places]
    )
    assert other.fill(again, rows, of, keys) == 11 - len(done)
    assert again.calls == [blocks[1], blocks[2], blocks[4]]
    assert other.matrix.tolist() == store.matrix.tolist()


def test_damage_is_found_in_every_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 4)
    store, texts = create(tmp_path), ["x" * (i + 1) for i in range(11)]
    fill(store, Lengths(), range(11), texts)
    with (tmp_path / module.MATRIX).open("r+b") as file:
        for row in (0, 5, 10):
            file.seek(row * 12)
            file.write(b"\1")
    assert Vectors.open(tmp_path).damaged(reread=True).tolist() == [0, 5, 10]


def test_vectors_of_another_encoder_do_not_count(tmp_path: Path) -> None:
    rows, keys = np.array([0, 1]), keys_for(["a", "bb"])
    assert fill(create(tmp_path), Lengths(), [0, 1], ["a", "bb"]) == 2
    for encoder, dimension in (("lengths", 4), ("other", 3), ("lengths", 1)):
        assert Vectors.create(tmp_path, encoder, dimension).missing(rows, keys).tolist() == [0, 1]
    assert create(tmp_path).missing(rows, keys).tolist() == []  # and were left alone
    with pytest.raises(WorkspaceError) as missing:
        Vectors.open(tmp_path / "nothing")
    assert "icl-curate index" in missing.value.fix
    encoder = Lengths()
    encoder.name = "other"
    with pytest.raises(ValueError, match="not of other"):
        fill(create(tmp_path), encoder, [0], ["a"])


def test_folders_of_encoders_do_not_meet(tmp_path: Path) -> None:
    names = ["all-MiniLM-L6-v2", "org/model", "org-model", "/a/path with spaces", "../up"]
    folders = [folder_of(tmp_path, name) for name in names]
    assert len(set(folders)) == len(names)
    assert {folder.parent for folder in folders} == {tmp_path / "vectors"}
    assert folders[0].name == "all-MiniLM-L6-v2"


SLOW_FILL = """
import sys, time
from pathlib import Path
import numpy as np
from icl_curate.engine.retrieval import vectors
from icl_curate.engine.retrieval.encoder import Local
from icl_curate.engine.retrieval.vectors import Vectors
vectors.BLOCK = 8

class Slow(Local):
    name, dimension = "slow", 64
    def encode(self, texts, monitor=None):
        time.sleep(3_600 if int(texts[0]) > 10_000 else 0.002)  # it is never done before it is killed
        return np.array([[float(text)] * 64 for text in texts], np.float32)

store = Vectors.create(Path(sys.argv[1]), "slow", 64)
print("ready", flush=True)
store.fill(Slow(), np.arange(20000), lambda rows: [str(i + 1) for i in rows], np.arange(1, 20001, dtype=np.uint64))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("after", [0.02, 0.11])
def test_kill_leaves_only_whole_vectors_marked(tmp_path: Path, after: float) -> None:
    child = subprocess.Popen([sys.executable, "-c", SLOW_FILL, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + PATIENCE
    while len(Vectors.open(tmp_path)) == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(after)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    store = Vectors.open(tmp_path)
    done = np.flatnonzero(store.encoded)
    assert 0 < len(done) < 20000
    assert (store.matrix[done] == (done + 1)[:, None]).all()
    assert store.damaged().tolist() == []
    store.write(np.array([19999]), np.ones((1, 64), np.float32), np.ones(1, np.uint64))  # the dead holds no lock
    assert store.encoded[19999]


def test_token_vectors_are_kept_and_shared_between_openings(tmp_path: Path) -> None:
    one, other, encoder = TokenVectors(tmp_path, "lengths"), TokenVectors(tmp_path, "lengths"), Lengths()
    assert keep(one, encoder, [7, 3, 5], ["seven", "abc", ""]) == 3
    assert keep(other, encoder, [3, 9], ["abc", "nine"]) == 1
    assert keep(one, encoder, [9, 7], ["nine", "seven"]) == 0
    shown = one.read([5, 9, 7, 3], keys_for(["", "nine", "seven", "abc"]).tolist())
    assert [tokens.shape for tokens in shown] == [(0, 2), (4, 2), (5, 2), (3, 2)]
    assert shown[1].tolist() == [[4, 4]] * 4
    assert shown[3].dtype == np.float16
    assert one.missing([1, 3, 1], keys_for(["one", "abc", "one"]).tolist()) == [1]
    with pytest.raises(KeyError, match="1"):
        one.read([3, 1], keys_for(["abc", "one"]).tolist())
    assert one.missing([3], keys_for(["abd"]).tolist()) == [3]  # the row says something else now


def test_tokens_without_their_index_line_are_written_over(tmp_path: Path) -> None:
    store = TokenVectors(tmp_path, "lengths")
    keep(store, Lengths(), [1], ["one"])
    with (tmp_path / module.TOKENS).open("ab") as file:
        file.write(b"\x01" * 33)  # what a kill between data and index leaves
    store = TokenVectors(tmp_path, "lengths")
    keep(store, Lengths(), [2], ["second"])
    found = TokenVectors(tmp_path, "lengths").read([1, 2], keys_for(["one", "second"]).tolist())
    assert [tokens[0, 0] for tokens in found] == [3, 6]


def spoil(path: Path, at: float, width: int = 1) -> None:
    """Turn bytes of a file over, from a share of its length on."""
    content = bytearray(path.read_bytes())
    start = min(int(at * len(content)), len(content) - width)
    content[start : start + width] = bytes(byte ^ 0xFF for byte in content[start : start + width])
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped at the head": lambda path: spoil(path, 0),
    "flipped in the middle": lambda path: spoil(path, 0.5),
    "flipped at the end": lambda path: spoil(path, 1),
    "flipped widely": lambda path: spoil(path, 0.3, 40),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-13]),
    "rotated": lambda path: path.write_bytes(path.read_bytes()[24:] + path.read_bytes()[:24]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"7" * 99),
    "noise": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("name", [module.HEAD, module.MATRIX, module.ROWS])
@pytest.mark.parametrize("damage", DAMAGE)
def test_no_damage_changes_a_vector(tmp_path: Path, name: str, damage: str) -> None:
    """A row has the vector that was written for it, or none and gets it again."""
    rows, texts = np.arange(40), ["x" * (i + 1) for i in range(40)]
    fill(create(tmp_path), Lengths(), rows.tolist(), texts)
    DAMAGE[damage](tmp_path / name)
    try:
        store = Vectors.open(tmp_path)
        fit = store.holds(rows, keys_for(texts))
        assert (store.matrix[rows[fit]] == (rows[fit] + 1)[:, None]).all()
        assert fit.sum() >= 30 or damage not in ("flipped at the head", "flipped in the middle", "flipped at the end")
    except WorkspaceError as error:
        assert name == module.HEAD and "icl-curate index" in error.fix
    store, encoder = create(tmp_path), Lengths()
    fill(store, encoder, rows.tolist(), texts)
    assert (store.matrix == (rows + 1)[:, None]).all() and store.holds(rows, keys_for(texts)).all()
    assert Vectors.open(tmp_path).damaged().tolist() == []
    if name == module.HEAD:
        assert encoder.calls == []  # nothing is encoded again for a head


@pytest.mark.parametrize("name", [module.TOKENS, module.TOKEN_INDEX])
@pytest.mark.parametrize("damage", DAMAGE)
def test_no_damage_changes_a_token(tmp_path: Path, name: str, damage: str) -> None:
    rows, texts = list(range(20)), ["x" * (i + 1) for i in range(20)]
    keep(TokenVectors(tmp_path, "lengths"), Lengths(), rows, texts)
    DAMAGE[damage](tmp_path / name)
    store = TokenVectors(tmp_path, "lengths")
    keep(store, Lengths(), rows, texts)
    for opened in (store, TokenVectors(tmp_path, "lengths")):
        assert [tokens.tolist() for tokens in opened.read(rows, keys_for(texts).tolist())] == [
            [[len(text)] * 2] * len(text) for text in texts
        ]


@pytest.mark.parametrize("dimension", [0, -3, 192, "3", None, True, 2.5, 10**30, [3]])
@pytest.mark.parametrize("encoder", ["lengths", 7])
def test_a_head_of_nonsense_is_no_head(tmp_path: Path, dimension: object, encoder: object) -> None:
    fill(create(tmp_path), Lengths(), [0], ["a"])
    (tmp_path / module.HEAD).write_text(json.dumps({"version": 1, "encoder": encoder, "dimension": dimension}))
    try:
        assert Vectors.open(tmp_path).missing(np.array([0]), keys_for(["a"])).tolist() == [0]
    except WorkspaceError as error:
        assert "icl-curate index" in error.fix
    assert fill(create(tmp_path), Lengths(), [0], ["a"]) == 0


def test_an_encoder_that_gives_no_numbers_is_refused(tmp_path: Path) -> None:
    encoder = Lengths()
    encoder.encode = lambda texts, monitor=SILENT: np.full((len(texts), 3), np.nan, np.float32)  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="not finite"):
        fill(create(tmp_path), encoder, [0], ["a"])
    assert len(create(tmp_path)) == 0


def test_large_files_are_read_once_for_as_long_as_they_stay_as_they_are(tmp_path: Path) -> None:
    """Of rows too many to read each time; a change that leaves size, times and inode alone is seen by `index` only."""
    rows, keys = np.arange(3000), np.arange(1, 3001, dtype=np.uint64)
    store = Vectors.create(tmp_path, "wide", 400)
    store.write(rows, np.random.default_rng(0).normal(size=(3000, 400)).astype(np.float32), keys)
    assert Vectors.open(tmp_path).damaged().tolist() == [] and (tmp_path / checked.MEMORY).exists()
    matrix = tmp_path / module.MATRIX
    spoil(matrix, 0.5)
    assert Vectors.open(tmp_path).missing(rows, keys).tolist() == [1500]
    assert Vectors.open(tmp_path).missing(rows, keys).tolist() == [1500]  # remembered, and still so
    spoil(matrix, 0.5)
    assert Vectors.open(tmp_path).missing(rows, keys).tolist() == []
    memory = tmp_path / checked.MEMORY
    for nonsense in (b"", b"[]", b'{"vectors.f32": 1}', b'{"vectors.f32": [[], "0"]}', b"\xff" * 9, b"[" * 99999):
        checked._found.clear()
        spoil(matrix, 0.9)
        memory.write_bytes(nonsense)
        assert Vectors.open(tmp_path).missing(rows, keys).tolist() == [2700]
        spoil(matrix, 0.9)
    assert Vectors.open(tmp_path).damaged().tolist() == []
    signature, found = json.loads(memory.read_text())[module.MATRIX]
    assert found == "0" and signature[0][0] == matrix.stat().st_size
    spoil(matrix, 0.9)  # a disk that fails gives other bytes under the same times: say so, as if they were the same
    memory.write_text(json.dumps({module.MATRIX: (checked._signatures([matrix, tmp_path / module.ROWS]), "0")}))
    checked._found.clear()
    assert Vectors.open(tmp_path).damaged().tolist() == []
    assert Vectors.open(tmp_path).damaged(reread=True).tolist() == [2700]
