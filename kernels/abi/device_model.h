/* What machine this is, asked of the system where there is no torch to ask. C++. */
#ifndef AUTOTUNER_DEVICE_MODEL_H
#define AUTOTUNER_DEVICE_MODEL_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Of CUdevice_attribute. */
enum { AT_CUDA_MULTIPROCESSORS = 16, AT_CUDA_MAJOR = 75, AT_CUDA_MINOR = 76 };

/* A function of the driver; null where there is none. */
static inline void *at_cuda_function(const char *name) {
  static void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver ? dlsym(driver, name) : nullptr;
}

/* An attribute of a device by CUDA's number for it; 0 where the driver does not say. */
static inline int at_cuda_attribute(int device, int which) {
  static const auto start = (int (*)(unsigned))at_cuda_function("cuInit");
  static const auto get = (int (*)(int *, int))at_cuda_function("cuDeviceGet");
  static const auto ask = (int (*)(int *, int, int))at_cuda_function("cuDeviceGetAttribute");
  int handle, found = 0;
  return start && get && ask && !start(0) && !get(&handle, device) && !ask(&found, which, handle) ? found : 0;
}

/* Makes the device's primary context, the one of CUDA's runtime, current in a thread that has none yet. */
static inline void at_cuda_enter(int device) {
  static const auto current = (int (*)(void **))at_cuda_function("cuCtxGetCurrent");
  static const auto get = (int (*)(int *, int))at_cuda_function("cuDeviceGet");
  static const auto retain = (int (*)(void **, int))at_cuda_function("cuDevicePrimaryCtxRetain");
  static const auto enter = (int (*)(void *))at_cuda_function("cuCtxSetCurrent");
  void *context = nullptr;
  int handle;
  if (!current || !get || !retain || !enter || (!current(&context) && context)) return;
  if (!get(&handle, device) && !retain(&context, handle)) enter(context);
}

/* Whether a GPU has this compute capability, 10 * major + minor, and this number of multiprocessors. */
static inline int at_cuda_is(int device, int sm, int multiprocessors) {
  return 10 * at_cuda_attribute(device, AT_CUDA_MAJOR) + at_cuda_attribute(device, AT_CUDA_MINOR) == sm &&
         at_cuda_attribute(device, AT_CUDA_MULTIPROCESSORS) == multiprocessors;
}

/* Whether the processor has all of these features, by Linux's names, each with a space on both sides. */
static inline int at_cpu_has(const char *const *features, int count) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (!file) return 0;
  static char line[1 << 14];
  int found = 0;
  while (!found && fgets(line, sizeof line, file)) found = !strncmp(line, "flags", 5) || !strncmp(line, "Features", 8);
  fclose(file);
  if (!found) return 0;
  line[strcspn(line, "\n")] = ' ';
  for (int i = 0; i < count; i++)
    if (!strstr(line, features[i])) return 0;
  return 1;
}

#endif
