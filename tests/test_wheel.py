"""The wheel: what a user installs has everything in it, and runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import icl_curate
import pytest

ROOT = Path(icl_curate.__file__).parent
LEFT_OUT = ("tests", "benchmarks", "docs", ".*", "build", "dist", "*.egg-info", "__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "icl_curate", ignore=shutil.ignore_patterns(*LEFT_OUT))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, "."]
    subprocess.run(build, cwd=folder / "icl_curate", check=True)
    (made,) = folder.glob("*.whl")
    return made


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
            "serving",
            "tui",
            "sample_data",
        )
        for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
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
