"""Errors that a person can read."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(
    kind: type[BaseException] | tuple[type[BaseException], ...], match: str = "", says: str = ""
) -> Iterator[None]:
    """The block raises such an error, in one line that matches and holds these words."""
    with pytest.raises(kind, match=match or None) as raised:
        yield
    said = str(raised.value)
    assert "\n" not in said
    assert says in said
