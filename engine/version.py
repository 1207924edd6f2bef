"""The version, from the installed distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("icl-curate")
except PackageNotFoundError:  # a checkout that was never installed
    VERSION = "0+unknown"
