"""The wheel and the source archive: what a user installs has everything in it, declares what it imports, and runs."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import icl_curate
import pytest

ROOT = Path(icl_curate.__file__).parent
LEFT_OUT = (".*", "build", "dist", "*.egg-info", "__pycache__")
BUILD = "import sys; from setuptools import build_meta as b; out = sys.argv[1]; b.build_sdist(out); b.build_wheel(out)"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built from a copy."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "icl_curate", ignore=shutil.ignore_patterns(*LEFT_OUT))
    build = [sys.executable, "-c", BUILD, str(folder)]
    subprocess.run(build, cwd=folder / "icl_curate", check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (made,) = built.glob("*.whl")
    return made


def test_the_source_archive_has_docs_tests_and_what_make_needs(built: Path) -> None:
    (made,) = built.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    missing = {name for name in tracked.splitlines() if (ROOT / name).is_file()} - packed
    assert [name for name in missing if not name.startswith(".")] == []  # settings of the repository itself
    assert {"docs/index.md", "docs/sources.svg", "tests/test_wheel.py", "mkdocs.yml", "PKG-INFO"} <= packed
    assert not any("__pycache__" in name for name in packed)


def test_every_import_is_declared() -> None:
    """What is imported by the package is among its dependencies, in one of its extras, or comes with Python."""
    projects = [
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "full")
    ]
    declared = {
        _plain(line)
        for project in projects
        for name, lines in [("", project["dependencies"]), *project["optional-dependencies"].items()]
        if name != "test"
        for line in lines
    }
    found = {
        name: path.relative_to(ROOT).as_posix()
        for folder in (*PARTS, ".")
        for path in ((ROOT / folder).rglob("*.py") if folder != "." else ROOT.glob("*.py"))
        for name in _imported(path)
    }
    undeclared = {name: where for name, where in found.items() if _plain(DISTRIBUTIONS.get(name, name)) not in declared}
    assert found and undeclared == {}


def test_every_package_is_listed_once() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = {path.parent for part in PARTS for path in (ROOT / part).rglob("*.py")} | {ROOT}
    assert listed == sorted(".".join(("icl_curate", *folder.relative_to(ROOT).parts)) for folder in folders)


PARTS = ("engine", "commands", "render", "facade", "serving", "tui", "integrations", "sample_data")
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "PyYAML", "llama_index": "llama-index-core"}
"""Distributions that do not bear the name of what is imported."""


def _imported(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = [
        name
        for node in tree
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    ]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def _plain(requirement: str) -> str:
    """The name in a requirement, as indexes compare it."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].replace("_", "-").replace(".", "-").lower()


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"icl_curate/{path.relative_to(ROOT).as_posix()}"
        for name in (
            "cli.py",
            "__init__.py",
            "py.typed",
            "engine",
            "commands",
            "render",
            "facade",
            "serving",
            "tui",
            "sample_data",
        )
        for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("truth")
    }
    assert not any("truth" in name for name in packed)
    assert wanted - packed == set()
    assert not any(name.startswith(("icl_curate/tests", "icl_curate/benchmarks", "tests/")) for name in packed)


def test_what_is_installed_runs(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", place, wheel]
    subprocess.run(install, check=True)
    environment = os.environ | {"PYTHONPATH": str(place)}

    def run(*words: object) -> str:
        done = subprocess.run(
            list(map(str, words)), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import icl_curate, icl_curate.tui.app as app; print(icl_curate.__file__, app.ReviewApp.CSS_PATH)"
    assert str(place) in run(sys.executable, "-c", where)
    program = place / "bin" / "icl-curate"
    release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert run(sys.executable, program, "--version") == f"icl-curate {release}\n"
    assert run(sys.executable, "-c", "import icl_curate; print(icl_curate.__version__)") == f"{release}\n"
    sample = place / "icl_curate" / "sample_data" / "support"
    run(sys.executable, program, "index", sample / "pool" / "*.jsonl", "--no-encode")
    assert json.loads(run(sys.executable, "-m", "icl_curate", "status", "--json"))["pool"] == 1200
