"""Settings from the environment and the places where files live. No other module reads the environment."""

from __future__ import annotations

import os
import shutil
from importlib import resources
from pathlib import Path

STORE = "AUTOTUNER_STORE"
CACHE = "AUTOTUNER_CACHE"


def store_url() -> str:
    """Path or SQLAlchemy URL of the study store: $AUTOTUNER_STORE, else studies.db in the working directory."""
    return os.environ.get(STORE, "studies.db")


def cache_dir() -> Path:
    """Where builds and references are kept: $AUTOTUNER_CACHE, else the user's cache directory."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autotuner"


def cxx() -> str | None:
    """The C++ compiler for the CPU backend: $CXX, else g++ on the PATH; None when there is none."""
    return shutil.which(os.environ.get("CXX") or "g++")


def _shipped(folder: str) -> Path:
    """A folder that lies beside the package in a checkout and inside it in a wheel."""
    packaged = Path(str(resources.files("autotuner"))) / "_shipped" / folder
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent / folder


def kernels_dir() -> Path:
    """The kernel families that come with the package."""
    return _shipped("kernels")


def spaces_dir() -> Path:
    """The search spaces that come with the package."""
    return _shipped("search_spaces")
