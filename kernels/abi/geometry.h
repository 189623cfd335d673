/* What a CUDA variant tells its host side about how it is launched. The variant's source defines one constant of this
 * type, variant_geometry; it travels in the cubin, where both the launcher and the build read it, so that launch and
 * identity come from the binary itself. All of it is part of the program hash. */
#ifndef AUTOTUNER_GEOMETRY_H
#define AUTOTUNER_GEOMETRY_H

#include <stdint.h>

#define AT_HOST_VALUES 8

typedef struct at_geometry {
  int32_t abi_version;    /* AT_ABI_VERSION */
  int32_t args_bytes;     /* sizeof the kernel's argument struct as the device code saw it */
  int32_t threads;        /* of a block */
  int32_t rows;           /* query rows that `split` neighbouring blocks compute */
  int32_t split;          /* neighbours in the grid that share these rows and their keys, in whatever way */
  int32_t cluster;        /* blocks of a thread-block cluster; 1: none */
  int32_t dynamic_shared; /* bytes of dynamic shared memory */
  int32_t head_dim;       /* HEAD_DIM */
  int32_t tma_rows;       /* rows of K and V that one bulk tensor copy brings; 0: no tensor maps wanted */
  int32_t fixed_seq_q;    /* the only lengths served; 0: any */
  int32_t fixed_seq_k;
  int32_t host[AT_HOST_VALUES]; /* choices of the host side; their meaning belongs to it */
} at_geometry;

#endif
