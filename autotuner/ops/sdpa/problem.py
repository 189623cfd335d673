"""The problem of the op sdpa: the sizes of the tensors, their element type and the mask."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, PositiveInt

from autotuner.values.problem import ITEM_BYTES, Dtype, Problem
from autotuner.values.validation import show, suggestion

SIZES = re.compile(r"\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*,\s*(\d{1,9})(?:\s*x\s*(\d{1,9}))?\s*,\s*(\d{1,9})\s*\)(.*)")
SHORT = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
EXAMPLE = '"(2,6,197,64) float32 causal" or "(1,8,1x512,64) float32"'


class SdpaProblem(Problem):
    """One attention forward: Q, O are (batch, heads, seq_q, head_dim), K, V are (batch, heads, seq_k, head_dim)."""

    op: Literal["sdpa"] = "sdpa"
    batch: PositiveInt
    heads: PositiveInt
    seq_q: PositiveInt
    seq_k: PositiveInt
    head_dim: PositiveInt
    dtype: Dtype
    causal: bool = Field(default=False, description="row i sees keys j <= i (aligned at the top left)")

    DIMS: ClassVar[tuple[str, ...]] = ("batch", "heads", "seq_q", "seq_k")
    COMPILED: ClassVar[tuple[str, ...]] = ("head_dim", "causal")
    LENGTHS: ClassVar[tuple[str, ...]] = ("seq_q", "seq_k")

    FORM: ClassVar[str] = "(batch,heads,length,head_dim) dtype [full|causal]"
    NOT_SERVED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("attn_mask", "mask", "bias"), "the masks are full and causal"),
        **dict.fromkeys(("dropout", "dropout_p"), "there is none"),
        **dict.fromkeys(("enable_gqa", "gqa", "heads_kv"), "K and V have as many heads as Q"),
        **dict.fromkeys(("layout", "strides", "bshd"), "tensors are dense, (batch, heads, length, head_dim)"),
        **dict.fromkeys(("lse", "return_lse"), "the output is O alone"),
        "scale": "it is 1 / sqrt(head_dim)",
    }

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `str` writes it; `QxK` for another number of keys than of queries."""
        found = SIZES.fullmatch(text.strip())
        if found is None:
            cls.refuse_not_served(["heads_kv"] if re.search(r"\d:\d", text) else [])
            raise ValueError(f"found {show(text)}, expected {cls.FORM}, such as {EXAMPLE}")
        batch, heads, seq_q, seq_k, head_dim, rest = found.groups()
        sizes = {"batch": batch, "heads": heads, "seq_q": seq_q, "seq_k": seq_k or seq_q, "head_dim": head_dim}
        fields: dict[str, object] = {name: int(size) for name, size in sizes.items()}
        for word in rest.replace(",", " ").split():
            name = word.partition("=")[0].lower()
            cls.refuse_not_served([name])
            if name in ("full", "causal"):
                fields["causal"] = name == "causal"
            elif name in SHORT or name in ITEM_BYTES:
                fields["dtype"] = SHORT.get(name, name)
            else:
                known = [*ITEM_BYTES, "full", "causal", *cls.NOT_SERVED]
                raise ValueError(f"{show(text)}: unknown {show(word)}{suggestion(name, known)}; the form is {cls.FORM}")
        if "dtype" not in fields:
            raise ValueError(f"{show(text)}: the dtype is missing; expected one of {', '.join(ITEM_BYTES)}")
        return cls.model_validate(fields, strict=True)

    @property
    def scale(self) -> float:
        """The softmax scale, 1 / sqrt(head_dim)."""
        return 1 / math.sqrt(self.head_dim)

    @property
    def scalars(self) -> tuple[float, ...]:
        return (self.scale,)

    @property
    def flops(self) -> int:
        """Floating-point operations of the two products; with a causal mask only visible scores count."""
        visible = self.seq_q * self.seq_k
        if self.causal:
            short = min(self.seq_q, self.seq_k)  # rows before this one see fewer than all keys
            visible = short * (short + 1) // 2 + (self.seq_q - short) * self.seq_k
        return 4 * self.batch * self.heads * visible * self.head_dim

    @property
    def bytes(self) -> int:
        """The fewest bytes to move: Q, K, V read once, O written once."""
        rows = 2 * self.seq_q + 2 * self.seq_k
        return self.batch * self.heads * rows * self.head_dim * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        lengths = f"{self.seq_q}" if self.seq_q == self.seq_k else f"{self.seq_q}x{self.seq_k}"
        mask = "causal" if self.causal else "full"
        return f"({self.batch},{self.heads},{lengths},{self.head_dim}) {self.dtype} {mask}"
