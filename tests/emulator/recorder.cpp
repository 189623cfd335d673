// A libcuda that computes nothing: it notes the tensor maps that a host side encodes and the words of a kernel's argument.
#include <cuda.h>
#include <string.h>

#include <string>

namespace {

std::string text;

template <class T>
void note(const char *name, const T *numbers, unsigned count) {
  text += name;
  for (unsigned i = 0; i < count; i++) text += " " + std::to_string((unsigned long long)numbers[i]);
  text += "\n";
}

int from = 0, words = 0;

}  // namespace

extern "C" {

// Of the argument of each launch `count` 32-bit words from byte `first` on are noted.
void record_words(int first, int count) { from = first, words = count; }

// What was noted since this was asked last; lines of a name and numbers.
const char *recorded() {
  static std::string told;
  told.swap(text);
  text.clear();
  return told.c_str();
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t rank, void *base, const cuuint64_t *sizes,
                                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  const unsigned long long address = (unsigned long long)base;
  note("base", &address, 1);
  note("sizes", sizes, rank);
  note("strides", strides, rank - 1);
  note("box", box, rank);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction, void **arguments, void **) {
  note("blocks", &config->gridDimX, 1);
  std::string copy((const char *)arguments[0] + from, (size_t)words * 4);
  for (int i = 0; i < words; i++) {
    unsigned word;
    memcpy(&word, copy.data() + 4 * i, 4);
    note("word", &word, 1);
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice) {
  *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 : 50 << 20;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *, void **,
                           unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *, CUlibrary, const char *) { return CUDA_SUCCESS; }
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuStreamQuery(CUstream) { return CUDA_SUCCESS; }

}  // extern "C"
