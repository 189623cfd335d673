/* A variant that is a function of Python: hands the call to autotuner/devices/python_function.py, which makes tensors of
 * it and calls the function. AT_FUNCTION says which one, with which parameters; the build defines it. The process is one
 * of Python's: what it takes of Python is the stable ABI. */
#include "variant.h"
#include "pystable.h"

namespace {

constexpr int RAISED = 4; /* forge/loaded_variant.py */

/* The caller of this function, made at the first launch; null where that failed. */
PyObject *caller() {
  static PyObject *made = nullptr;
  if (made) return made;
  PyObject *module = PyImport_ImportModule("autotuner.devices.python_function");
  if (module) made = PyObject_CallMethod(module, "caller", "s", AT_FUNCTION);
  return made;
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  const int held = PyGILState_Ensure();
  PyObject *function = caller();
  PyObject *status = function ? PyObject_CallFunction(function, "K", (unsigned long long)call) : nullptr;
  const int found = status ? (int)PyLong_AsLongLong(status) : RAISED;
  if (status) Py_DecRef(status);
  if (PyErr_Occurred()) PyErr_Print();
  PyGILState_Release(held);
  return found;
}
