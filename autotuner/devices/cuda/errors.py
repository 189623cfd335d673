"""The errors of the CUDA driver, and of cuBLAS."""

from autotuner.forge.loaded_variant import DeviceErrors, LibraryErrors

DEVICE_ERRORS = {
    1: "invalid value",
    2: "out of memory",
    100: "no device",
    201: "invalid context",
    209: "no kernel image for the device",
    226: "a contained exception",
    500: "not found",
    600: "not ready",
    700: "illegal address",
    701: "launch out of resources",
    702: "launch timeout",
    710: "assertion on the device",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failure",
    721: "tensor memory leak",
    801: "not supported",
    810: "the multi-process service ended the client",
    900: "not supported while a stream is captured",
    901: "a capture had failed before",
    911: "external device failure",
}
"""Errors of the CUDA driver by number (CUresult in cuda.h), in words."""

STICKY = frozenset({226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})
"""Errors after which the process can do nothing more on the device."""

CUDA_ERRORS = DeviceErrors(
    names=DEVICE_ERRORS,
    where="CUresult in cuda.h",
    sticky=STICKY,
    library=LibraryErrors(above=2000, name="cuBLAS", where="cublasStatus_t in cublas_api.h"),
)
"""A host side adds 2000 to a status of cuBLAS."""
