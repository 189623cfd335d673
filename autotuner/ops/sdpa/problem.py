"""The problem of the op sdpa: the sizes of the tensors, how they lie in memory, their element type and the mask."""

import math
import re
from collections.abc import Mapping
from typing import ClassVar, Literal, Self, cast

from pydantic import Field, PositiveInt, field_validator, model_validator

from autotuner.values.problem import ITEM_BYTES, Dtype, Problem, Shape, doublings
from autotuner.values.validation import refuse, show

SIZE = r"\s*(\d{1,9})\s*"
SIZES = re.compile(rf"\({SIZE},{SIZE}(?::{SIZE})?,{SIZE}(?:x{SIZE})?,{SIZE}\)(.*)")
WORDS: Mapping[str, tuple[str, object]] = {
    "full": ("causal", False),
    "causal": ("causal", True),
    "sinks": ("sinks", "own"),
    "sinks=float32": ("sinks", "float32"),
    "bias=alibi": ("bias", "alibi"),
    "bias=heads": ("bias", "heads"),
    "bias=full": ("bias", "full"),
    "bottom_right": ("corner", "bottom_right"),
    "top_left": ("corner", "top_left"),
    "lengths": ("key_lengths", True),
    "bhsd": ("layout", "bhsd"),
    "bshd": ("layout", "bshd"),
    "packed": ("layout", "packed qkv"),
    "lse": ("lse", True),
}
"""What each word of the form says, but the element types: a field and its value. In the order in which they are
written."""
UNSAID = ("top_left", "bhsd")
FEW = 16
"""Rows of Q up to which a problem is one of few queries, whose keys are divided among many blocks."""
WINDOW = re.compile(r"([1-9]\d{0,8})(?:,(\d{1,9}))?")
EXAMPLE = '"(2,6,197,64) float32 causal" or "(1,32:8,1x4096,128) float16 bshd lse"'


