"""What a model of transformers calls for its attention and for its masks (autotuner/serve/hook.py)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autotuner.ops.sdpa.signature import CORNERS, made, seen
from autotuner.values.errors import InputError

Attention = Callable[..., Tensor]
_SAID = "_autotuner_said"
"""Attribute of a mask: the arguments that say the same. A mask that has lost it, or never had it, is torch's."""


class _Said(NamedTuple):
    """What a mask says, as arguments of the function."""

    is_causal: bool
    corner: str
    window: tuple[int, int] | None = None
    key_lengths: Tensor | None = None

    def arguments(self) -> dict[str, Any]:
        """Those that are there: each layer's call has to compare them with those of the layer before."""
        return {name: each for name, each in self._asdict().items() if each is not None}

    def shown(self, mask: Tensor) -> Tensor:
        """The mask that says this, of the same rows and keys."""
        window, (rows, keys) = self.window or (0, 0), mask.shape[-2:]
        return seen(rows, keys, self.is_causal, self.corner, self.key_lengths, mask.device, window)


def computes(chosen: Attention) -> Callable[..., tuple[Tensor, None]]:
    """In the form that transformers calls."""

    def attention(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        position_bias: Tensor | None = None,
        cache: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        if cache is not None:
            raise InputError("a paged cache is not served: give the model a static or dynamic one")
        said = getattr(attention_mask, _SAID, None)
        if said is None:
            causal = bool(module.is_causal if is_causal is None else is_causal)
            said = {"is_causal": query.shape[2] > 1 and attention_mask is None and causal}
            if attention_mask is not None and query.shape[1] != key.shape[1]:  # with a mask torch is slow in groups
                key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        more = {"sinks": s_aux, "bias": position_bias, "softcap": softcap or None, "dropout_p": dropout or None}
        options = {**said, **{name: each for name, each in more.items() if each is not None}}
        grouped = query.shape[1] != key.shape[1]
        found = chosen(query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=grouped, **options)
        return found.transpose(1, 2).contiguous(), None

    return attention


def masks(right: bool) -> Callable[..., Tensor | None]:
    """Makes masks as transformers does for torch's attention, with what they say. `right`: a promise about padding."""
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

    def traced(mask: Tensor, given: dict[str, Any]) -> _Said | None:
        """Where nothing can be read from the mask: what its making says."""
        padding, function = given.get("attention_mask"), given.get("mask_function")
        if given.get("local_size") is not None:
            return None
        if function is causal_mask_function and padding is None and "q_offset" in given:
            ends = torch.zeros(mask.shape[0], dtype=torch.int32, device=mask.device)
            return _Said(True, CORNERS[1], None, ends + given["q_offset"] + given["q_length"])
        if function is bidirectional_mask_function and padding is not None and right:
            said = _Said(False, CORNERS[0], None, padding.sum(-1, dtype=torch.int32))
            torch._assert_async((said.shown(mask) == mask).all(), "a batch is not padded on the right, as was promised")
            return said
        return None

    def make(**given: Any) -> Tensor | None:
        if given.get("allow_is_causal_skip", True):  # torch's causal mask is at the top left
            given["allow_is_causal_skip"] = given["q_length"] == given["kv_length"]
        mask: Tensor | None = sdpa_mask(**given)
        if mask is None:
            return None
        compiling = torch.compiler.is_compiling()
        said = traced(mask, given) if compiling else _read(mask, given.get("local_size"))
        if said is None:
            return mask
        if given["q_length"] != given["kv_length"]:
            mask = mask.contiguous()  # generate() would do that for a static cache, and lose what it says
        setattr(mask, _SAID, said.arguments())
        return made(mask)

    return make


def _read(mask: Tensor, local_size: int | None) -> _Said | None:
    """What a mask says, in lengths, a causal mask and a window; None where it says something else."""
    rows, keys = mask.shape[-2:]
    places = torch.arange(1, keys + 1, dtype=torch.int32, device=mask.device)
    ends = (mask.any(-2) * places).amax((-2, -1)).to(torch.int32)
    lengths = None if bool((ends == keys).all()) else ends
    windows: list[tuple[bool, tuple[int, int] | None]] = [(True, None), (False, None)]
    if local_size is not None and 1 < local_size < keys:
        windows = [(True, (local_size - 1, 0)), (False, (local_size, local_size)), *windows]
    for causal, window in windows:
        for corner in CORNERS if rows == keys else CORNERS[::-1]:
            said = _Said(causal, corner, window, lengths)
            if bool((said.shown(mask) == mask).all()):
                return said
    return None
