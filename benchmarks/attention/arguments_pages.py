"""docs/reference/arguments.md: what serves each argument of attention, from the limits of the kernels."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.expression import Expression
from autotuner.values import config
from benchmarks.markdown import table

SIZES = "(2,8:2,64x512,64) bfloat16"


class Argument(NamedTuple):
    """Something that a call may ask, and what it is called."""

    ours: str
    theirs: str
    """In flash_attn, else in flex_attention."""
    words: str
    """What a problem of it says; nothing where none can."""


ARGUMENTS = (
    Argument("`is_causal`", "`causal`", "causal"),
    Argument("`corner`", "`causal`", "causal bottom_right"),
    Argument("`enable_gqa`", "fewer heads of K and V", "full"),
    Argument("views", "strides", "full bshd"),
    Argument("`key_lengths`", "`cache_seqlens`", "lengths"),
    Argument("`window`", "`window_size`", "causal window=64"),
    Argument("`softcap`", "`softcap`", "softcap=50"),
    Argument("`sinks`", "`learnable_sink`, `s_aux`", "sinks"),
    Argument("`alibi_slopes`", "`alibi_slopes`", "bias=alibi"),
    Argument("`bias`, `attn_mask` of numbers", "`score_mod`", "bias=full"),
    Argument("problems with `lse`", "`return_lse`", "lse"),
    Argument("`attn_mask` of truths", "`block_mask`", ""),
    Argument("`dropout_p`, another `scale`", "`dropout_p`, `softmax_scale`", ""),
)


def served(words: str) -> dict[str, list[str]]:
    """By kind of device: the implementations that take a problem with these words at some point."""
    limits = tomllib.loads((config.kernels_dir() / "sdpa" / "limits.toml").read_text())
    groups = "8:2" if words == "full" else "8"
    problem = SdpaProblem.parse(f"{SIZES.replace('8:2', groups)} {words}")
    found: dict[str, list[str]] = {}
    for kind, implementations in Family.load(config.kernels_dir() / "sdpa").document.devices.items():
        found[kind] = [
            name
            for name, each in implementations.items()
            if all(getattr(problem, field) in values for field, values in each.served.items())
            and _takes(limits[kind].get(name, {}), problem)
        ]
    return found


def _takes(limits: dict[str, Any], problem: SdpaProblem) -> bool:
    """Whether no constraint that asks about the problem alone refuses it."""
    facts = problem.facts()
    asked = (Expression.parse(each["expression"]) for each in limits.get("constraints", ()))
    return all(each.evaluate(facts) for each in asked if each.names <= facts.keys())


def rows() -> Iterator[list[str]]:
    """Of each argument one."""
    every = served("")
    for argument in ARGUMENTS:
        if not argument.words:
            yield [argument.ours, argument.theirs, "torch", "torch"]
            continue
        found = served(argument.words)
        by = ["all" if found[kind] == every[kind] else ", ".join(found[kind]) or "torch" for kind in ("cpu", "cuda")]
        yield [argument.ours, argument.theirs, *by]


def drawn() -> str:
    """The table."""
    return table(["here", "flash_attn, flex_attention", "CPU", "CUDA"], [*rows()])
