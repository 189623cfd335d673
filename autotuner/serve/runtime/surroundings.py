"""What torch has going on around a call.

torch has no public names for some of it; where one of these goes, that is not seen any more, and all else stays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def _of_torch(name: str) -> Callable[[], Any]:
    """A function of torch's own module of C++; where there is none, one that says nothing."""
    found: Any = torch._C
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else lambda: None


LEAVE_IT = (Tensor.__torch_function__, torch._C._disabled_torch_function_impl)
"""Of classes that leave torch's functions to torch."""
autocast_is_on = _of_torch("_is_any_autocast_enabled")
_tracing, _modes = _of_torch("_get_tracing_state"), _of_torch("_len_torch_dispatch_stack")
_transform, _transforms = _of_torch("_functorch.peek_interpreter_stack"), _of_torch("_functorch.get_interpreter_stack")


def must_see_an_op() -> bool:
    """Whether what is called has to be an op that goes through torch's dispatcher: it is traced (torch.jit.trace,
    make_fx, a fake mode) or transformed (torch.vmap, torch.func.jvp), carries tangents forward, or autocast may change
    the element types. In each call of a model, so in few steps."""
    return bool(_modes() or _tracing() or _transform() or forward_ad._current_level >= 0 or autocast_is_on())


def unseen_by_guards() -> bool:
    """The same for a call whose tensors are like those of an earlier one (alike.py), which had nothing of that going
    on: what the guards that say so do not see themselves."""
    return bool(_modes() or forward_ad._current_level >= 0)


def needs_gradient(tensors: Sequence[Tensor]) -> bool:
    """Whether torch would record the call for a backward pass, or carry a tangent forward through it."""
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        return True
    if torch.compiler.is_dynamo_compiling():  # it cannot follow what comes now
        return False
    may_have = forward_ad._current_level >= 0 or _transform() is not None  # somebody differentiates forward
    return may_have and _has_tangent(tensors)


def answers_itself(tensors: Sequence[Tensor]) -> bool:
    """Whether a tensor is of a class that answers for torch's functions itself, or wraps others, as a DTensor does. Who
    hears of all functions, as tracers do, is shown an op."""
    if torch.compiler.is_dynamo_compiling():
        wraps = any(hasattr(type(each), "__tensor_flatten__") for each in tensors)
        return wraps or torch.overrides.has_torch_function(tuple(tensors))
    others = [each for each in tensors if type(each) is not Tensor]
    return any(type(each).__torch_function__ not in LEAVE_IT or is_traceable_wrapper_subclass(each) for each in others)


def _has_tangent(tensors: Sequence[Tensor]) -> bool:
    if any(str(each.key()) == "TransformType.Jvp" for each in _transforms() or ()):
        return True
    return any(forward_ad.unpack_dual(each).tangent is not None for each in tensors)


def as_autocast(op: Callable[..., Any]) -> Callable[..., Any]:
    """What an op does under autocast: it takes tensors of the autocast's element type."""

    def cast(*args: Any, **options: Any) -> Any:
        given, named = [*map(_cast, args)], {name: _cast(value) for name, value in options.items()}
        with torch.autocast(args[0].device.type, enabled=False):
            return op(*given, **named)

    return cast


def _cast(value: Any) -> Any:
    return value.to(computed_in(value)) if isinstance(value, Tensor) else value


def computed_in(tensor: Tensor) -> torch.dtype:
    """The element type that such an op takes a tensor in: autocast casts all of its device, but integers and
    float64."""
    if not (tensor.is_cpu or tensor.is_cuda) or not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor.dtype
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype
