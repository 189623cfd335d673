/* sdpa_fp8 on CUDA: what the device code of a variant includes. Its argument is the variant's own, and so is its host side:
 * the geometry has the fields that sdpa_cuda.h names. */
#ifndef AUTOTUNER_SDPA_FP8_CUDA_H
#define AUTOTUNER_SDPA_FP8_CUDA_H

#include "../../sdpa/abi/sdpa_cuda.h"

#include "sdpa_fp8.h"

#endif
