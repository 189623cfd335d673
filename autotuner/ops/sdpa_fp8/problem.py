"""The problem of the op sdpa_fp8: that of sdpa, but for the element type of what is read."""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.problem import ITEM_BYTES
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
        **{name: why for name, why in SdpaProblem.NOT_SERVED.items() if name != ELEMENT},
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
