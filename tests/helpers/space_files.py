"""Space files made up for tests."""

from typing import Any

from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.variant import Value

TEXT = """
title = "An example"
family = "sdpa"
backend = "cpu"
threads = 2

[[problems]]
batch = 1
heads = 8
seq_q = 512
seq_k = 512
head_dim = 64
dtype = "float32"

[[problems]]
batch = 1
heads = 8
seq_q = 96
seq_k = 512
head_dim = 64
dtype = "float32"

[parameters]
IMPL = ["scalar", "simd"]
BLOCK_N = [32, 64, 128, 256]
[parameters.simd]
VEC_WIDTH = [4, 8, 16]
FUSE = [0, 1]

[[constraints]]
expression = "VEC_WIDTH * 4 <= CPU_VECTOR_BYTES"
reason = "registers are no wider"
[[constraints]]
expression = "FUSE == 0 or (VEC_WIDTH > 4 and CPU_FMA)"
reason = "it fuses wide vectors"
[[constraints]]
expression = "SEQ_Q % (BLOCK_N // 2) == 0"
reason = "whole tiles"

[default]
IMPL = "simd"
BLOCK_N = 64
VEC_WIDTH = 4
"""
FACTS: dict[str, int | str | bool] = {"CPU_VECTOR_BYTES": 32, "CPU_FMA": True, "ARCH": "zen4"}
PROBLEM = {"op": "sdpa", "batch": 1, "heads": 2, "seq_q": 8, "seq_k": 8, "head_dim": 64, "dtype": "float32"}


def made(text: str = TEXT, **facts: int | str | bool) -> Space:
    return Space.enumerate(SpaceFile.parse(text, "dir/x.toml"), {**FACTS, **facts})


def replaced(*pairs: tuple[str, str]) -> str:
    text = TEXT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def file_of(parameters: dict[str, Any], constraints: list[str], default: dict[str, Value], **rest: Any) -> SpaceFile:
    reasons = [{"expression": text, "reason": "because"} for text in constraints]
    common = {"title": "t", "family": "sdpa", "backend": "cpu", "problems": [PROBLEM, {**PROBLEM, "seq_q": 12}]}
    return SpaceFile.of({**common, "parameters": parameters, "constraints": reasons, "default": default, **rest})
