"""Free memory, by the files of a system and of its containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from icl_curate.engine.base import memory
from icl_curate.engine.base.progress import MEMORY, Event, Monitor
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

GIB = memory.GIB


def system(root: Path, available: int = 20) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 25165824 kB\nMemAvailable: {available << 20} kB\nHugePages: 0\n")


def group(folder: Path, limit: str, used: int, kept: int, old: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
    for name, content in zip(names, (limit, str(used)), strict=True):
        (folder / name).write_text(content + "\n")
    before = "total_" if old else ""
    (folder / "memory.stat").write_text(f"anon 7\n{before}inactive_file {kept}\n{before}active_file 0\n")


def test_without_a_container_the_system_counts(tmp_path: Path) -> None:
    assert memory.free(tmp_path) is None and memory.shortage("it needs", 1 << 60, "less", root=tmp_path) == ""
    system(tmp_path)
    assert memory.free(tmp_path) == 20 * GIB
    (tmp_path / "proc/self/cgroup").write_text("0::/user.slice\n")
    group(tmp_path / "sys/fs/cgroup/user.slice", "max", GIB, 0)
    assert memory.free(tmp_path) == 20 * GIB


@pytest.mark.parametrize("old", [False, True])
def test_a_containers_limit_counts_less_what_it_uses_but_for_files(tmp_path: Path, old: bool) -> None:
    system(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,memory:/a/b\n1:pids:/x\n" if old else "0::/a/b\n")
    top = tmp_path / "sys/fs/cgroup" / ("memory" if old else "")
    group(top / "a/b", str(8 * GIB), 3 * GIB, GIB, old)
    assert memory.free(tmp_path) == 6 * GIB and memory.total(tmp_path) == 8 * GIB
    group(top / "a", str(4 * GIB), 3 * GIB, 0, old)  # an outer one is stricter
    assert memory.free(tmp_path) == GIB and memory.total(tmp_path) == 4 * GIB
    line = memory.shortage("it needs", 2 * GIB, "use less", root=tmp_path)
    assert line == "it needs about 2.0 GiB of memory, and 1.0 GiB are free: use less"
    assert memory.shortage("it needs", GIB, "use less", root=tmp_path) == ""


def test_in_a_container_its_group_is_the_top(tmp_path: Path) -> None:
    system(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("0::/../../elsewhere\n")
    group(tmp_path / "sys/fs/cgroup", str(2 * GIB), GIB, 0)
    assert memory.free(tmp_path) == GIB


def test_this_machine_has_some(tmp_path: Path) -> None:
    total, free = memory.total(), memory.free()
    assert total is None or total > 1 << 28
    assert free is None or total is None or 0 < free <= total


def test_commands_say_so_before_they_take_more_than_is_free(
    support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free", lambda root: 1000)
    said: list[str] = []

    def report(event: Event) -> None:
        if event.task == MEMORY:
            said.append(event.note)

    workspace = Workspace.open(support)
    PoolView(workspace, Settings(), Monitor(report)).nearest  # noqa: B018  # loaded on first use
    export(workspace, ExportPlan(out=tmp_path / "out.jsonl"), Monitor(report))
    index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(tmp_path / "out.jsonl"),)), Monitor(report))
    assert len(said) == 3 and all("GiB are free: " in line for line in said)
    assert "-m bm25" in said[0] and "--source" in said[1] and "near duplicates" in said[2]
