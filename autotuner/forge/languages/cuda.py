"""A variant in CUDA: C++ whose unit the device's own compiler takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.forge.languages.cpp import Cpp

if TYPE_CHECKING:
    from autotuner.forge.family import Implementation


class Cuda(Cpp):
    """A source NAME.cu."""

    name = "cuda"

    def takes(self, implementation: Implementation) -> bool:
        return implementation.source.endswith(".cu")
