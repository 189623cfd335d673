/* A launch as a function of Python, for who calls it again and again: through ctypes a call takes longer.
 * Of CPython only what is in its stable ABI since 3.10. Its symbols are weak, so that the library can be loaded where there
 * is no Python; then there is no such function. */
#ifndef AUTOTUNER_PYTHON_LAUNCH_H
#define AUTOTUNER_PYTHON_LAUNCH_H

#include "pystable.h"
#include "variant.h"

#define AT_WEAK __attribute__((weak))

extern "C" {
typedef PyObject *(*at_fast_function)(PyObject *, PyObject *const *, Py_ssize_t);
enum { METH_FASTCALL = 0x80 };

extern PyObject *PyExc_RuntimeError AT_WEAK;
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *) AT_WEAK;
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t) AT_WEAK;
char *PyBytes_AsString(PyObject *) AT_WEAK;
unsigned long long PyLong_AsUnsignedLongLong(PyObject *) AT_WEAK;
PyObject *PyBool_FromLong(long) AT_WEAK;
PyObject *PyErr_Format(PyObject *, const char *, ...) AT_WEAK;
PyObject *PyErr_Occurred(void) AT_WEAK;
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t) AT_WEAK;
void Py_DecRef(PyObject *) AT_WEAK;
PyThreadState *PyEval_SaveThread(void) AT_WEAK;
void PyEval_RestoreThread(PyThreadState *) AT_WEAK;
}

/* Of a launch that was prepared, the tensors' addresses, the last one that of the output, and a stream: a status. */
typedef int (*at_launch)(const void *prepared, void *const *addresses, void *stream);

/* (addresses, stream) -> whether the variant took them; RuntimeError where it broke the device. `prepared`: bytes. */
template <int TENSORS, at_launch LAUNCH>
PyObject *at_python_launch(PyObject *prepared, PyObject *const *given, Py_ssize_t count) {
  void *addresses[TENSORS];
  if (count != 2) return PyErr_Format(PyExc_RuntimeError, "expected addresses and a stream");
  for (int i = 0; i < TENSORS; i++) {
    PyObject *address = PyTuple_GetItem(given[0], i);
    if (!address) return nullptr;
    addresses[i] = (void *)PyLong_AsUnsignedLongLong(address);
  }
  void *stream = (void *)PyLong_AsUnsignedLongLong(given[1]);
  const char *bytes = PyBytes_AsString(prepared);
  if (PyErr_Occurred()) return nullptr;
  PyThreadState *state = PyEval_SaveThread();
  const int status = LAUNCH(bytes, addresses, stream);
  PyEval_RestoreThread(state);
  if (status >= AT_DEVICE_ERROR)
    return PyErr_Format(PyExc_RuntimeError, "a variant ended with the device's error %d", status - AT_DEVICE_ERROR);
  return PyBool_FromLong(status == AT_OK);
}

/* Such a function, which keeps a copy of what was prepared; null where there is no Python, or with a Python error. */
template <int TENSORS, at_launch LAUNCH>
PyObject *at_python_launcher(const void *prepared, Py_ssize_t size) {
  if (!PyCFunction_NewEx) return nullptr;
  static PyMethodDef method = {"launch", (PyCFunction)(void (*)(void))(at_fast_function)at_python_launch<TENSORS, LAUNCH>,
                               METH_FASTCALL, "Launches one forward at these addresses, on this stream."};
  PyObject *kept = PyBytes_FromStringAndSize((const char *)prepared, size);
  if (!kept) return nullptr;
  PyObject *made = PyCFunction_NewEx(&method, kept, nullptr);
  Py_DecRef(kept);
  return made;
}

#endif
