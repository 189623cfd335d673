"""Code of one library among the functions of another."""

import _struct
import ctypes
from pathlib import Path

from autotuner.devices.cpu.tables import replaced


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
