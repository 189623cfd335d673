/* The host side of a CUDA variant: its cubin, embedded in this library, and the driver that runs it.
 *
 * The driver is found at run time, so a variant can be built, loaded and asked for its identity where there is none.
 * A host source includes this header once, and defines variant_workspace and variant_run. */
#ifndef AUTOTUNER_CUDA_HOST_H
#define AUTOTUNER_CUDA_HOST_H

#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <string.h>

#include "geometry.h"
#include "identity.h"

extern "C" const unsigned char variant_cubin[], variant_cubin_end[];

namespace at {

/* The bytes that a symbol of the cubin stands for; null when there is none with that beginning of so many letters. */
inline const void *cubin_symbol(const char *wanted, size_t letters) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)variant_cubin;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(variant_cubin + header->e_shoff);
  for (int s = 0; s < header->e_shnum; s++) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const char *names = (const char *)variant_cubin + sections[sections[s].sh_link].sh_offset;
    const Elf64_Sym *symbols = (const Elf64_Sym *)(variant_cubin + sections[s].sh_offset);
    for (uint64_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); i++)
      if (!strncmp(names + symbols[i].st_name, wanted, letters))
        return variant_cubin + sections[symbols[i].st_shndx].sh_offset + symbols[i].st_value;
  }
  return nullptr;
}

inline const char *cubin_text(const char *name) {
  const char *text = (const char *)cubin_symbol(name, strlen(name));
  return text ? text : "";
}

inline const at_geometry &geometry() {
  static const at_geometry none = {};
  static const at_geometry *found = (const at_geometry *)cubin_symbol("variant_geometry", sizeof "variant_geometry");
  return found ? *found : none;
}

/* Another number for each launch, never 0, for kernels that count in a workspace: its garbage hardly holds it by chance, and
 * least of all what the launch before left there. A variant takes one call at a time. */
inline uint32_t launch_number() {
  static uint32_t number = 0x9e3779b9u;
  number = number * 1664525u + 1013904223u;
  return number ? number : launch_number();
}

/* The functions of libcuda that are called, by their names there. */
struct Driver {
  decltype(&::cuLibraryLoadData) cuLibraryLoadData;
  decltype(&::cuLibraryGetKernel) cuLibraryGetKernel;
  decltype(&::cuKernelSetAttribute) cuKernelSetAttribute;
  decltype(&::cuCtxGetDevice) cuCtxGetDevice;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute;
  decltype(&::cuLaunchKernelEx) cuLaunchKernelEx;
  decltype(&::cuStreamQuery) cuStreamQuery;
  decltype(&::cuTensorMapEncodeTiled) cuTensorMapEncodeTiled;
  bool found;

  static const Driver &get() {
    static const Driver driver = load();
    return driver;
  }

 private:
  static Driver load() {
    Driver driver = {};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return driver;
#define AT_FIND(name) driver.name = (decltype(driver.name))dlsym(library, #name)
    AT_FIND(cuLibraryLoadData);
    AT_FIND(cuLibraryGetKernel);
    AT_FIND(cuKernelSetAttribute);
    AT_FIND(cuCtxGetDevice);
    AT_FIND(cuDeviceGetAttribute);
    AT_FIND(cuLaunchKernelEx);
    AT_FIND(cuStreamQuery);
    AT_FIND(cuTensorMapEncodeTiled); /* absent from drivers without bulk tensor copies */
#undef AT_FIND
    driver.found = driver.cuLibraryLoadData && driver.cuLibraryGetKernel && driver.cuKernelSetAttribute &&
                   driver.cuCtxGetDevice && driver.cuDeviceGetAttribute && driver.cuLaunchKernelEx &&
                   driver.cuStreamQuery;
    return driver;
  }
};

/* A kernel of the cubin, loaded on first use and allowed its dynamic shared memory on every device it runs on. */
class Kernel {
 public:
  /* `threads`: of a kernel beside the one that the geometry describes, without clusters and dynamic shared memory. */
  explicit constexpr Kernel(const char *name, unsigned threads = 0) : name_(name), threads_(threads) {}

  /* A variant is called from one thread at a time, so nothing here is guarded. Returns 0 or the driver's error. `overlaps`: its
   * blocks may begin while the kernel launched before ends, once all of that one's have said so (cuda_ptx.h). */
  int launch(unsigned blocks, void *args, CUstream stream, bool overlaps = false) {
    const unsigned grid[3] = {blocks, 1, 1};
    void *arguments[] = {args};
    return launch(grid, arguments, stream, overlaps);
  }

  /* The same for a kernel of several arguments, and a grid of several dimensions. */
  int launch(const unsigned (&grid)[3], void **arguments, CUstream stream, bool overlaps = false) {
    const Driver &driver = Driver::get();
    if (!driver.found) return CUDA_ERROR_NO_DEVICE;
    if (const int error = prepare(driver)) return error;
    const at_geometry shape = described();
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = (unsigned)shape.cluster;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    if (overlaps) {
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    CUlaunchConfig config = {};
    config.gridDimX = grid[0], config.gridDimY = grid[1], config.gridDimZ = grid[2];
    config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = (unsigned)shape.threads;
    config.sharedMemBytes = (unsigned)shape.dynamic_shared;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = shape.cluster > 1 || overlaps ? 1 : 0;
    return driver.cuLaunchKernelEx(&config, (CUfunction)kernel_, arguments, nullptr);
  }

 private:
  at_geometry described() const {
    at_geometry found = geometry();
    if (threads_) found.threads = (int32_t)threads_, found.cluster = 1, found.dynamic_shared = 0;
    return found;
  }

  int prepare(const Driver &driver) {
    CUdevice device;
    if (const int error = driver.cuCtxGetDevice(&device)) return error;
    if (device < 64 && (ready_ >> device & 1)) return 0;
    if (!kernel_) {
      CUlibrary library;
      if (const int error =
              driver.cuLibraryLoadData(&library, variant_cubin, nullptr, nullptr, 0, nullptr, nullptr, 0))
        return error;
      if (const int error = driver.cuLibraryGetKernel(&kernel_, library, name_)) return error;
    }
    const at_geometry shape = described();
    if (const int error = driver.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                      shape.dynamic_shared, kernel_, device))
      return error;
    if (shape.cluster > 8)
      if (const int error =
              driver.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, kernel_, device))
        return error;
    if (device < 64) ready_ |= 1ull << device;
    return 0;
  }

  const char *name_;
  unsigned threads_;
  CUkernel kernel_ = nullptr;
  unsigned long long ready_ = 0; /* a bit a device */
};

inline int status(int driver_error) { return driver_error ? AT_DEVICE_ERROR + driver_error : AT_OK; }

}  // namespace at

#endif
