"""Which operations of torch a block runs."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class _Heard(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def operations(call: Callable[[], object]) -> Counter[str]:
    """How often each ran, by names such as aten.add.Tensor."""
    heard = _Heard()
    with heard:
        call()
    return heard.counts
