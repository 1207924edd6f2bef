"""Commands that decide by stored answers take the grading, and the template, of those that count."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories.commands import Run
from factories.reviewing import HURTFUL
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.workspace import Workspace
from icl_curate.facade.pool import Pool

OTHERWISE = ("--metric", "f1"), ("--metric", "rouge-l", "--least", ".3"), ("--read", "text"), ("--template", "xml")


@pytest.mark.parametrize("options", OTHERWISE)
def test_answers_that_are_graded_otherwise_decide_nothing(run: Run, taught: Path, options: tuple[str, ...]) -> None:
    """As they were graded they do."""

    def shown(*words: object) -> tuple[int, str]:
        done = run(*words, "-w", taught)
        return done.code, done.out + done.err

    def listed(*words: object) -> list[dict[str, object]]:
        found = run(*words, "-w", taught, "--json").json
        return list(found.get("sources", found.get("demonstrations", found.get("flips"))))

    assert any(source["weight"] is not None for source in listed("sources"))
    assert all(source["weight"] is None for source in listed("sources", *options))
    name = listed("flips", "--misleading")[0]["id"]
    assert listed("flips", "show", name) and not listed("flips", *options)
    assert not listed("flips", "show", name, *options)
    assert "answers of train ranker left out: " in shown("flips", *options)[1]
    for command in (("prune", "--below", 1), ("tune", "vote")):
        code, said = shown(*command, "--dry-run", *options)
        assert code == 2 and "no source weights yet; " in said and "answers of train sources left out: " in said
    assert shown("prune", "--below", 1, "--dry-run")[0] == 0
    for command in (("suspects",), ("suspects", "show", name)):
        assert "left out: " in shown(*command, *options)[1] and "left out: " not in shown(*command)[1]
    assert shown("check", *options)[0] == 0
    code, said = shown("prune", "--demo", name, *options)
    assert code == 2 and "is of --below alone" in said


def test_the_ledger_is_of_the_grading_that_the_settings_name(taught: Path) -> None:
    """A later run with another one replaces nothing; in Python, too."""
    workspace = Workspace.open(taught)
    pool = Pool(taught)
    before = pool.ledger().as_json()
    other = runs.start(workspace, trials.RANKER, "offline", {"graded_by": {"metric": "f1", "least": 0.5}})
    step = {"run": other, "batch": 0, "query": 0, "place": 1, "row": 3, "shown": [3], "score": 0.5}
    answers = {"before": False, "after": True, "answer_before": "a", "answer_after": "b"}
    trials.save_ranker_batch(workspace, other, 0, {"loss": 0.0}, [step | answers])
    runs.finish(workspace, other, "done", {})
    assert pool.ledger().as_json() == before
    assert [entry.row for entry in pool.ledger(metric="f1", least=0.5)] == [3]
    with pytest.raises(UsageError, match="says which answers count"):
        pool.prune(HURTFUL, metric="f1")
    with pytest.raises(UsageError, match="unknown setting 'resaon'"):
        pool.prune(HURTFUL, resaon="typed wrongly")
    with pytest.raises(UsageError, match="no demonstration hurts significantly"):
        pool.prune_misleading(metric="f1", least=0.5)
    with pytest.raises(UsageError, match="no flips are recorded") as none:
        pool.prune_misleading(metric="exact")
    assert none.value.fix.startswith("icl-curate train ranker") and "dry-run" not in none.value.fix
