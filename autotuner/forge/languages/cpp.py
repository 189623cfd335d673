"""A variant in C++: a source of whatever suffix no other language has; or in CUDA, by the device's own compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.forge.languages.language import Language
from autotuner.forge.unit import unit_text

if TYPE_CHECKING:
    from autotuner.forge.build_inputs import BuildInputs
    from autotuner.forge.family import Implementation


class Cpp(Language):
    """One translation unit, of which the macros are the parameters."""

    name = "c++"
    has_host = True

    def takes(self, implementation: Implementation) -> bool:
        return True

    def texts(self, inputs: BuildInputs) -> dict[str, str]:
        return {inputs.toolchain.unit: unit_text(inputs)}


class Cuda(Cpp):
    """A source NAME.cu."""

    name = "cuda"

    def takes(self, implementation: Implementation) -> bool:
        return implementation.source.endswith(".cu")
