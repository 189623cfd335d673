"""What the harness itself runs on a device, of kernels/instruments: built and loaded like variants, without torch."""

from collections.abc import Mapping

from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.forge.toolchain import Toolchain
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault


def made(backend: str, name: str, parameters: Mapping[str, Value], toolchain: Toolchain) -> Artifact:
    """The library of an instrument. Raises ToolchainError when it cannot be built."""
    family = Family.load(config.kernels_dir() / "instruments")
    variant = Variant(family="instruments", backend=backend, impl=name, parameters=dict(parameters))
    built = build(family, variant, None, toolchain)
    if isinstance(built, Fault):
        raise ToolchainError(f"the instruments cannot be built: {built.detail}")
    return built


def instrument(backend: str, name: str, parameters: Mapping[str, Value], toolchain: Toolchain) -> LoadedVariant:
    """The same, loaded."""
    return LoadedVariant(made(backend, name, parameters, toolchain))
