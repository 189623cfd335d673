"""torch's quantised attention: the problem of a call, and what exports say of it."""

from collections.abc import Mapping
from typing import Any

from autotuner.ops.op import OpCall
from autotuner.ops.sdpa import call as attention
from autotuner.ops.sdpa_fp8.problem import DESCALES, ELEMENT, SdpaFp8Problem
from autotuner.values.problem import Problem

ELEMENTS = f"Q, K and V must be {ELEMENT}, or K and V beside Q in bfloat16 or float16"
SIXTEEN_BITS = ("bfloat16", "float16")
WANTED = "q_descale, k_descale and v_descale must be float32 of (batch, heads_kv), or expand to that"


def problem_of(inputs: tuple[Any, ...], options: Mapping[str, Any]) -> SdpaFp8Problem:
    """Of Q, K and V, the descale of each, and lengths of the keys where there are any; O is bfloat16, or of Q's
    element type where that has 16 bits. Raises ValueError."""
    qkv, descales, lengths = inputs[:3], (*inputs[3:6], None, None, None)[:3], inputs[6:]
    of_q, *others = (str(each.dtype).removeprefix("torch.") for each in qkv)
    cache = of_q in SIXTEEN_BITS
    if not (cache or of_q == ELEMENT) or any(each != ELEMENT for each in others):
        raise ValueError(ELEMENTS)
    types = [name for name in options if name.endswith("_type")]
    if types:
        raise ValueError(f"{types[0]} is not 0: a descale is one for each head")
    dtype = of_q if cache else "bfloat16"
    found = attention.problem_of((*qkv, *lengths), {**options, "enable_gqa": True}, SdpaFp8Problem, dtype)
    assert isinstance(found, SdpaFp8Problem)
    if cache:  # K and V of one tensor are strided as others are
        found = found.model_copy(update={"fp8_cache": True, "layout": found.layout.replace("packed qkv", "bshd")})
    for name, each in zip(DESCALES, descales, strict=True):
        fits = each is not None and tuple(each.shape) == (found.batch, found.heads_kv) and each.is_contiguous()
        if not fits or str(each.dtype) != "torch.float32":
            has = "None" if each is None else f"{tuple(each.shape)} of {str(each.dtype).removeprefix('torch.')}"
            raise ValueError(f"{name} is {has}; {WANTED}")
    return found


def _options(problem: Problem) -> dict[str, Any]:
    assert isinstance(problem, SdpaFp8Problem)
    named: dict[str, Any] = {"is_causal": True} if problem.causal else {}
    return named if problem.corner == "top_left" else {**named, "corner": problem.corner}


CALL = OpCall(problem=problem_of, options=_options, reasons=(*attention.CALL.reasons, ELEMENTS, WANTED), strided=True)
