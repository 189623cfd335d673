/* The host side of a CUDA variant: its cubin, embedded in this library, and the driver that runs it.
 *
 * The driver is found at run time, so a variant can be built, loaded and asked for its identity where there is none. What
 * is kept between calls lies in an object of the ABI's (cuda_host.cpp): a host side keeps nothing and finds no function.
 * It includes this header once, and defines variant_workspace and variant_run. */
#ifndef AUTOTUNER_CUDA_HOST_H
#define AUTOTUNER_CUDA_HOST_H

#include <cuda.h>
#include <string.h>

#include "geometry.h"
#include "identity.h"

extern "C" {
/* Of the cubin; zeros where it has none. */
const at_geometry *at_cuda_geometry(void);

/* Another number for each launch, never 0, for kernels that count in a workspace: its garbage hardly holds it by chance, and
 * least of all what the launch before left there. A variant takes one call at a time. */
uint32_t at_cuda_launch_number(void);

/* These return 0 or the driver's error; CUDA_ERROR_NO_DEVICE where there is no driver. */
int at_cuda_device(CUdevice *device);
int at_cuda_attribute(int *value, CUdevice_attribute which); /* of the current device */
int at_cuda_launch(const char *kernel, unsigned threads, const unsigned *grid, void **arguments, CUstream stream,
                   int overlaps);
/* cuTensorMapEncodeTiled, for maps that read zeros past the end and are not interleaved. */
int at_cuda_tensor_map(CUtensorMap *map, CUtensorMapDataType type, unsigned dimensions, const void *base,
                       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion);
}

namespace at {

inline const at_geometry &geometry() { return *at_cuda_geometry(); }

/* A kernel of the cubin, loaded on first use and allowed its dynamic shared memory on every device it runs on. */
class Kernel {
 public:
  /* `threads`: of a kernel beside the one that the geometry describes, without clusters and dynamic shared memory. */
  explicit constexpr Kernel(const char *name, unsigned threads = 0) : name_(name), threads_(threads) {}

  /* A variant is called from one thread at a time, so nothing here is guarded. Returns 0 or the driver's error. `overlaps`: its
   * blocks may begin while the kernel launched before ends, once all of that one's have said so (cuda_ptx.h). */
  int launch(unsigned blocks, void *args, CUstream stream, bool overlaps = false) const {
    const unsigned grid[3] = {blocks, 1, 1};
    void *arguments[] = {args};
    return launch(grid, arguments, stream, overlaps);
  }

  /* The same for a kernel of several arguments, and a grid of several dimensions. */
  int launch(const unsigned (&grid)[3], void **arguments, CUstream stream, bool overlaps = false) const {
    return at_cuda_launch(name_, threads_, grid, arguments, stream, overlaps);
  }

 private:
  const char *name_;
  unsigned threads_;
};

inline int status(int driver_error) { return driver_error ? AT_DEVICE_ERROR + driver_error : AT_OK; }

}  // namespace at

#endif
