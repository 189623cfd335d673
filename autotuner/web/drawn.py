"""What was drawn last."""

import threading
from collections import OrderedDict
from collections.abc import Callable

KEPT = 128
"""Pages and answers that are kept."""


class PageCache:
    """The pages and answers drawn last, by what they show: once for all their readers."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def once(self, key: tuple[str, ...], draw: Callable[[], str]) -> bytes:
        """That of the key."""
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = draw().encode()
            with self._lock:
                self._kept[key] = found
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return found
