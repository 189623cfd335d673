// The host side of a CUDA variant of sdpa_fp8 that is one kernel: sdpa's. The descales are its further inputs.
#include "sdpa_fp8_cuda.h"

#define AT_LENGTHS_INPUT SDPA_FP8_KEY_LENGTHS
#include "../../sdpa/abi/launch.cpp"
