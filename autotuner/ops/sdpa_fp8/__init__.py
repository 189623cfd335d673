"""The op sdpa_fp8: attention whose Q, K and V, or K and V alone, are FP8 (e4m3), each head with a float32 factor."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from autotuner.ops import sdpa as attention
from autotuner.ops.op import Input, Invariant, Op, OpCall, OpCase, imported_when_called
from autotuner.ops.sdpa import cases, lengths, outputs, qkv, usual
from autotuner.ops.sdpa.problem import SdpaProblem, distance
from autotuner.values import config
from autotuner.values.problem import ITEM_BYTES, Problem
from autotuner.values.validation import refuse

ELEMENT = "float8_e4m3fn"
"""The element type of Q, K and V, by torch's name."""
DESCALES = ("q_descale", "k_descale", "v_descale")
"""What the numbers of Q, K and V are to be multiplied by, each (batch, heads_kv), by torch's names."""
WORD = re.compile(rf"\b(?:{ELEMENT}|e4m3|fp8)\b", re.IGNORECASE)
CACHE = re.compile(r"\bcache\b", re.IGNORECASE)
SERVED = ("heads_kv", "corner", "key_lengths", "layout", "lse", "fp8_cache")
"""What of that which attention in 16 bits may ask for FP8 serves too."""


