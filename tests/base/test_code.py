"""Code of the user's: what is found by its name, what is never run, and when it is another one."""

from __future__ import annotations

import json
import linecache
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from factories.own_code import Make, modules
from icl_curate.engine.base.code import WORKSPACE, imported, is_code, name_of, program_in, version_of
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.store.workspace import FILE


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    yield from modules(tmp_path / "own", monkeypatch)


def test_which_names_are_code() -> None:
    assert all(map(is_code, ("a:b", "a.b:c.d", "program:a:b", " Program : a:b")))
    assert not any(map(is_code, ("auto", "mine.jinja", "C:\\prompts\\a.jinja", "./a:b.jinja", "json:a-b", "a:b:c", "")))
    assert program_in("program:a.b:c") == program_in(" PROGRAM: a.b:c ") == "a.b:c"
    assert program_in("openai:gpt") == program_in("program") == ""


@pytest.mark.parametrize(
    ("text", "name", "about"),
    [
        ("", "absent:f", "no metric absent:f: No module named 'absent'"),
        ("", "{}:f", "has no attribute 'f'"),
        ("raise RuntimeError('two\\nlines')", "{}:f", "RuntimeError: two lines"),
        ("import sys\nsys.exit(3)", "{}:f", "SystemExit: 3"),
        ("def f(:", "{}:f", "SyntaxError"),
    ],
)
def test_what_cannot_be_imported_is_told_in_one_line(named: Make, text: str, name: str, about: str) -> None:
    with pytest.raises(UsageError, match=about) as caught:
        imported(name.format(named(text)), "metric")
    assert "\n" not in caught.value.what and caught.value.fix


def test_an_object_is_named_where_it_stands_whatever_the_module_of_its_class(named: Make) -> None:
    module = named("from fractions import Fraction\nchain = Fraction(1, 3)\nclass A:\n    part = Fraction(1, 7)\n")
    own = sys.modules[module] if module in sys.modules else import_module(module)
    assert name_of(own.chain) == f"{module}:chain" and imported(f"{module}:chain", "program") is own.chain
    with pytest.raises(UsageError, match="has no name in a module"):
        name_of(own.A.part)


def test_a_module_in_a_workspace_is_not_run(named: Make, tmp_path: Path) -> None:
    assert WORKSPACE == FILE
    (tmp_path / "own" / WORKSPACE).touch()
    mark = tmp_path / "ran"
    with pytest.raises(UsageError, match="lies in a workspace"):
        imported(named(f"open({str(mark)!r}, 'w')") + ":f", "metric")
    assert not mark.exists()


FILES = {
    "app/__init__.py": "",
    "app/main.py": "from . import near\nfrom .deep.far import word\nimport beside, json, numpy\ndef f(): import late\n",
    "app/near.py": "",
    "app/deep/__init__.py": "",
    "app/deep/far.py": "word = 1\n",
    "app/other.py": "not imported",
    "beside.py": "",
    "late.py": "broken (",
    "unused.py": "",
}
SHOW = (
    "import json, app.main\nfrom icl_curate.engine.base.code import sources, version_of\n"
    "texts, outside = sources('app.main')\n"
    "print(json.dumps([sorted(texts), sorted(outside), version_of('app.main:f')]))"
)


def _shown(folder: Path) -> list[object]:
    """The sources and the version of ``app.main:f`` in a process of its own."""
    shown = subprocess.run([sys.executable, "-c", SHOW], cwd=folder, capture_output=True, text=True, check=True)
    return list(json.loads(shown.stdout))


def test_the_version_of_code_is_that_of_all_its_own_sources(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    texts, outside, version = _shown(tmp_path)
    assert texts == sorted(FILES.keys() - {"app/other.py", "unused.py"})
    assert outside == ["json", "numpy"]

    (tmp_path / "unused.py").write_text("changed = 1\n")
    assert _shown(tmp_path)[2] == version
    for name in ("app/deep/far.py", "beside.py", "late.py"):
        (tmp_path / name).write_text(f"word = {name!r}\n")
        changed = _shown(tmp_path)[2]
        assert changed != version
        version = changed

    moved = shutil.copytree(tmp_path, tmp_path.parent / "elsewhere")
    assert _shown(moved)[2] == version  # wherever it lies
    (tmp_path / "app/main.py").write_text(FILES["app/main.py"] + "f.icl_version = 'v3'\n")
    assert _shown(tmp_path)[2] == {"version": "v3"}


def test_an_object_is_known_by_the_name_it_can_be_imported_by(named: Make) -> None:
    module = named("def f():\n    pass\n\n\nclass C:\n    def __call__(self):\n        pass\n\n\nmade = C()\n")
    loaded = __import__(module)
    assert name_of(loaded.f) == f"{module}:f"
    assert name_of(loaded.C) == f"{module}:C"
    assert name_of(loaded.made) == f"{module}:made"
    hidden = loaded.f
    loaded.f = loaded.C
    for unnamed in (hidden, loaded.C(), lambda: None):
        with pytest.raises(UsageError, match="has no name in a module"):
            name_of(unnamed)


def test_code_of_a_script_is_another_one_when_it_is_typed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    found = []
    for number, text in enumerate(
        ("def metric(answer, accepted):\n    return 1.0\n", "def metric(*texts):\n    return 0.0\n")
    ):
        typed = f"<cell {number}>"  # as a notebook does
        monkeypatch.setitem(linecache.cache, typed, (len(text), None, text.splitlines(True), typed))
        exec(compile(text, typed, "exec"), vars(main))
        assert name_of(main.metric) == "__main__:metric"
        found.append(version_of("__main__:metric"))
    assert found[0] != found[1]
    exec("def metric(answer, accepted):\n    return 1.0\n", vars(main))
    with pytest.raises(UsageError, match="the source of __main__:metric cannot be read"):
        version_of("__main__:metric")
    main.metric.icl_version = "2"
    assert version_of("__main__:metric") == {"version": "2"}
    del main.metric


def test_code_of_a_script_is_also_what_it_imports_and_defines_beside_it(tmp_path: Path) -> None:
    script, helper = tmp_path / "script.py", tmp_path / "helper.py"
    head = "import json\nimport helper\nfrom icl_curate.engine.base.code import version_of\n"
    tail = "def metric(answer, accepted):\n    return beside()\n\n\nprint(json.dumps(version_of('__main__:metric')))\n"

    def version(beside: str, helped: str) -> str:
        script.write_text(f"{head}\n\ndef beside():\n    return {beside}\n\n\n{tail}")
        helper.write_text(f"value = {helped}\n")
        return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout

    assert version("1.0", "1") == version("1.0", "1")
    assert len({version("1.0", "1"), version("0.0", "1"), version("1.0", "2")}) == 3
