"""The lock: what was judged is what is served, or nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.gullible_world import SETTINGS, make_gullible_world
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.select.lock import FILE, check_lock, graded_otherwise, lock, read_lock
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store import runs
from icl_curate.engine.store.decisions import decide, relabel, undo
from icl_curate.engine.store.demonstrations import active_digest
from icl_curate.engine.store.versions import delete_version, restore_version, save_version
from icl_curate.engine.store.workspace import Workspace
from icl_curate.serving.service import Ask, Service

TEXT = "armon betas corvi"
TICKET = "{% for shot in shots %}{{ shot.input }} is {{ shot.output }}\n{% endfor %}{{ query.input }} is\n"


@pytest.fixture
def world(tmp_path: Path) -> Workspace:
    return make_gullible_world(tmp_path / "w")


def _shots(selector: Selector) -> list[str]:
    return [shot.demonstration.id for shot in selector.select(TEXT)]


def test_a_locked_selector_selects_with_the_settings_that_were_judged(world: Workspace) -> None:
    lock(world, replace(SETTINGS, k=4, order="best-first"))
    (world.path / "config.toml").write_text('method = "random"\nk = 2\n')
    locked = Selector.locked(world.path)
    assert (locked.settings.method, locked.settings.k, locked.settings.order) == ("bm25", 4, "best-first")
    assert _shots(locked) == _shots(Selector(world, "bm25", 4)) and len(_shots(locked)) == 4


def test_a_lock_with_a_threshold_that_index_now_refuses_still_holds(world: Workspace) -> None:
    lock(world, replace(SETTINGS, near_duplicate=0.3, k=4))
    assert _shots(Selector.locked(world)) == _shots(Selector(world, "bm25", 4))


def test_what_has_changed_is_refused_until_it_is_as_it_was(world: Workspace) -> None:
    save_version(world, "judged")
    lock(world, SETTINGS, "judged")
    before = active_digest(world)
    decide(world, "prune", "source", ["bad"])
    with pytest.raises(UsageError, match="60 rows, 120 were locked") as refused:
        Selector.locked(world)
    assert "version restore judged" in refused.value.fix
    restore_version(world, "judged")
    assert active_digest(world) == before and Selector.locked(world)
    relabel(world, {"p-0": "yes indeed"})
    with pytest.raises(UsageError, match="120 rows, other ones"):
        Selector.locked(world)
    undo(world)
    check_lock(world, read_lock(world))


def test_a_version_is_no_way_back_where_its_rows_changed_or_it_is_another(world: Workspace) -> None:
    save_version(world, "judged")
    locked = lock(world, SETTINGS, "judged")
    relabel(world, {"p-0": "yes indeed"})

    def fix() -> str:
        with pytest.raises(UsageError) as refused:
            check_lock(world, locked)
        return refused.value.fix or ""

    assert fix() == f"icl-curate version restore judged; or {locked.command}"
    with world.write() as con:  # as index does with what is no longer in its file
        con.execute("UPDATE demonstrations SET retired_at = now() WHERE id IN ('p-2', 'p-4')")
    gone = "2 of the locked rows changed in their files or are gone: icl-curate evaluate && "
    assert fix() == gone + locked.command
    save_version(world, "judged", force=True)
    with world.write() as con:
        con.execute("UPDATE demonstrations SET retired_at = NULL")
    assert "restore" not in fix()
    delete_version(world, "judged")
    assert fix() == locked.command


def test_another_training_is_refused(world: Workspace) -> None:
    settings = replace(SETTINGS, method="ranker")
    with pytest.raises(UsageError, match="ranker is not trained"):
        lock(world, settings)

    def trained() -> None:
        run = runs.start(world, "train-ranker", "gullible", {})
        runs.keep_files(world, run, {"head.safetensors": f"digest of {run}"})
        runs.finish(world, run, "done", {})

    trained()
    found = lock(world, settings)
    assert list(found.models.values()) == ["digest of 1"]
    check_lock(world, found)
    trained()
    with pytest.raises(UsageError, match="trained again"):
        check_lock(world, found)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"lock_version": 1}', '{"k": 1}'],
)
def test_a_damaged_lock_is_an_error_of_one_line(world: Workspace, content: str) -> None:
    (world.path / FILE).write_text(content)
    with pytest.raises(UsageError, match="cannot read") as refused:
        read_lock(world)
    assert refused.value.fix == "icl-curate lock"


def test_foreign_settings_and_newer_locks_are_refused(world: Workspace) -> None:
    told = lock(world, SETTINGS).as_json()
    for settings in ({"base_url": "https://else.example"}, {"k": "five"}):
        (world.path / FILE).write_text(json.dumps(told | {"settings": told["settings"] | settings}))
        with pytest.raises(UsageError, match="is not a setting of this kind"):
            read_lock(world)
    (world.path / FILE).write_text(json.dumps(told | {"lock_version": 2}))
    with pytest.raises(UsageError, match="was written by release"):
        read_lock(world)


@pytest.mark.parametrize(
    ("settings", "about"),
    [
        ({"k": -3}, "the lock: k is -3"),
        ({"k": True}, "'k' is not a setting of this kind"),
        ({"preselect": 0}, "the lock: preselect is 0"),
        ({"near_duplicate": float("nan")}, "the lock: near_duplicate is nan"),
        ({"answer_prefix": "The answer\nis"}, "the lock: answer_prefix is"),
        ({"order": "worst"}, "the lock: order is 'worst'"),
        ({"template_text": "{{ query"}, "the lock: the template fails, line 1"),
        ({"template": "/etc/hostname"}, "the lock: there is no built-in template '/etc/hostname'"),
        ({"method": None}, "does not say method"),
    ],
)
def test_values_that_no_setting_may_have_are_refused_in_a_lock_too(
    world: Workspace, run: Run, settings: dict[str, Any], about: str
) -> None:
    told = lock(world, SETTINGS).as_json()
    changed = {name: value for name, value in (told["settings"] | settings).items() if value is not None}
    (world.path / FILE).write_text(json.dumps(told | {"settings": changed}))
    with pytest.raises(UsageError, match=about) as refused:
        Selector.locked(world)
    assert refused.value.fix == "icl-curate lock" and "\n" not in refused.value.what
    done = run("lock", "--check", "-w", world.path)
    assert done.code == 2 and len(done.err.splitlines()) == 2


def test_the_lock_knows_by_what_was_graded_and_says_what_differs(
    world: Workspace, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = lock(world, replace(SETTINGS, metric="f1", least=0.8, read="line"))
    assert told.graded_by and (told.graded_by.metric, told.graded_by.least, told.graded_by.read) == ("f1", 0.8, "line")
    assert (
        read_lock(world) == told
        and graded_otherwise(world, told, replace(SETTINGS, metric="f1", least=0.8, read="line")) == ""
    )
    done = run("lock", "--check", "-w", world.path)
    assert done.code == 0 and "metric f1 (token F1 of SQuAD): right from 0.8 on; read line" in done.out
    assert "metric f1, now accuracy; least 0.8, now 1.0; read line, now auto" in done.err
    for name, value in (("METRIC", "f1"), ("LEAST", "0.8"), ("READ", "line")):
        monkeypatch.setenv(f"ICL_CURATE_{name}", value)
    assert "graded otherwise" not in run("lock", "--check", "-w", world.path).err
    monkeypatch.setenv("ICL_CURATE_METRIC", "judge")
    (prompt := world.path.parent / "prompt.txt").write_text("Is {answer} right?")
    monkeypatch.setenv("ICL_CURATE_JUDGE_PROMPT", str(prompt))
    judged = lock(world, replace(SETTINGS, metric="judge", judge_llm="openai:j"))
    assert judged.graded_by and judged.graded_by.judge == "openai:j"
    other = graded_otherwise(
        world, judged, replace(SETTINGS, metric="judge", judge_llm="openai:j", judge_prompt=str(prompt))
    )
    assert "prompt" in other and "metric" not in other.partition(":")[2]
    old = {name: value for name, value in told.as_json().items() if name != "graded_by"}
    (world.path / FILE).write_text(json.dumps(old))
    assert read_lock(world).graded_by is None and graded_otherwise(world, read_lock(world), SETTINGS) == ""


def test_a_locked_template_is_no_difference_to_what_is_served(
    world: Workspace, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("starlette")
    monkeypatch.setattr("icl_curate.serving.run.serve", lambda *given, **options: None)
    (own := tmp_path / "ticket.jinja").write_text(TICKET)
    assert run("lock", "-m", "bm25", "--template", own, "-w", world.path).code == 0
    for command in (["lock", "--check"], ["serve", "--locked"]):
        assert "graded otherwise" not in run(*command, "-w", world.path).err
        monkeypatch.setenv("ICL_CURATE_METRIC", "f1")
        assert "otherwise than the settings say now: metric accuracy, now f1" in run(*command, "-w", world.path).err
        monkeypatch.delenv("ICL_CURATE_METRIC")


def test_a_suggestion_from_a_lock_is_what_a_shell_reads_as_one_command(world: Workspace) -> None:
    name = "v1; touch x $(touch y)"
    save_version(world, "judged")
    with world.write() as con:  # of a stranger
        con.execute("UPDATE versions SET name = ?", [name])
    locked = lock(world, SETTINGS, name)
    decide(world, "prune", "source", ["bad"])
    with pytest.raises(UsageError) as caught:
        check_lock(world, locked)
    assert caught.value.fix is not None and f"version restore '{name}'; or" in caught.value.fix


def test_a_locked_service_stays_with_its_pool(world: Workspace) -> None:
    from icl_curate.engine.pool.records import Query

    lock(world, SETTINGS)
    service = Service(world.path, SETTINGS, looks=0.001, locked=True)
    try:
        ask = Ask((Query(TEXT),), "bm25", 3)
        before = service.answer([ask])
        decide(world, "prune", "source", ["bad"])
        service._look()
        assert service.answer([ask]) == before and service.health()["rows"] == 120
    finally:
        service.close()


def test_the_command_locks_checks_and_says_what_is_amiss(world: Workspace, run: Run) -> None:
    assert run("lock", "--check", "-w", world.path).err.splitlines()[1] == f"fix: icl-curate lock -w {world.path}"
    assert "120 rows, bm25, k = 2" in run("lock", "-m", "bm25", "-k", 2, "-w", world.path).out
    assert run("lock", "--check", "-w", world.path).code == 0
    decide(world, "prune", "source", ["bad"])
    amiss = run("lock", "--check", "-w", world.path)
    assert amiss.code != 0 and amiss.err.endswith("--method bm25 --shots 2\n"), "the same settings, not the usual ones"
    refused = run("serve", "--locked", "-m", "dense", "-w", world.path)
    assert refused.code != 0 and "own method and k" in refused.err
    refused = run("serve", "--locked", "-w", world.path)
    assert refused.code != 0 and "not the one that was judged" in refused.err
