"""Points of a space, and parts of the shipped ones, by what they are."""

from collections.abc import Mapping

from autotuner.spaces.space import Space, SpaceFile
from autotuner.tuning.workbench import load_space
from autotuner.values.variant import Value


def first_of(space: Space, impl: str) -> int:
    """The default point of an implementation."""
    found = space.branch_of(impl)
    assert found is not None
    branch, first = found
    return first + branch.default_index


def chosen(space: Space, wanted: Mapping[str, Value]) -> int:
    """The valid point that has these values and is nearest to the default one otherwise."""
    found = space.index_of(space.completed(wanted))
    assert found is not None, wanted
    return found


MADE_FOR = {"wgmma": "(1,32,2048,128) float16 full", "decode": "(1,32:8,1x4096,128) float16 full"}
"""A problem of the kind that an implementation is for, where it is not that of the shipped space."""


def alone(impl: str, problem: str = "") -> SpaceFile:
    """The shipped CUDA space with one implementation alone, for a problem that it is made for or this one."""
    wanted = problem or MADE_FOR.get(impl, "")
    return load_space("sdpa_cuda", problems=[wanted] if wanted else ()).only(impl)
