"""C++, with CUDA's extensions where the device has them: a unit of macros, the source, and the identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.forge.languages.language import Language
from autotuner.forge.unit import unit_text

if TYPE_CHECKING:
    from autotuner.forge.build_inputs import BuildInputs
    from autotuner.forge.family import Implementation


class Cpp(Language):
    """Whatever is of no other language."""

    name = "c++"
    has_host = True

    def takes(self, implementation: Implementation) -> bool:
        return True

    def texts(self, inputs: BuildInputs) -> dict[str, str]:
        return {inputs.toolchain.unit: unit_text(inputs)}
