"""Precedence and origins of settings, and what is said about wrong ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.store import unexpected
from icl_curate.engine.store.settings import CONFIG, KINDS, Overrides, Settings, resolve


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    user = tmp_path / "user.toml"
    user.write_text('k = 2\nllm = "hf:user"\nmethod = "bm25"\ntimeout = 5\n')
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(user))
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "config.toml").write_text('k = 3\nllm = "hf:workspace"\nmethod = "dpp"\n')
    return workspace


def test_flag_over_environment_over_workspace_over_user_over_default(layers: Path) -> None:
    found = resolve(layers, {"k": 5, "llm": None}, {"ICL_CURATE_LLM": "openai:env", "ICL_CURATE_K": "4"})
    assert (found.settings.k, found.origins["k"]) == (5, "flag")
    assert (found.settings.llm, found.origins["llm"]) == ("openai:env", "ICL_CURATE_LLM")
    assert (found.settings.method, found.origins["method"]) == ("dpp", str(layers / "config.toml"))
    assert found.settings.timeout == 5.0
    assert found.origins["timeout"].endswith("user.toml")
    assert (found.settings.order, found.origins["order"]) == (Settings().order, "default")


def test_beside_no_config_no_traceback_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", os.devnull)
    monkeypatch.setattr(unexpected, "replace_file", lambda path, write: pytest.fail(f"wrote {path}"))
    assert (
        unexpected.unexpected(ZeroDivisionError("no")).fix
        == "run it with ICL_CURATE_TRACEBACK=1 and report the traceback"
    )


def test_every_problem_is_listed_with_its_place(layers: Path) -> None:
    (layers / "config.toml").write_text('methd = "dpp"\nk = "many"\n')
    with pytest.raises(UsageError) as caught:
        resolve(layers, {}, {})
    assert "did you mean 'method'" in caught.value.what
    assert "k must be of type int" in caught.value.what
    assert caught.value.fix == f"correct or remove {layers / 'config.toml'}"  # every command says the same until then
    with pytest.raises(UsageError) as caught:
        resolve(None, {}, {"ICL_CURATE_K": "many"})
    assert caught.value.fix == "correct or unset ICL_CURATE_K"


@pytest.mark.parametrize(
    "flags",
    [
        {"order": "sideways"},
        {"k": -1},
        {"near_duplicate": 0.0},
        {"prompt_format": "{nope}"},
        {"answer_prefix": "two\nlines"},
        {"answer_prefix": "blank at its end "},
        {"concurrency": 0},
        {"context_tokens": 0},
        {"document_tokens": -5},
        {"attempts": 0},
        {"dtype": "int8"},
        {"timeout": 0.0},
        {"price_in": -1.0},
        {"price_out": float("nan")},
        {"timeout": "nan"},
        {"seed": -1},
        {"seed": 10**22},
        {"temperature": "inf"},
    ],
)
def test_values_out_of_range_are_refused(
    flags: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(UsageError):
        resolve(None, flags, {})


@pytest.mark.parametrize("name", ["base_url", "encoder_url"])
@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("http://me:hunter2@host:8000/v1", "the server alone, and its key in"),
        ("http://hunter2@host/v1", "the server alone, and its key in"),
        ("https://host/v1?api-version=hunter2", "the URL without it"),
        ("https://host/v1#hunter2", "the URL without it"),
        ("http://[::1/v1?hunter2", "http://localhost"),
        ("host/v1", "http://localhost"),
    ],
)
def test_a_url_with_what_would_be_stored_is_refused_unsaid(name: str, url: str, fix: str, layers: Path) -> None:
    (layers / "config.toml").write_text("")
    for flags, variables in (({name: url}, {}), ({}, {f"ICL_CURATE_{name.upper()}": url})):
        with pytest.raises(UsageError, match=name) as caught:
            resolve(layers, flags, variables)
        assert "hunter2" not in caught.value.what and fix in caught.value.fix
    (layers / "config.toml").write_text(f'{name} = "{url}"\n')
    with pytest.raises(UsageError, match=name) as caught:
        resolve(layers, {}, {})
    assert "hunter2" not in caught.value.what


@pytest.mark.parametrize("keys", ["me:hunter2", "me:hunter2/with/slashes"])
def test_a_place_with_keys_is_refused_unsaid(layers: Path, keys: str) -> None:
    (layers / "config.toml").write_text("")
    with pytest.raises(UsageError, match="engine_storage holds") as caught:
        resolve(layers, {"engine_storage": f"s3://{keys}@bucket/folder"}, {})
    assert "hunter2" not in str(caught.value) and "AWS_ACCESS_KEY_ID" in caught.value.fix
    assert resolve(layers, {"engine_storage": "s3://bucket/me@here"}, {}).settings.engine_storage


def test_numbers_of_numpy_are_numbers(layers: Path) -> None:
    (layers / "config.toml").write_text("")
    given = {"k": np.int64(3), "temperature": np.float32(0.5), "timeout": np.int32(7)}
    settings = resolve(layers, given, {}).settings
    assert (settings.k, settings.temperature, settings.timeout) == (3, 0.5, 7.0)
    assert {type(settings.k), type(settings.temperature), type(settings.timeout)} == {int, float}
    for wrong in ({"k": np.float64(3.0)}, {"k": np.True_}, {"k": np.arange(2)}):
        with pytest.raises(UsageError, match="k must be of type int"):
            resolve(layers, wrong, {})


def test_what_is_wrong_with_an_option_is_told_as_one(layers: Path) -> None:
    with pytest.raises(UsageError, match=r"^extra_body must be a table") as caught:
        resolve(layers, {"extra_body": "{top"}, {})
    assert caught.value.fix.startswith('{"name": "value"}')


def test_a_malformed_file_is_named(layers: Path) -> None:
    (layers / "config.toml").write_text("k = = 3")
    with pytest.raises(UsageError, match=r"config\.toml"):
        resolve(layers, {}, {})


def test_what_is_not_known_is_none_until_it_is_said(layers: Path) -> None:
    before = resolve(layers, {}, {}).settings
    assert (before.price_in, before.price_out, before.context_tokens) == (None, None, None)
    said = resolve(layers, {"price_in": 2}, {"ICL_CURATE_CONTEXT_TOKENS": "900"}).settings
    assert (said.price_in, said.context_tokens) == (2.0, 900)


def test_the_keywords_of_the_selector_are_the_settings() -> None:
    """`Selector` takes every setting by keyword; a type checker knows them by `Overrides`."""
    import inspect

    import icl_curate

    named = set(inspect.signature(icl_curate.Selector).parameters) & set(KINDS)
    assert named == {"method", "k"}
    assert set(Overrides.__annotations__) == set(KINDS) - named


def test_the_public_names_are_there_and_nothing_else_is() -> None:
    import icl_curate

    for name in icl_curate.__all__:
        assert getattr(icl_curate, name).__name__ == name
    assert icl_curate.__version__ and dir(icl_curate) == sorted(icl_curate.__all__)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = icl_curate.nothing_of_the_kind


@pytest.mark.parametrize(
    "line",
    [
        'metric = "evil_code:run"',
        'read = "evil_code:run"',
        'judge_prompt = "/etc/passwd"',
        'read = "regex:(a+)+$"',
        'judge_llm = "openai:dear"',
        "judge_price_in = 0",
        'template = "evil_code:run"',
        'template = "program:evil_code:run"',
        'llm = "program:evil_code:run"',
        'llm = " Program : evil_code:run"',
    ],
)
def test_a_workspaces_own_file_names_no_code_and_no_file(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_code.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    (workspace := tmp_path / "w").mkdir()
    (workspace / CONFIG).write_text(line)
    with pytest.raises(UsageError, match="which only you may"):
        resolve(workspace, {})
    name = line.partition(" ")[0]
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(own := tmp_path / "own.toml"))
    own.write_text(line + ('\njudge_llm = "offline"' if "price" in line else ""))
    assert resolve(workspace, {}).origins[name]  # the user says the same


@pytest.mark.parametrize("line", ['metric = "json-f1@ignore=id"', 'read = "json:a.b"'])
def test_a_workspaces_own_file_names_what_runs_nothing(line: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(line)
    assert getattr(resolve(tmp_path, {}).settings, line.partition(" ")[0]) in line
