"""Stored vectors: what is there, what is missing, and what a kill leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from icl_curate.engine.errors import Cancelled, WorkspaceError
from icl_curate.engine.progress import CancelToken, Event, Report, silent
from icl_curate.engine.search import vectors as module
from icl_curate.engine.search.vectors import TokenVectors, Vectors, folder_of


class Lengths:
    """An encoder whose vector of a text is its length, counted call by call."""

    name = "lengths"
    dimension = 3

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None) -> np.ndarray:
        if cancel:
            cancel.check()
        self.calls.append(list(texts))
        report(Event("encode", len(texts), len(texts)))
        return np.array([[len(text)] * 3 for text in texts], np.float32)

    def encode_tokens(
        self, texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None
    ) -> list[np.ndarray]:
        self.calls.append(list(texts))
        return [np.full((len(text), 2), len(text), np.float16) for text in texts]


def create(folder: Path) -> Vectors:
    return Vectors.create(folder, "lengths", 3)


def test_fill_encodes_each_row_once(tmp_path: Path) -> None:
    store, encoder = create(tmp_path / "v"), Lengths()
    assert store.matrix.shape == (0, 3)
    assert store.fill(encoder, np.array([4, 1]), ["four", "o"]) == 2
    assert store.fill(encoder, np.array([4, 1, 9]), ["four", "o", "nine!"]) == 1
    assert encoder.calls == [["four", "o"], ["nine!"]]
    again = Vectors.open(tmp_path / "v")
    assert again.encoded.tolist() == [i in (1, 4, 9) for i in range(10)]
    assert again.matrix[:, 0].tolist() == [0, 1, 0, 0, 4, 0, 0, 0, 0, 5]
    assert isinstance(again.matrix, np.memmap)
    assert again.missing(np.array([1, 2, 4, 50])).tolist() == [2, 50]
    with pytest.raises(ValueError, match="read-only"):
        again.matrix[0] = 1


def test_a_cancelled_fill_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    store, encoder, token = create(tmp_path), Lengths(), CancelToken()
    rows, texts = np.arange(10), ["x" * (i + 1) for i in range(10)]
    events: list[Event] = []

    def stop_in_the_second_block(event: Event) -> None:
        events.append(event)
        if event.done == 8:
            token.cancel()

    with pytest.raises(Cancelled):
        store.fill(encoder, rows, texts, stop_in_the_second_block, token)
    assert [(event.done, event.total) for event in events] == [(4, 10), (8, 10)]
    assert store.fill(encoder, rows, texts) == 2
    assert sorted(text for call in encoder.calls for text in call) == texts
    assert store.matrix[:, 0].tolist() == list(range(1, 11))


def test_vectors_of_another_encoder_are_refused(tmp_path: Path) -> None:
    create(tmp_path)
    with pytest.raises(WorkspaceError, match="lengths with 3 dimensions"):
        Vectors.create(tmp_path, "lengths", 4)
    with pytest.raises(WorkspaceError) as missing:
        Vectors.open(tmp_path / "nothing")
    assert "icl-curate index" in missing.value.fix
    encoder = Lengths()
    encoder.name = "other"
    with pytest.raises(ValueError, match="not of other"):
        create(tmp_path).fill(encoder, np.array([0]), ["a"])


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
from icl_curate.engine.search import vectors
from icl_curate.engine.search.vectors import Vectors
vectors.BLOCK = 8

class Slow:
    name, dimension = "slow", 64
    def encode(self, texts, report=None, cancel=None):
        time.sleep(0.002)
        return np.array([[float(text)] * 64 for text in texts], np.float32)

store = Vectors.create(Path(sys.argv[1]), "slow", 64)
print("ready", flush=True)
store.fill(Slow(), np.arange(20000), [str(i + 1) for i in range(20000)])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("after", [0.02, 0.11])
def test_kill_leaves_only_whole_vectors_marked(tmp_path: Path, after: float) -> None:
    child = subprocess.Popen([sys.executable, "-c", SLOW_FILL, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 30
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
    store.write(np.array([19999]), np.ones((1, 64), np.float32))  # the dead process holds no lock
    assert store.encoded[19999]


def test_token_vectors_are_kept_and_shared_between_openings(tmp_path: Path) -> None:
    one, other, encoder = TokenVectors(tmp_path, "lengths"), TokenVectors(tmp_path, "lengths"), Lengths()
    assert one.fill(encoder, [7, 3, 5], ["seven", "abc", ""]) == 3
    assert other.fill(encoder, [3, 9], ["abc", "nine"]) == 1
    assert one.fill(encoder, [9, 7], ["nine", "seven"]) == 0
    assert [tokens.shape for tokens in one.read([5, 9, 7])] == [(0, 2), (4, 2), (5, 2)]
    assert one.read([9])[0].tolist() == [[4, 4]] * 4
    assert one.read([3])[0].dtype == np.float16
    assert one.missing([1, 3, 1]) == [1]
    with pytest.raises(KeyError, match="1"):
        one.read([3, 1])


def test_tokens_without_their_index_line_are_written_over(tmp_path: Path) -> None:
    store = TokenVectors(tmp_path, "lengths")
    store.fill(Lengths(), [1], ["one"])
    with (tmp_path / module.TOKENS).open("ab") as file:
        file.write(b"\x01" * 33)  # what a kill between data and index leaves
    store = TokenVectors(tmp_path, "lengths")
    store.fill(Lengths(), [2], ["second"])
    assert [tokens[0, 0] for tokens in TokenVectors(tmp_path, "lengths").read([1, 2])] == [3, 6]
    with pytest.raises(ValueError, match="width 5"):
        store.write([3], [np.zeros((1, 5), np.float16)])


def test_a_damaged_token_index_names_the_way_out(tmp_path: Path) -> None:
    TokenVectors(tmp_path, "lengths").fill(Lengths(), [1], ["one"])
    (tmp_path / module.TOKEN_INDEX).write_bytes(b"not numpy")
    with pytest.raises(WorkspaceError) as damaged:
        TokenVectors(tmp_path, "lengths")
    assert damaged.value.fix.startswith("rm ")