class SdpaProblem(Problem):
    """One attention forward: Q, O are (batch, heads, seq_q, head_dim), K, V are (batch, heads_kv, seq_k, head_dim).

    Head h of Q looks at head h // (heads / heads_kv) of K and V.
    """

    op: Literal["sdpa"] = "sdpa"
    batch: PositiveInt
    heads: PositiveInt
    heads_kv: PositiveInt = Field(
        default_factory=lambda known: known["heads"],
        description="heads of K and V, of which heads is a multiple; as many as heads if unsaid",
    )
    seq_q: PositiveInt
    seq_k: PositiveInt
    head_dim: PositiveInt
    dtype: Dtype
    causal: bool = Field(default=False, description="a row does not see the keys after its own place")
    corner: Literal["top_left", "bottom_right"] = Field(
        default="top_left",
        description="the place of row i among the keys, for masks and windows: i, or i + keys - seq_q, so that the last"
        " row's is the last key",
    )
    window_left: int = Field(
        default=0, ge=0, description="a row sees so many keys before its own place, and no more; 0: all there are"
    )
    window_right: int = Field(
        default=0, ge=0, description="and so many after it, where there is a window and no causal mask"
    )
    softcap: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="C: a scaled score s becomes C tanh(s / C); 0: it stays"
    )
    key_lengths: bool = Field(
        default=False, description="a tensor (batch,) of int32 says how many keys there are, from 0 to seq_k"
    )
    layout: Literal["bhsd", "bshd", "packed qkv"] = Field(
        default="bhsd",
        description="where the tensors lie: dense; views of dense (batch, length, heads, head_dim); Q, K and V, or K"
        " and V where the lengths differ, views of one such tensor. Variants for the last two serve any strides",
    )
    sinks: Literal["none", "own", "float32"] = Field(
        default="none",
        description="a tensor (heads,) has one more score for each row of a head, without a value; own: of dtype",
    )
    bias: Literal["none", "alibi", "heads", "full"] = Field(
        default="none",
        description="what is added to scores: a slope a head, float32 (heads,), times the way from the row's place to"
        " the key; a tensor of dtype (heads, seq_q, seq_k) for all batches; or (batch, heads, seq_q, seq_k)",
    )
    lse: bool = Field(default=False, description="a second output, float32 (batch, heads, seq_q): ln(sum(exp(scores)))")

    DIMS: ClassVar[tuple[str, ...]] = ("batch", "heads", "seq_q", "seq_k", "heads_kv")
    SAME: ClassVar[Mapping[str, str]] = {"heads_kv": "heads"}
    ADDED: ClassVar[tuple[str, ...]] = (
        *("heads_kv", "corner", "window_left", "window_right", "softcap"),
        *("key_lengths", "layout", "sinks", "bias", "lse"),
    )
    COMPILED: ClassVar[tuple[str, ...]] = (
        *("head_dim", "causal", "corner", "key_lengths", "layout", "lse"),
        *("grouped", "windowed", "softcapped", "sinks", "bias"),
    )
    LENGTHS: ClassVar[tuple[str, ...]] = ("seq_q", "seq_k")
    SCALARS: ClassVar[tuple[str, ...]] = ("scale", "window_left", "window_right", "softcap")

    FORM: ClassVar[str] = (
        "(batch,heads[:heads_kv],length[xkeys],head_dim) dtype [full|causal] [window=LEFT[,RIGHT]] [bottom_right]"
        " [softcap=C] [sinks[=float32]] [bias=alibi|heads|full] [lengths] [bhsd|bshd|packed] [lse]"
    )
    NOT_SERVED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("attn_mask", "mask"),
            "masks are full, causal (bottom_right: the last query sees all keys), windows, lengths of the keys, or a"
            " bias of the query's element type whose rows begin at multiples of 16 bytes",
        ),
        **dict.fromkeys(("dropout", "dropout_p"), "there is none"),
        **dict.fromkeys(("ragged", "varlen", "cu_seqlens"), "batches have room for as many keys: say lengths"),
        **dict.fromkeys(("paged", "block_table"), "K and V are a tensor each, such as a static cache: say lengths"),
        **dict.fromkeys(("head_dim_v", "mla"), "V has the head dimension of Q and K"),
        "scale": "it is 1 / sqrt(head_dim)",
        **dict.fromkeys(
            ("float8_e5m2", "e5m2"), "quantise to float8_e4m3fn, which the op sdpa_fp8 takes, or widen to 16 bits"
        ),
        **dict.fromkeys(
            ("float8_e4m3fn", "e4m3", "fp8"),
            "the op sdpa_fp8 takes it, with the output's dtype: (1,8,512,128) float8_e4m3fn bfloat16",
        ),
    }

    @field_validator("dtype", mode="before")
    @classmethod
    def _of_this_op(cls, dtype: object) -> object:
        if isinstance(dtype, str) and dtype in cls.NOT_SERVED:
            raise refuse(f"{dtype} is not supported: {cls.NOT_SERVED[dtype]}")
        return dtype

    @model_validator(mode="after")
    def _that_fits_together(self) -> Self:
        if self.heads % self.heads_kv:
            raise refuse(f"heads is {self.heads}, expected a multiple of heads_kv, {self.heads_kv}")
        if self.corner == "bottom_right" and not (self.causal or self.windowed):
            raise refuse("corner is bottom_right, but the mask is not causal, and there is no window")
        if (self.window_right > 0) != (self.windowed and not self.causal):
            sides = f"{self.window_left} keys before a row's own and {self.window_right} after it"
            raise refuse(f"the window is {sides}: under a causal mask there are none after it, else some on both sides")
        if self.sinks == self.dtype:
            raise refuse(f"sinks are {self.dtype}, as the other tensors are: say own, or the word sinks")
        return self

    @property
    def in_blocks(self) -> bool:
        """Whether flex_attention serves it better than SDPA: windows, capped scores and a bias, without lengths and a
        second output."""
        return (self.windowed or self.softcapped or self.bias != "none") and not self.key_lengths and not self.lse

    @property
    def growing(self) -> tuple[str, ...]:
        """The keys of few queries: a cache has one more of them at each step, where no lengths are given."""
        return ("seq_k",) if self.seq_q <= FEW and self.seq_q < self.seq_k and not self.key_lengths else ()

    @property
    def grouped(self) -> bool:
        """Whether several heads of Q share one of K and V."""
        return self.heads != self.heads_kv

    @property
    def group(self) -> int:
        """Heads of Q that share one of K and V."""
        return self.heads // self.heads_kv

    @property
    def offset(self) -> int:
        """The place of row i among the keys is i + offset, where there are no lengths."""
        return 0 if self.corner == "top_left" else self.seq_k - self.seq_q

    @property
    def windowed(self) -> bool:
        """Whether rows see the keys near their own places alone."""
        return self.window_left > 0

    @property
    def softcapped(self) -> bool:
        """Whether scores are capped."""
        return self.softcap > 0

    def cased(self, shape: Shape) -> Self:
        """With a window of a third of the keys at most, unless these are as many as they were."""
        found = self.sized(shape)
        if not self.windowed or found.seq_k >= self.seq_k:
            return found
        most = max(1, found.seq_k // 3)
        sides = {name: min(getattr(self, name), most) for name in ("window_left", "window_right")}
        return found.model_copy(update=sides)

    def sized(self, shape: Shape) -> Self:
        """The same problem with other sizes. A shape without heads_kv gives K and V that many heads, and Q as many, or
        twice as many where this problem has groups."""
        if self.grouped and len(shape) == len(self.DIMS) - 1:
            batch, heads, *lengths = shape
            shape = (batch, 2 * heads, *lengths, heads)
        return super().sized(shape)

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `str` writes it; `H:G` for G heads of K and V, `QxK` for another number of keys than of queries."""
        found = SIZES.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"found {show(text)}, expected {cls.FORM}, such as {EXAMPLE}")
        batch, heads, heads_kv, seq_q, seq_k, head_dim, rest = found.groups()
        sizes = {"batch": batch, "heads": heads, "heads_kv": heads_kv or heads}
        sizes |= {"seq_q": seq_q, "seq_k": seq_k or seq_q, "head_dim": head_dim}
        fields = {name: int(size) for name, size in sizes.items()}
        causal = "causal" in rest.replace(",", " ").split()

        def read(word: str) -> Mapping[str, object]:
            name, _, value = word.partition("=")
            if name == "softcap":
                return {name: _number(text, name, value)}
            return _window(text, value, causal) if name == "window" else dict([WORDS[word]]) if word in WORDS else {}

        return cls.of_words(text, fields, rest, read, [*WORDS, "window", "softcap"])

    @property
    def scale(self) -> float:
        """The softmax scale, 1 / sqrt(head_dim)."""
        return 1 / math.sqrt(self.head_dim)

    @property
    def scalars(self) -> tuple[float, ...]:
        every = super().scalars
        return every if any(every[1:]) else every[:1]

    @property
    def flops(self) -> int:
        """Floating-point operations of the two products; with a mask or a window only visible scores count. Keys are as
        many as there may be."""
        visible = self.seq_q * self.seq_k
        if self.causal or self.windowed:
            until = self.offset + self.window_right  # row i sees the first until + i + 1 ...
            visible = _up_to(until + self.seq_q, self.seq_k) - _up_to(until, self.seq_k)
        if self.windowed:
            hidden = self.offset - self.window_left - 1  # ... but for the first hidden + i + 1
            visible -= _up_to(hidden + self.seq_q, self.seq_k) - _up_to(hidden, self.seq_k)
        return 4 * self.batch * self.heads * visible * self.head_dim

    @property
    def bytes(self) -> int:
        """The fewest bytes to move: Q, and what any row sees of K and V, read once, O written once, and so the lengths
        and the log-sum-exps."""
        keys = self.seq_k
        if self.windowed:
            last = min(keys, self.offset + self.window_right + self.seq_q)
            keys = max(1, last - max(0, self.offset - self.window_left))
        rows = 2 * self.heads * self.seq_q + 2 * self.heads_kv * keys
        small = 4 * (self.heads * self.seq_q * self.lse + self.key_lengths)
        sinks = {"none": 0, "float32": 4, "own": ITEM_BYTES[self.dtype]}[self.sinks] * self.heads
        numbers = (self.batch if self.bias == "full" else 1) * self.heads * self.seq_q * self.seq_k
        bias = {"none": 0, "alibi": 4 * self.heads}.get(self.bias, numbers * ITEM_BYTES[self.dtype])
        return self.batch * (rows * self.head_dim * ITEM_BYTES[self.dtype] + small) + sinks + bias

    def __str__(self) -> str:
        heads = f"{self.heads}:{self.heads_kv}" if self.grouped else f"{self.heads}"
        lengths = f"{self.seq_q}" if self.seq_q == self.seq_k else f"{self.seq_q}x{self.seq_k}"
        mask, *rest = [word for word, (name, value) in WORDS.items() if getattr(self, name) == value]
        right = "" if self.causal or self.window_left == self.window_right else f",{self.window_right}"
        words = [self.dtype, mask]
        words += [f"window={self.window_left}{right}"] if self.windowed else []
        words += [f"softcap={self.softcap:g}"] if self.softcapped else []
        words += [word for word in rest if word not in UNSAID]
        return f"({self.batch},{heads},{lengths},{self.head_dim}) {' '.join(words)}"


def _window(text: str, value: str, causal: bool) -> dict[str, object]:
    """The fields of a window; one number is for both sides, but for the right one of a causal mask."""
    found = WINDOW.fullmatch(value)
    if found is None:
        expected = "the keys before a row's own that it sees, from 1 on, and those after it, such as 1024 or 64,64"
        raise ValueError(f"{show(text)}: window: found {show(value)}, expected {expected}")
    left, right = found.groups()
    return {"window_left": int(left), "window_right": int(right or (0 if causal else left))}


def _number(text: str, name: str, value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise ValueError(f"{show(text)}: {name}: found {show(value)}, expected a number above 0, such as 50")
    return found


def _up_to(keys: int, most: int) -> int:
    """The sum of min(i, most) for i from 1 to `keys`; 0 below that."""
    if keys <= 0:
        return 0
    short = min(keys, most)
    return short * (short + 1) // 2 + (keys - short) * most


LENGTH, ROWS, HEAD_DIM = 0.5, 0.5, 3.0
"""What a doubling counts: of one of the two lengths; of batch times heads, which are only more of the same work; of the
head dimension, which changes what fits into registers and on-chip memory."""
DTYPE, DTYPE_BYTES, MASK = 0.5, 2.0, 1.0
"""What a change counts: of the element type; and each doubling of its size, on top; of the mask."""
CORNER, WINDOW_SIDE, SOFTCAP, SINKS, BIAS, KEY_LENGTHS, LAYOUT, LSE = 0.25, 0.25, 0.5, 0.25, 1.0, 0.5, 0.5, 0.25
"""And these: of the corner; of a doubling of the window, whose lack counts as a mask does; of capped scores; of sinks;
of the bias; of whether lengths are read; of the layout; of whether there is a second output."""
GROUP = 0.5
"""What a doubling of the heads that share K and V counts."""


def distance(one: Problem, other: Problem) -> float:
    """How far two problems are apart, counted in doublings and changes as a person who tunes would; 0 for the same."""
    a, b = cast(SdpaProblem, one), cast(SdpaProblem, other)
    return (
        LENGTH * (doublings(a.seq_q, b.seq_q) + doublings(a.seq_k, b.seq_k))
        + ROWS * doublings(a.batch * a.heads, b.batch * b.heads)
        + HEAD_DIM * doublings(a.head_dim, b.head_dim)
        + DTYPE * (a.dtype != b.dtype)
        + DTYPE_BYTES * doublings(ITEM_BYTES[a.dtype], ITEM_BYTES[b.dtype])
        + MASK * (a.causal != b.causal)
        + CORNER * (a.corner != b.corner)
        + MASK * (a.windowed != b.windowed)
        + WINDOW_SIDE * (doublings(a.window_left or 1, b.window_left or 1) if a.windowed and b.windowed else 0.0)
        + SOFTCAP * (a.softcapped != b.softcapped)
        + SINKS * (a.sinks != b.sinks)
        + BIAS * (a.bias != b.bias)
        + KEY_LENGTHS * (a.key_lengths != b.key_lengths)
        + LAYOUT * (a.layout != b.layout)
        + LSE * (a.lse != b.lse)
        + GROUP * doublings(a.group, b.group)
    )
