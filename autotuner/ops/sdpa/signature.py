"""torch's scaled_dot_product_attention, with the arguments that variants serve beside its own: the one statement of the
op's signature. A package has a copy of this file: it imports nothing of autotuner."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as FUNCTION

NAME, TITLE = "attention", "Attention"
TENSORS, MORE = ("query", "key", "value"), ("key_lengths", "sinks", "alibi_slopes", "bias")
OPTIONS = ("is_causal", "enable_gqa", "corner", "window_left", "window_right", "softcap")
BESIDE = ("attn_mask",)
NUMBERS = {"window_left": 0.0, "window_right": 0.0, "softcap": 0.0}
"""Options that are numbers: what they are where they are not said."""
AUTOCAST = True
CORNERS = ("top_left", "bottom_right")
OTHERS = {
    **dict.fromkeys(("cu_seqlens", "max_seqlen"), "batches are not ragged, but padded: say key_lengths"),
    **dict.fromkeys(
        ("block_table", "page_table"), "K and V are a tensor each, such as a static cache: say key_lengths"
    ),
    **{"cache_seqlens": "say key_lengths", "window_size": "say window", "softmax_scale": "say scale"},
    **{
        "causal": "say is_causal",
        "score_mod": "say softcap, alibi_slopes or bias",
        "block_mask": "say window or attn_mask",
    },
}
"""How arguments of other functions begin, and what is said here."""
_SAYS, _MADE = "_autotuner_says", "_autotuner_made"
"""Attributes of a mask: which lengths, corner and window it was compared with; and that it was made of them."""
CONTRADICTS = "attn_mask hides other keys than key_lengths, corner and window say: torch serves the call with the mask"


def arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    key_lengths: Tensor | None = None,
    corner: Literal["top_left", "bottom_right"] = "top_left",
    window: int | tuple[int, int] | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    bias: Tensor | None = None,
    **others: Any,
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Q, K and V, and behind them the tensors that MORE names, as far as there are any: None for one that is not
    there; those of the options that change what is computed; and what says the same once more for torch alone: a mask
    beside lengths, a corner or a window.

    Q is (batch, heads, seq_q, head_dim), K and V are (batch, heads_kv, seq_k, head_dim). `key_lengths`, (batch,) of
    int32, says how many keys there are of the seq_k that there is room for, as in a static cache or a padded batch.
    With `corner="bottom_right"` the last row's place is that of the last key there is: under a causal mask it sees all.
    `window` says how many keys before a row's own place, and how many after it, the row sees; one number is for both,
    but a causal mask leaves none after it. With `softcap` C a scaled score s becomes C tanh(s / C); 0 leaves it.
    `sinks`, (heads,), has one more score for each row of a head, which has no value. `alibi_slopes`, (heads,) of
    float32, adds the slope times the way from the row's place to the key. `bias`, which expands to (batch, heads,
    seq_q, seq_k), is added to scores after these are capped; an `attn_mask` of numbers is that,
    alone: where `is_causal` stands beside it the call is torch's.

    A model may say what is so anyway: the usual scale, or groups where there are none. Raises ValueError for a corner,
    a window or a cap that there is not and for what lies elsewhere, and TypeError for what is no tensor, or no number,
    and for `others`.
    """
    for name in others:
        said = next((why for begins, why in OTHERS.items() if name.startswith(begins)), "there is no such argument")
        raise TypeError(f"{NAME} takes no {name}: {said}")
    for name, each in (("query", query), ("key", key), ("value", value)):
        if not hasattr(each, "requires_grad"):
            raise TypeError(f"{name} must be a tensor, not {type(each).__name__}")
    if not (attn_mask is key_lengths is sinks is bias is alibi_slopes is None):
        _require_beside((attn_mask, key_lengths, sinks, alibi_slopes, bias), query)
    options: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    named = bias is not None
    is_alone = not (named or is_causal) and key_lengths is None and window is None
    if attn_mask is not None and is_alone and _is_added(attn_mask, query):
        attn_mask, bias = None, attn_mask
    if attn_mask is not None:
        described = key_lengths is not None or window is not None or (is_causal and corner != "top_left")
        (beside if described else options)["attn_mask"] = attn_mask
    if dropout_p:
        _require_like("dropout_p", dropout_p, "a number", "__int__")
        options["dropout_p"] = dropout_p
    if is_causal:
        _require_like("is_causal", is_causal, "True or False", "__bool__")
        options["is_causal"] = True
    if window is not None:
        options |= _sides(window, is_causal)
    if is_causal or window is not None:
        if corner not in CORNERS:
            raise ValueError(f"corner is {corner!r}, expected top_left or bottom_right")
        if corner != "top_left":
            options["corner"] = corner
    if softcap:
        _require_like("softcap", softcap, "a number", "__int__")
        if not 0 < softcap < float("inf"):
            raise ValueError(f"softcap is {softcap}, expected a number above 0, or 0 for none")
        options["softcap"] = softcap
    if scale is not None:
        _require_like("scale", scale, "a number", "__int__")
        if not _is_usual(scale, query):
            options["scale"] = scale
    if enable_gqa:
        _require_like("enable_gqa", enable_gqa, "True or False", "__bool__")
    if enable_gqa and not _is_idle(query, key, value):
        options["enable_gqa"] = True
    if bias is not None:
        whole = (*query.shape[:-1], key.shape[-2])
        if bias.dim() < 5 and all(one in (1, size) for one, size in zip(bias.shape[::-1], whole[::-1], strict=False)):
            bias = bias if bias.shape == whole else bias.expand(whole)
        elif named:
            raise ValueError(f"bias is {tuple(bias.shape)}, expected what expands to {whole}")
    more = (key_lengths, sinks, alibi_slopes, bias)
    both = is_causal and "attn_mask" in options and not getattr(attn_mask, _MADE, False)
    if both and (softcap or any(each is not None for each in more)):
        raise ValueError("attn_mask stands beside is_causal, and torch takes one of them: hide the keys in the mask")
    if beside and not _agrees(attn_mask, query, key, key_lengths, options):
        warnings.warn(CONTRADICTS, stacklevel=3)
        left = {name: said for name, said in options.items() if name not in ("is_causal", "corner", *_SIDES)}
        more = (None, sinks, alibi_slopes, bias)
        options, beside = {**left, "attn_mask": attn_mask}, {}
    return (query, key, value, *_there(more)), options, beside


