"""A model of transformers hooked by one call: what it computes with and its masks are ours, registered together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from autotuner.ops import DEFAULT_OP, OPS
from autotuner.serve.load import load
from autotuner.serve.record import TorchsOwn, function
from autotuner.values.errors import InputError
from autotuner.values.validation import show

_hooked: list[tuple[Callable[..., Tensor], str]] = []
"""Functions that are registered, each under a name of its own."""


def use(
    model: Any, served: Callable[..., Tensor] | str | Path | None = None, *, padding: Literal["any", "right"] = "any"
) -> Any:
    """Lets a model of transformers call `served`: what `load` returns, or the path of an export; without it torch's own
    function, whose calls `record` hears of. Returns the function.

    transformers makes its mask as for torch's function. What that says is read from it and compared with it, once for
    all layers: that is what variants are asked for. A mask that says something else, as one of a batch that is padded
    on the left, is given to torch.

    Under torch.compile no mask can be read: where one is made inside the graph, of an `attention_mask` or for a part of
    the keys, torch serves the call. `padding="right"` promises for encoders that batches are padded on the right only;
    the graph raises RuntimeError where one is not.

    Raises InputError where transformers is missing, or the model cannot be hooked.
    """
    if padding not in ("any", "right"):
        raise InputError(f'padding is {padding!r}, expected "any" or "right"')
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError:
        raise InputError("use() hooks models of transformers: pip install 'kernel-autotuner[transformers]'") from None
    if not hasattr(model, "set_attn_implementation"):
        raise InputError(f"{type(model).__name__} is no model of transformers: call what load() returns in it yourself")
    chosen = load(served) if isinstance(served, str | Path) else served or function(DEFAULT_OP)
    computed = chosen.of if isinstance(chosen, TorchsOwn) else getattr(getattr(chosen, "table", None), "op", DEFAULT_OP)
    if not callable(chosen) or computed != DEFAULT_OP:
        raise InputError(f"found {show(chosen)}, expected what load() returns of an export of {DEFAULT_OP}")
    name = next((name for known, name in _hooked if known is chosen and name.endswith(padding)), None)
    if name is None:
        name, of = f"autotuner_{len(_hooked)}_{padding}", OPS[DEFAULT_OP].hook
        _hooked.append((chosen, name))
        AttentionInterface.register(name, of.computes(chosen))
        AttentionMaskInterface.register(name, of.masks(padding == "right"))
    model.set_attn_implementation(name)
    if model.config._attn_implementation != name:
        raise InputError(f"{type(model).__name__} cannot be hooked: it does not let its function be replaced")
    return chosen
