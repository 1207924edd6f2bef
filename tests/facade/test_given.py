"""Mistakes in what is given to methods are refused in one line that says what to give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from icl_curate import Pool
from icl_curate.engine.base.errors import CurateError, UsageError
from icl_curate.facade.given import LEAST, check

ROWS = [{"id": f"r{i}", "input": f"text number {i}", "output": ("a", "b")[i % 2], "source": "mail"} for i in range(6)]
Call = Callable[[Any], Any]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return Pool.index(ROWS, tmp_path_factory.mktemp("given") / "w", encode=False, progress=False)


WRONG: list[tuple[Call, str, str]] = [
    (lambda pool: pool.queries("test", -1), "limit is -1", "give 1 or more"),
    (lambda pool: pool.demos(limit=-1), "limit is -1", "give 1 or more"),
    (lambda pool: pool.calibrate(limit=0), "limit is 0", "give 1 or more"),
    (lambda pool: pool.keep([]), "name what to keep", "pool.keep([ID])"),
    (lambda pool: pool.relabel({}), "nothing to correct", "icl-curate relabel"),
    (lambda pool: pool.delete_version("none"), "no version 'none'", "make the first one"),
    (lambda pool: pool.history(-1), "limit is -1", "give 1 or more"),
    (lambda pool: pool.demonstration(5), "name is 5", "a text"),
    (lambda pool: pool.demos(prunned=True), "'prunned'; did you mean 'pruned'", "demos takes"),
    (lambda pool: pool.prune(source="desk"), "unknown setting 'source'; did you mean 'sources'", "prune takes ids"),
    (lambda pool: pool.prune(demos=["r1"]), "unknown setting 'demos'", "prune takes ids"),
    (lambda pool: pool.demos(split="zz"), "there is no split 'zz'", "one of: pool, validation, test"),
    (lambda pool: pool.demos(source="zzz"), "zzz", ""),
    (lambda pool: pool.rows(format="chat"), "unexpected keyword argument 'format'", "rows takes split, sources"),
    (lambda pool: pool.to_pandas(max_cost=1), "unexpected keyword argument 'max_cost'", "rows takes split, sources"),
    (lambda pool: pool.check([]), "no kind is named", "use some of: label"),
    (lambda pool: pool.rows("tests"), "there is no split 'tests'; did you mean 'test'", "one of: pool"),
    (lambda pool: pool.suspects("0.5"), "least is '0.5'", "a number"),
    (lambda pool: pool.prune(below=20.0), "below is 20.0", "from 0 to 1"),
    (lambda pool: pool.suspects(1.5), "least is 1.5", "from 0 to 1"),
    (lambda pool: pool.train(None), "there is no part None", "one of: sources, ranker"),
    (lambda pool: pool.train("sources", depth="3"), "depth is '3'", "a whole number"),
    (lambda pool: pool.train("sources", depth=1), "depth is 1", "give 2 or more"),
    (lambda pool: pool.export("set.jsonl", "calibration"), "no validation queries have been calibrated", "calibrate"),
    (lambda pool: pool.prune(None), "ids is None", "a list of texts, or a text"),
    (lambda pool: pool.prune([5]), "ids is [5]", "a list of texts"),
    (lambda pool: pool.prune("r1", reason=5), "reason is 5", "a text"),
    (lambda pool: pool.evaluate([]), "no methods are given", "name at least one"),
    (lambda pool: pool.evaluate(limit="5"), "limit is '5'", "a whole number, or None"),
    (lambda pool: pool.evaluate(limit=-1), "limit is -1", "give 1 or more"),
    (lambda pool: pool.evaluate(seeds=1.5), "seeds is 1.5", "a whole number"),
    (lambda pool: pool.evaluate(seed=-1), "seed is -1", "a whole number from 0"),
    (lambda pool: pool.evaluate(seeds=0), "seeds is 0", "give 1 or more"),
    (lambda pool: pool.evaluate(max_calls="3"), "max_calls is '3'", "a whole number"),
    (lambda pool: pool.evaluate(max_cost=-1.0), "max_cost is -1.0", "give 0 or more"),
    (lambda pool: pool.evaluate(max_cost=float("nan")), "max_cost is nan", "a number"),
    (lambda pool: pool.train("ranker", rate=float("inf")), "rate is inf", "a number"),
    (lambda pool: pool.tune_vote(float("inf")), "noise is inf", "a number"),
    (lambda pool: pool.evaluate(sweep={"k": [1, 2]}), "sweep is {'k': [1, 2]}", "a text"),
    (lambda pool: pool.evaluate(confusion="no"), "confusion is 'no'", "True or False"),
    (lambda pool: pool.curate(max_calls=2.5), "max_calls is 2.5", "a whole number"),
    (lambda pool: pool.calibrate(split="tests"), "there is no split 'tests'", "one of: pool, validation, test"),
    (lambda pool: pool.relabel({"r1": 5}), "outputs is {'r1': 5}", "a mapping of texts to texts"),
    (lambda pool: pool.watch([{"input": "a"}], max_calls="3"), "max_calls is '3'", "a whole number"),
    (lambda pool: pool.undo(1, 2), "too many positional arguments", "undo takes dry_run"),
    (lambda _: Pool.index(ROWS, "w", map=["input"]), "map is ['input']", "a mapping of texts to texts"),
    (lambda _: Pool.index(ROWS, "w", map={"input": 0}), "map is {'input': 0}", "a mapping of texts to texts"),
    (lambda _: Pool.index(ROWS, "w", source=5), "source is 5", "a text, or None"),
    (lambda _: Pool(5), "workspace is 5", "a path, or a text"),
    (lambda pool: Pool(pool.workspace.path, method="denze"), "did you mean 'dense'", "use one of"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "what", "fix"), WRONG, ids=[what for _, what, _ in WRONG])
def test_a_mistake_is_one_clear_line(call: Call, what: str, fix: str, pool: Pool, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(CurateError) as refused:
        patched.chdir(tmp_path)
        call(pool)
    assert what in refused.value.what and fix in refused.value.fix
    assert "\n" not in refused.value.what and not [*tmp_path.iterdir()]


def test_what_fits_is_taken(pool: Pool, tmp_path: Path) -> None:
    assert len(pool.demos(limit=np.int64(2))) == 2
    assert pool.prune(pandas.Series(["r1"]), dry_run=True).targets == ("r1",)
    assert pool.prune((name for name in ["r1"]), dry_run=True).targets == ("r1",)
    assert [row.id for row in pool.demos(label="a", split="pool")] == ["r0", "r2", "r4"]
    assert pool.suspects(0, limit=1) is not None
    (tmp_path / "rows.jsonl").write_text('{"input": "text number 0", "output": "a", "id": "r0", "source": "mail"}\n')
    assert pool.diff(tmp_path / "rows.jsonl").added == 5
    for name, least in LEAST.items():
        check(name, least, int)
        with pytest.raises(UsageError):
            check(name, least - 1, int)


def test_methods_still_show_their_arguments() -> None:
    assert [*inspect.signature(Pool.demos).parameters][:3] == ["self", "search", "source"]
    assert Pool.demos.__doc__ and Pool.index.__doc__
