"""Code of one library among the functions of another."""

import _struct
import ctypes
from pathlib import Path

from autotuner.devices.cpu.tables import LEFT_BEHIND, replaced


def test_a_library_whose_functions_others_call_is_seen_and_one_that_nobody_calls_is_not() -> None:
    assert "python" in str(replaced("libc.so"))
    own = Path(str(_struct.__file__)).name  # a module of Python's, as a variant is
    assert [replaced(own) for _ in range(50)] == [None] * 50
    of_python = ctypes.PyDLL(None)
    place = ctypes.c_void_p.in_dll(of_python, "PyOS_InputHook")
    code = ctypes.cast(ctypes.CDLL(str(_struct.__file__)).PyInit__struct, ctypes.c_void_p).value
    try:
        place.value = code
        assert replaced(own) is not None
    finally:
        place.value = None
    assert replaced(own) is None


def test_what_the_loader_has_of_memory_that_it_gave_back_is_no_accusation() -> None:
    assert 0 < len(LEFT_BEHIND) < 4  # the cache of libraries, which it maps and unmaps
    own = Path(str(_struct.__file__)).name
    code = ctypes.cast(ctypes.CDLL(str(_struct.__file__)).PyInit__struct, ctypes.c_void_p).value
    places = [ctypes.c_void_p.from_address(each) for each in LEFT_BEHIND]
    before = [place.value for place in places]
    try:
        for place in places:
            place.value = code  # as where the library comes to lie there
        assert replaced(own) is None
    finally:
        for place, value in zip(places, before, strict=True):
            place.value = value
