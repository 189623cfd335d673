/* What a CUDA variant says it is, in the words of identity.h, and what a host side asks of the driver (cuda_host.h): an
 * object of its own, compiled once and linked with every variant. */
#include "cuda_host.h"

#include <dlfcn.h>
#include <elf.h>
#include <time.h>

extern "C" const unsigned char variant_cubin[], variant_cubin_end[];

namespace {

/* The bytes that a symbol of the cubin stands for; null when there is none with that beginning of so many letters. */
const void *cubin_symbol(const char *wanted, size_t letters) {
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

const char *cubin_text(const char *name) {
  const char *text = (const char *)cubin_symbol(name, strlen(name));
  return text ? text : "";
}

/* The functions of libcuda that are called, by their names there. */
struct Driver {
  decltype(&::cuLibraryLoadData) cuLibraryLoadData;
  decltype(&::cuLibraryGetKernel) cuLibraryGetKernel;
  decltype(&::cuKernelSetAttribute) cuKernelSetAttribute;
  decltype(&::cuCtxGetDevice) cuCtxGetDevice;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute;
  decltype(&::cuLaunchKernelEx) cuLaunchKernelEx;
  decltype(&::cuTensorMapEncodeTiled) cuTensorMapEncodeTiled;
  bool found;
};

Driver loaded() {
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
  AT_FIND(cuTensorMapEncodeTiled); /* absent from drivers without bulk tensor copies */
#undef AT_FIND
  driver.found = driver.cuLibraryLoadData && driver.cuLibraryGetKernel && driver.cuKernelSetAttribute &&
                 driver.cuCtxGetDevice && driver.cuDeviceGetAttribute && driver.cuLaunchKernelEx;
  return driver;
}

const Driver &driver() {
  static const Driver found = loaded();
  return found;
}

/* Kernels that were launched. What there are more of is looked up again each time: no host side can tell the difference. */
struct Known {
  char name[52];
  unsigned threads; /* as at_cuda_launch has them */
  CUkernel kernel;
  unsigned long long ready; /* a bit a device */
} known[4];

Known *place_of(const char *name, unsigned threads, Known *other) {
  for (Known &each : known) {
    if (each.kernel && each.threads == threads && !strcmp(each.name, name)) return &each;
    if (!each.kernel && strlen(name) < sizeof each.name) {
      strcpy(each.name, name);
      each.threads = threads;
      return &each;
    }
  }
  return other;
}

int kernel_called(const char *name, CUkernel *kernel) {
  static CUlibrary library;
  if (!library)
    if (const int error =
            driver().cuLibraryLoadData(&library, variant_cubin, nullptr, nullptr, 0, nullptr, nullptr, 0))
      return error;
  return driver().cuLibraryGetKernel(kernel, library, name);
}

int prepare(Known *place, const char *name, const at_geometry &shape) {
  CUdevice device;
  if (const int error = at_cuda_device(&device)) return error;
  if (device < 64 && (place->ready >> device & 1)) return 0;
  if (!place->kernel)
    if (const int error = kernel_called(name, &place->kernel)) return error;
  const auto set = [&](CUfunction_attribute which, int value) {
    return driver().cuKernelSetAttribute(which, value, place->kernel, device);
  };
  if (shape.dynamic_shared) /* of one kernel that is launched in two ways it is what the larger needs */
    if (const int error = set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shape.dynamic_shared)) return error;
  if (shape.cluster > 8)
    if (const int error = set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)) return error;
  if (device < 64) place->ready |= 1ull << device;
  return 0;
}

/* Another one in each process: no number tells how many launches there were before. */
uint32_t first_number() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint32_t)now.tv_nsec * 2654435761u ^ (uint32_t)(uintptr_t)&now;
}

}  // namespace

extern "C" {

const at_identity variant_identity = {at::geometry().abi_version, (int32_t)sizeof(at_call),
                                      cubin_text("at_build_id"), cubin_text("at_macros"),
                                      cubin_text("at_signature"), variant_workspace, variant_run};

const at_geometry *at_cuda_geometry() {
  static const at_geometry none = {};
  static const void *found = cubin_symbol("variant_geometry", sizeof "variant_geometry");
  return found ? (const at_geometry *)found : &none;
}

uint32_t at_cuda_launch_number() {
  static uint32_t number = first_number();
  number = number * 1664525u + 1013904223u;
  return number ? number : at_cuda_launch_number();
}

int at_cuda_device(CUdevice *device) {
  return driver().found ? driver().cuCtxGetDevice(device) : CUDA_ERROR_NO_DEVICE;
}

int at_cuda_attribute(int *value, CUdevice_attribute which) {
  CUdevice device;
  if (const int error = at_cuda_device(&device)) return error;
  return driver().cuDeviceGetAttribute(value, which, device);
}

int at_cuda_launch(const char *name, unsigned threads, const unsigned *grid, void **arguments, CUstream stream,
                   int overlaps) {
  if (!driver().found) return CUDA_ERROR_NO_DEVICE;
  at_geometry shape = at::geometry();
  if (threads) shape.threads = (int32_t)threads, shape.cluster = 1, shape.dynamic_shared = 0;
  Known other = {}, *const place = place_of(name, threads, &other);
  if (const int error = prepare(place, name, shape)) return error;
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
  return driver().cuLaunchKernelEx(&config, (CUfunction)place->kernel, arguments, nullptr);
}

int at_cuda_tensor_map(CUtensorMap *map, CUtensorMapDataType type, unsigned dimensions, const void *base,
                       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
  if (!driver().found) return CUDA_ERROR_NO_DEVICE;
  if (!driver().cuTensorMapEncodeTiled) return CUDA_ERROR_NOT_SUPPORTED;
  const cuuint32_t each[5] = {1, 1, 1, 1, 1};
  return driver().cuTensorMapEncodeTiled(map, type, dimensions, const_cast<void *>(base), sizes, strides, box, each,
                                         CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
}