class SdpaFp8Problem(SdpaProblem):
    """One attention forward from FP8: a number of Q, K or V is what is stored times the descale of its head, which
    heads of Q that share one of K and V have in common. `dtype` is that of O."""

    op: Literal["sdpa_fp8"] = "sdpa_fp8"  # type: ignore[assignment]
    dtype: Literal["bfloat16", "float16"]
    fp8_cache: bool = Field(default=False, description="K and V alone are FP8, as a cache is: Q is of O's element type")

    ADDED: ClassVar[tuple[str, ...]] = (*SdpaProblem.ADDED, "fp8_cache")
    COMPILED: ClassVar[tuple[str, ...]] = (*SdpaProblem.COMPILED, "fp8_cache")
    FORM: ClassVar[str] = f"{SdpaProblem.FORM.replace('dtype', f'{ELEMENT} bfloat16|float16', 1)} [cache]"
    NOT_SERVED: ClassVar[Mapping[str, str]] = {
        **{name: why for name, why in SdpaProblem.NOT_SERVED.items() if not WORD.fullmatch(name)},
        "float32": "O is bfloat16 or float16",
    }
    TIMES_AS_FAST: ClassVar[float] = 2.0

    @model_validator(mode="after")
    def _that_is_served(self) -> Self:
        for name in self.ADDED:
            usual = self.heads if name == "heads_kv" else type(self).model_fields[name].default
            if name not in SERVED and getattr(self, name) != usual:
                raise refuse(f"{name} is not served from FP8; the op sdpa does in 16 bits")
        if self.fp8_cache and self.layout == "packed qkv":
            raise refuse("layout is packed qkv, but Q is of another element type than the cache")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `str` writes it; the element type of Q, K and V goes without saying."""
        found = super().parse(CACHE.sub("", WORD.sub("", text)))
        return cls.model_validate({**found.model_dump(), "fp8_cache": CACHE.search(text) is not None})

    @property
    def bytes(self) -> int:
        """The fewest to move: Q, K, V and descales read once, O written once, and so lengths and log-sum-exps."""
        written = self.heads * self.seq_q * ITEM_BYTES[self.dtype]
        stored = (written if self.fp8_cache else self.heads * self.seq_q) + 2 * self.heads_kv * self.seq_k
        small = 4 * (self.heads * self.seq_q * self.lse + self.key_lengths)
        return self.batch * ((stored + written) * self.head_dim + 12 * self.heads_kv + small)

    def __str__(self) -> str:
        sizes, _, words = super().__str__().partition(") ")
        return f"{sizes}) {ELEMENT} {words}{' cache' if self.fp8_cache else ''}"


def _inputs(problem: Problem) -> tuple[Input, ...]:
    """Q, K and V, the descales of each, and the lengths where there are any."""
    of = cast(SdpaFp8Problem, problem)
    descales = (Input(name, "float32", ("batch", "heads_kv")) for name in DESCALES)
    q, *kv = qkv(of, ELEMENT)
    return (q._replace(dtype=of.dtype) if of.fp8_cache else q, *kv, *descales, *lengths(of))


DISTRIBUTIONS = {
    **{
        name: attention.DISTRIBUTIONS[name]
        for name in (
            *("randn", "large", "huge", "one_hot", "zero_q", "uniform01", "const_v", "slopes", "sink", "ragged"),
            *("gaps", "expanded", "one_head", "one_query", "gaps_in_v"),
        )
    },
    "descales": "standard normal as stored; descales of 2^8 and 2^-8, other ones for each head",
    "loud_head": "standard normal; the first head's V is a thousand times as large as the others'",
    "full_range": "Q, K and V are stored as 448 and -448, the largest numbers that there are",
    "huge_channel": "standard normal, one column of V 100 times as large: the others have few digits left",
    "equal": "standard normal, all keys alike",
    "tail": "the first and the last key weigh some 1500 times as much as each other one, which weigh more together",
    "far_below": "standard normal, every score 100 smaller: exp gives 0 unless the maximum is subtracted",
}

WORDS = attention.WORDS._replace(
    distributions=DISTRIBUTIONS,
    every_row="something that they share: scale, a descale, the normaliser, a lost key, a wrong tensor",
)

QUICK = (
    OpCase((2, 3, 200, 200), "descales", "Q1 "),
    OpCase((2, 3, 200, 200), "one_hot", "Q2 "),
    OpCase((2, 3, 509, 509), "randn", "Q3 "),
    OpCase((2, 3, 113, 203), "loud_head", "Q4 "),
    OpCase((1, 2, 40, 4097), "tail", "Q5 "),
)
FULL = (
    *cases.ANY,
    OpCase((2, 2, 130, 203), "full_range"),
    OpCase((2, 2, 130, 203), "huge_channel"),
    OpCase((2, 2, 113, 203), "far_below"),
    OpCase((1, 1, 70, 4096), "equal"),
    OpCase((2, 2, 200, 200), "zero_q"),
    OpCase((2, 2, 200, 200), "uniform01"),
    OpCase((2, 2, 200, 200), "const_v"),
    OpCase((1, 2, 300, 600), "slopes"),
    OpCase((1, 2, 257, 700), "sink"),
)
GROUPS = (OpCase((2, 8, 113, 203, 2), "descales", "Q8 "), OpCase((1, 7, 33, 130, 1), "one_hot", "Q9 "))


CASES = cases.CASES._replace(
    quick=partial(cases.quick, own=QUICK, groups=GROUPS, few=()),
    full=partial(cases.full, own=FULL, few=()),
    beyond=frozenset({"large", "huge", "slopes"}),
)

_relations = partial(imported_when_called, f"{__name__}.invariants")
OF_ATTENTION = {each.code: each for each in attention.INVARIANTS}
OWN_INVARIANTS = (
    Invariant(
        "G3.descales",
        "a power of two may move from one descale to another, and that of V comes out",
        "a descale that is left out, or taken of another tensor or head",
        _relations("descales"),
    ),
    *(OF_ATTENTION[code] for code in ("G3.permute", "G3.future", "G3.lengths")),
    OF_ATTENTION["G3.ones"]._replace(
        asserts="Q = 0 and V = 1 give O = 1: the weights sum to 1", relations=_relations("ones")
    ),
    Invariant(
        "G3.quantising",
        "normal inputs that are quantised give the unquantised result with noise 25 dB below it",
        "fewer digits than FP8 has: probabilities without an offset, or sums in few bits",
        _relations("quantising"),
        (2, 3, 257, 257),
    ),
    OF_ATTENTION["G3.spread"]._replace(relations=_relations("spread")),
)
"""In order of cost."""


ELEMENTS = f"Q, K and V must be {ELEMENT}, or K and V beside Q in bfloat16 or float16"
WANTED = "q_descale, k_descale and v_descale must be float32 of (batch, heads_kv), or expand to that"


def problem_of(inputs: tuple[Any, ...], options: Mapping[str, Any]) -> SdpaFp8Problem:
    """Of Q, K and V, the descale of each, and lengths of the keys where there are any; O is bfloat16, or of Q's
    element type where that has 16 bits. Raises ValueError."""
    qkv, descales, lengths = inputs[:3], (*inputs[3:6], None, None, None)[:3], inputs[6:]
    of_q, *others = (str(each.dtype).removeprefix("torch.") for each in qkv)
    cache = of_q in ("bfloat16", "float16")
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


OP = Op(
    name="sdpa_fp8",
    package=__name__,
    problem=SdpaFp8Problem,
    inputs=_inputs,
    outputs=outputs,
    ordinary="randn",
    cases=CASES,
    invariants=OWN_INVARIANTS,
    distance=distance,
    usual=lambda macros: usual(macros, SdpaFp8Problem),
    words=WORDS,
    abi=lambda: config.kernels_dir() / "sdpa_fp8" / "abi",
    default_spaces={"cuda": "sdpa_fp8_cuda"},
    emulations=("any_scale",),
    call=CALL,
)
