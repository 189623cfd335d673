/* Runs a script in the Python of the process, as a variant that answers with somebody else's result would. */
#ifndef AUTOTUNER_TESTS_CALL_PYTHON_H
#define AUTOTUNER_TESTS_CALL_PYTHON_H

#include <dlfcn.h>

/* True when the script ended without an exception. variant_run is called without the interpreter's lock. */
static inline bool run_python(const char *script) {
  const auto ensure = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  const auto release = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
  const auto run = (int (*)(const char *, void *))dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
  if (!ensure || !release || !run) return false;
  const int state = ensure();
  const int failed = run(script, nullptr);
  release(state);
  return !failed;
}

#endif
