/* A launch as a function of Python, for who calls it again and again: what can be known before is read once.
 *
 * Its symbols are weak: a library of a package can be loaded where there is no Python, and then there is no such
 * function. */
#ifndef AUTOTUNER_PYTHON_LAUNCH_H
#define AUTOTUNER_PYTHON_LAUNCH_H

#include <string.h>

#include "pystable.h"
#include "variant.h"

#define AT_WEAK __attribute__((weak))
#define AT_MAX_ADDRESSES (AT_MAX_IN + AT_MAX_OUT + 1)

extern "C" {
extern PyObject *PyExc_ValueError AT_WEAK;
extern PyObject *PyExc_RuntimeError AT_WEAK;
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *) AT_WEAK;
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t) AT_WEAK;
char *PyBytes_AsString(PyObject *) AT_WEAK;
unsigned long long PyLong_AsUnsignedLongLong(PyObject *) AT_WEAK;
PyObject *PyBool_FromLong(long) AT_WEAK;
PyObject *PyErr_Format(PyObject *, const char *, ...) AT_WEAK;
PyObject *PyErr_Occurred(void) AT_WEAK;
Py_ssize_t PyTuple_Size(PyObject *) AT_WEAK;
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t) AT_WEAK;
void Py_DecRef(PyObject *) AT_WEAK;
PyThreadState *PyEval_SaveThread(void) AT_WEAK;
void PyEval_RestoreThread(PyThreadState *) AT_WEAK;
}

/* Of a launch that was prepared, addresses and a stream: a status. Python's lock is released meanwhile. */
typedef int (*at_prepared_launch)(const void *prepared, void *const *addresses, void *stream);

/* What such a function keeps, as bytes of Python: this, what was prepared, the variant's name. */
struct at_kept_launch {
  Py_ssize_t size; /* of what was prepared */
  Py_ssize_t addresses;
};

/* (addresses, stream) -> whether the variant took them; RuntimeError where it broke the device. */
template <at_prepared_launch LAUNCH>
PyObject *at_python_launch(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  const at_kept_launch *kept = (const at_kept_launch *)PyBytes_AsString(self);
  if (!kept) return nullptr;
  if (count != 2) return PyErr_Format(PyExc_ValueError, "expected addresses and a stream");
  const Py_ssize_t found = PyTuple_Size(given[0]);
  if (found < 0) return nullptr;
  if (found != kept->addresses)
    return PyErr_Format(PyExc_ValueError, "found %d addresses, expected %d", (int)found, (int)kept->addresses);
  void *addresses[AT_MAX_ADDRESSES];
  for (int i = 0; i < found; i++) addresses[i] = (void *)PyLong_AsUnsignedLongLong(PyTuple_GetItem(given[0], i));
  void *stream = (void *)PyLong_AsUnsignedLongLong(given[1]);
  if (PyErr_Occurred()) return nullptr;
  const char *prepared = (const char *)(kept + 1);
  PyThreadState *state = PyEval_SaveThread();
  const int status = LAUNCH(prepared, addresses, stream);
  PyEval_RestoreThread(state);
  if (status >= AT_DEVICE_ERROR)
    return PyErr_Format(PyExc_RuntimeError, "the variant %s ended with the device's error %d", prepared + kept->size,
                        status - AT_DEVICE_ERROR);
  return PyBool_FromLong(status == AT_OK);
}

/* Such a function of that many addresses; null where there is no Python, or with a Python error. */
template <at_prepared_launch LAUNCH>
PyObject *at_python_launcher(const void *prepared, Py_ssize_t size, Py_ssize_t addresses, const char *name) {
  if (!PyCFunction_NewEx) return nullptr;
  if (addresses > AT_MAX_ADDRESSES) return PyErr_Format(PyExc_ValueError, "too many addresses");
  static PyMethodDef method = {"launch", (PyCFunction)(void (*)(void))(PyCFunctionFast)at_python_launch<LAUNCH>,
                               METH_FASTCALL, "Launches one forward at these addresses, on this stream."};
  const at_kept_launch head = {size, addresses};
  const size_t named = strlen(name) + 1;
  PyObject *kept = PyBytes_FromStringAndSize(nullptr, (Py_ssize_t)(sizeof head + size + named));
  if (!kept) return nullptr;
  char *to = PyBytes_AsString(kept);
  memcpy(to, &head, sizeof head);
  memcpy(to + sizeof head, prepared, (size_t)size);
  memcpy(to + sizeof head + size, name, named);
  PyObject *made = PyCFunction_NewEx(&method, kept, nullptr);
  Py_DecRef(kept);
  return made;
}

#endif
