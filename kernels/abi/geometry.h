/* What a CUDA variant tells its host side about how it is launched. The variant's source defines one constant of this
 * type, variant_geometry; it travels in the cubin, where both the launcher and the build read it, so that launch and
 * identity come from the binary itself. All of it is part of the program hash. */
#ifndef AUTOTUNER_GEOMETRY_H
#define AUTOTUNER_GEOMETRY_H

#include <stdint.h>

#define AT_HOST_VALUES 8
#define AT_OP_VALUES 8

/* An op's header gives its numbers names before it includes this one. */
#ifndef AT_GEOMETRY_OP
#define AT_GEOMETRY_OP int32_t op[AT_OP_VALUES];
#endif

typedef struct at_geometry {
  int32_t abi_version;    /* AT_ABI_VERSION */
  int32_t args_bytes;     /* sizeof the kernel's argument struct as the device code saw it */
  int32_t threads;        /* of a block */
  int32_t rows;           /* rows of the output that `split` neighbouring blocks compute */
  int32_t split;          /* neighbours in the grid that share these rows, in whatever way */
  int32_t cluster;        /* blocks of a thread-block cluster; 1: none */
  int32_t dynamic_shared; /* bytes of dynamic shared memory */
  AT_GEOMETRY_OP          /* AT_OP_VALUES numbers that the op's host side wants to know */
  int32_t host[AT_HOST_VALUES]; /* choices of the host side; their meaning belongs to it */
} at_geometry;

#endif
