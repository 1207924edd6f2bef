"""Spec strings, settings, and how light it is to open a backend."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from icl_curate.engine.backends.hf import gguf
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.spec import Spec, is_stand_in, open_backend, parse, probe_command, recorded


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("offline", Spec("offline")),
        (" Offline ", Spec("offline")),
        ("openai:gpt-4o-mini", Spec("openai", "gpt-4o-mini")),
        ("openai:org/model:tag", Spec("openai", "org/model:tag")),
        ("hf:/models/llama", Spec("hf", "/models/llama")),
        ("HF:org/model", Spec("hf", "org/model")),
        ("SmolLM2", Spec("smollm2")),
    ],
)
def test_right_specs(text: str, spec: Spec) -> None:
    assert parse(text) == spec
    assert parse(parse(text).text) == spec
    assert spec.local == (spec.kind != "openai")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("opnai:gpt-4o", "openai:gpt-4o"),
        ("OpenAI", "openai:MODEL"),
        ("gpt-4o", "openai:gpt-4o"),
        ("ofline", "offline"),
        ("huggingface:org/model", "hf:org/model"),
        ("hf:", "hf:PATH"),
        ("openai:", "openai:MODEL"),
        ("org/model", "hf:org/model"),
        ("ollama:llama3", "openai:llama3"),
        ("", "offline"),
        ("offline:x", "offline"),
        ("smolm2", "smollm2"),
    ],
)
def test_wrong_specs_say_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert f"--llm {meant}" in caught.value.fix


@pytest.mark.parametrize("text", ["fp:a", "my_module:answer", "x:y:z", ":", "llama3:8b"])
def test_a_prefix_that_is_like_none_suggests_none(text: str) -> None:
    with pytest.raises(UsageError, match="unknown LLM") as caught:
        parse(text)
    assert "did you mean" not in caught.value.fix
    assert {"openai:MODEL", "hf:PATH", "program:MODULE:OBJECT"} <= {*caught.value.fix.replace(",", "").split()}


@pytest.mark.parametrize(
    ("text", "local", "stand_in", "loads_model"),
    [
        ("offline", True, True, False),
        ("hf:models/small", True, False, True),
        ("smollm2", True, False, True),
        ("openai:gpt-4o", False, False, False),
    ],
)
def test_a_spec_says_what_kind_of_llm_it_names(text: str, local: bool, stand_in: bool, loads_model: bool) -> None:
    spec = recorded(text)
    assert spec is not None
    assert (spec.local, spec.stand_in, spec.loads_model) == (local, stand_in, loads_model)
    assert is_stand_in(text) == stand_in


def test_a_name_that_is_no_spec_is_no_stand_in() -> None:
    assert recorded("offlin") is None and not is_stand_in("offlin")


def test_open_backend_knows_all_three() -> None:
    def encode(texts: object) -> np.ndarray:
        return np.zeros((len(list(texts)), 3), np.float32)  # type: ignore[call-overload]

    for spec in ("offline", "openai:m", "hf:./nowhere"):
        assert open_backend(spec, encode=encode).spec == spec
    with pytest.raises(UsageError):
        open_backend("offline")


def test_opening_a_backend_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from icl_curate.engine.llm import runner, spec\n"
        "for name in ('openai:m', 'hf:somewhere'): spec.open_backend(name)\n"
        "print([m for m in ('torch', 'transformers', 'openai', 'httpx2', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_smollm2_is_the_installed_packages_file_and_else_the_hubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert importlib.util.find_spec(gguf.PACKAGE) is None, "the tests go without the package"
    assert open_backend("smollm2").name == gguf.HUB  # type: ignore[attr-defined]
    package = tmp_path / gguf.PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('the package itself is never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert gguf.weights() == gguf.HUB
    (package / gguf.FILE).write_bytes(b"GGUF")
    backend = open_backend("smollm2")
    assert backend.spec == "smollm2" and backend.name == str(package / gguf.FILE)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["openai:m", "hf:my models/x.gguf", "openai:$(touch x); rm -rf ~ #'"])
def test_a_suggested_probe_names_the_llm_in_one_word_of_the_shell(name: str) -> None:
    assert shlex.split(probe_command(name)) == ["icl-curate", "llm", "check", "--llm", name]