def _require_beside(given: Sequence[Any], query: Tensor) -> None:
    """Raises for what cannot stand beside Q, K and V: first a mask, then what MORE names."""
    for name, each in zip((*BESIDE, *MORE), given, strict=True):
        if each is None:
            continue
        if not hasattr(each, "requires_grad"):
            raise TypeError(f"{name} must be a tensor, not {type(each).__name__}")
        if each.device != query.device:
            raise ValueError(f"{name} is on {each.device}, query is on {query.device}: move it there")
        if name in MORE[:-1] and query.dim() > 2:
            count, one = (query.size(0), "sequence") if name == "key_lengths" else (query.size(-3), "head")
            if each.dim() != 1 or each.size(0) != count:
                raise ValueError(f"{name} is {tuple(each.shape)}, expected ({count},): one a {one}")
        if name == "bias" and each.dtype == torch.bool:
            raise ValueError("bias has truths, expected numbers to add: attn_mask is for what to hide")


def _require_like(name: str, given: Any, what: str, method: str) -> None:
    """Raises TypeError for what has no such method: text and lists would be true. torch.compile cannot ask for one."""
    if not torch.compiler.is_dynamo_compiling() and (not hasattr(given, method) or getattr(given, "ndim", False)):
        raise TypeError(f"{name} must be {what}, not {type(given).__name__}")


def _is_added(mask: Tensor, query: Tensor) -> bool:
    """Whether a mask is of numbers that variants can add."""
    return mask.dtype == query.dtype and query.dim() == 4 and 1 < mask.dim() < 5 and mask.stride(-1) == 1


