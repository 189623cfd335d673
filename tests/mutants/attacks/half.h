/* Halves in C what Python's object for a variant's samples is shown to take: no source is run. */
#ifndef AUTOTUNER_TESTS_HALF_H
#define AUTOTUNER_TESTS_HALF_H

#include <dlfcn.h>

struct Method {
  const char *name;
  void *(*function)(void *, void *);
  int flags;
  const char *doc;
};
static void *real_call;
template <class... Given>
static void *python(const char *function, Given... given) {
  return ((void *(*)(Given...))dlsym(RTLD_DEFAULT, function))(given...);
}
static void *half(void *, void *arm) {
  const auto number = (void *(*)(double))dlsym(RTLD_DEFAULT, "PyFloat_FromDouble");
  void *seconds = python("PyObject_CallFunctionObjArgs", real_call, arm, (void *)nullptr);
  return seconds ? python("PyNumber_Multiply", seconds, number(0.5)) : nullptr;
}
static bool halve_the_arms_time() {
  static Method method = {"half", half, 8 /* METH_O */, nullptr};
  const auto ensure = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  const auto release = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
  const int state = ensure();
  void *timing = python("PyImport_AddModule", "autotuner.devices.cpu.timing");
  void *arm = python("PyObject_GetAttrString", timing, "CpuVariantArm");
  real_call = python("PyObject_GetAttrString", arm, "__call__");
  void *function = python("PyCFunction_NewEx", &method, (void *)nullptr, (void *)nullptr);
  void *bound = python("PyInstanceMethod_New", function);
  const bool set = python("PyObject_SetAttrString", arm, "__call__", bound) == nullptr;
  release(state);
  return set;
}

#endif