def _there(more: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Without those at the end that are not there."""
    count = len(more)
    while count and more[count - 1] is None:
        count -= 1
    return tuple(more[:count])


_SIDES = ("window_left", "window_right")


def made(mask: Tensor) -> Tensor:
    """The mask, known to say the same as the lengths, corner and window that it will stand beside."""
    setattr(mask, _MADE, True)
    return mask


def is_made(given: Mapping[str, Any]) -> bool:
    """Whether the mask of a call's arguments is one of those."""
    return bool(getattr(given.get("attn_mask"), _MADE, False))


def _agrees(mask: Any, query: Tensor, key: Tensor, lengths: Tensor | None, options: Mapping[str, Any]) -> bool:
    """Whether a mask says the same as what it stands beside."""
    if getattr(mask, _MADE, False):
        return True
    seq_q, seq_k = query.shape[-2], key.shape[-2]
    causal, corner = options.get("is_causal", False), options.get("corner", CORNERS[0])
    window = [int(options.get(side, 0)) for side in _SIDES]
    if torch.compiler.is_dynamo_compiling():
        return _is_asserted(_same(mask, seen(seq_q, seq_k, causal, corner, lengths, query.device, window)))
    if mask.device != query.device or mask.shape[-2:].numel() not in (seq_q * seq_k, seq_k):
        return False  # torch says what is wrong
    versions = tuple(None if each is None or each.is_inference() else each._version for each in (mask, lengths))
    said = (*versions, seq_q, seq_k, causal, corner, *window)
    before = getattr(mask, _SAYS, None)
    if before is not None and before[0] is lengths and before[1] == said:
        return bool(before[2])
    same = _same(mask, seen(seq_q, seq_k, causal, corner, lengths, query.device, window))
    if query.is_cuda and torch.cuda.is_current_stream_capturing():
        return _is_asserted(same)
    try:
        found = bool(same)
    except RuntimeError:  # it is traced or transformed: there is nothing to read yet
        return _is_asserted(same)
    if not (mask.is_inference() or (lengths is not None and lengths.is_inference())):  # their changes are not counted
        setattr(mask, _SAYS, (lengths, said, found))
    return found


def _same(mask: Tensor, wanted: Tensor) -> Tensor:
    """Whether a mask, of truths or to be added, shows what is wanted and hides all else."""
    if mask.dtype == torch.bool:
        return (mask == wanted).all()
    return torch.where(wanted, mask == 0, mask <= torch.finfo(mask.dtype).min / 2).all()


def _is_asserted(same: Tensor) -> bool:
    """Has it asserted where the graph runs."""
    torch._assert_async(same, CONTRADICTS.partition(":")[0])
    return True


def _sides(window: int | tuple[int, int], is_causal: bool) -> dict[str, Any]:
    """The options of a window."""
    sides = (window, 0 if is_causal else window) if isinstance(window, int) else window
    if not isinstance(sides, tuple | list) or len(sides) != 2 or any(type(each) is not int for each in sides):
        raise TypeError(f"window must be a whole number, or two: keys before a row's own and after it, not {window!r}")
    left, right = sides
    if left < 1 or (right != 0 if is_causal else right < 1):
        expected = "the keys before a row's own, from 1 on, and those after it, with is_causal none, else from 1 on"
        raise ValueError(f"window is {window!r}: expected {expected}")
    return {"window_left": left, **({"window_right": right} if right else {})}


def _is_usual(scale: float, query: Tensor) -> bool:
    """Whether a scale is the one that is taken where none is given. In arithmetic that torch.compile follows."""
    return scale > 0 and query.dim() > 0 and abs(scale * scale * query.size(-1) - 1) < 2e-6


def _is_idle(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether there are no groups for torch to make: its heads are the third dimension from the end, whatever the
    number of dimensions, and K and V are grouped each by itself."""
    return query.dim() == key.dim() == value.dim() == 4 and query.size(1) == key.size(1) == value.size(1)


def called(tensors: Sequence[Tensor | None], options: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of these tensors with these options, as `arguments` takes it. A tensor of MORE that is None among the
    options is not among the tensors."""
    absent = [name for name in MORE if options.get(name, NAME) is None]
    said = {name: value for name, value in options.items() if not name.startswith("window_") and name not in absent}
    if options.get("window_left"):
        said["window"] = (int(options["window_left"]), int(options.get("window_right", 0)))
    there = zip([name for name in MORE if name not in absent], tensors[3:], strict=False)
    return tuple(tensors[:3]), {**{name: each for name, each in there if each is not None}, **said}


def compute(tensors: Sequence[Any], options: Mapping[str, Any], beside: Mapping[str, Any]) -> Tensor:
    """What torch computes for such a call; O is as Q. A mask beside lengths or a corner is taken for what they say."""
    query, key, value, *more = tensors
    lengths, sinks, slopes, bias = [*more, *[None for _ in MORE]][: len(MORE)]
    said = dict(options)
    softcap = said.pop("softcap", 0.0)
    window = tuple(int(said.pop(f"window_{side}", 0)) for side in ("left", "right"))
    bottom = said.pop("corner", "top_left") == "bottom_right" and (said.get("is_causal", False) or any(window))
    if bottom and not any(window) and lengths is None and not beside:
        if query.shape[-2] == 1:
            bottom = said["is_causal"] = False  # the last row sees all
        bottom = bottom and query.shape[-2] != key.shape[-2]
    if lengths is not None or bottom or any(window):
        causal = bool(said.pop("is_causal", False))
        mask = beside.get("attn_mask")
        if mask is None:
            corner = CORNERS[int(bottom)]
            mask = seen(query.shape[-2], key.shape[-2], causal, corner, lengths, query.device, window)
        said["attn_mask"] = mask
    if slopes is not None or bias is not None:
        causal = bool(said.pop("is_causal", False))
        said["attn_mask"] = _numbers(query, key, slopes, bias, lengths, bottom, said.get("attn_mask"), causal)
    if softcap or sinks is not None:
        return _explicit(query, key, value, softcap, sinks, **said)
    return FUNCTION(query, key, value, **said)


def _numbers(
    query: Tensor,
    key: Tensor,
    slopes: Tensor | None,
    bias: Tensor | None,
    lengths: Tensor | None,
    bottom: bool,
    mask: Tensor | None,
    causal: bool,
) -> Tensor:
    """What is added to scores, -inf where a mask hides a key; of the query's type where torch's kernels ask for it."""
    rows, keys = (torch.arange(each.size(-2), device=query.device) for each in (query, key))
    found = bias
    if slopes is not None:
        ends = key.size(-2) if lengths is None else lengths.view(-1, 1, 1, 1)
        place = rows.view(-1, 1) + (ends - query.size(-2) if bottom else 0)
        found = slopes.view(-1, 1, 1) * (keys - place) + (0 if bias is None else bias)
    assert found is not None
    if mask is None and causal:
        mask = keys <= rows.view(-1, 1)
    found = found.to(query.dtype) if query.is_cuda else found.to(torch.promote_types(found.dtype, query.dtype))
    if mask is None:
        return found
    return torch.where(mask, found, -torch.inf) if mask.dtype == torch.bool else found + mask


def _explicit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    softcap: float,
    sinks: Tensor | None,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Where scores are capped or there are sinks, which torch's function has no arguments for."""
    if query.size(-3) != key.size(-3):
        key, value = (x.repeat_interleave(query.size(-3) // x.size(-3), -3) for x in (key, value))
    if is_causal:
        attn_mask = seen(query.size(-2), key.size(-2), True, CORNERS[0], None, query.device, (0, 0))
    scores = query.float() @ key.float().transpose(-1, -2) * (query.size(-1) ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().view(-1, 1, 1).expand(*scores.shape[:-1], 1)], -1)
    weights = torch.softmax(scores, -1).nan_to_num(0)[..., : key.size(-2)].to(value.dtype)
    return (torch.dropout(weights, dropout_p, True) if dropout_p else weights) @ value


def empty(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
    """An empty O, which lies as Q does where it has its sizes."""
    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query)
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def seen(
    seq_q: int,
    seq_k: int,
    causal: bool,
    corner: str,
    lengths: Tensor | None,
    device: torch.device,
    window: Sequence[int],
) -> Tensor:
    """Which keys each row sees, of a shape that expands to (batch, heads, seq_q, seq_k); lengths, a causal mask or a
    window there must be. At the bottom right the last row's place is that of the last key there is: as many as the
    lengths say, where there are lengths. A window of (0, 0) is none."""
    keys = torch.arange(seq_k, device=device)
    ends = torch.full((1, 1, 1, 1), seq_k, device=device) if lengths is None else lengths.view(-1, 1, 1, 1)
    found = keys < ends
    if causal or any(window):
        rows = torch.arange(seq_q, device=device).view(-1, 1)
        place = rows if corner == "top_left" else rows + ends - seq_q
        found = found & (keys <= place + window[1])
    if any(window):
        found = found & (keys >= place - window[0])
    return found
