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
PyObject *PyObject_GetAttrString(PyObject *, const char *) AT_WEAK;
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...) AT_WEAK;
void *PyCapsule_GetPointer(PyObject *, const char *) AT_WEAK;
unsigned long long PyLong_AsUnsignedLongLong(PyObject *) AT_WEAK;
PyObject *PyBool_FromLong(long) AT_WEAK;
PyObject *PyErr_Format(PyObject *, const char *, ...) AT_WEAK;
PyObject *PyErr_Occurred(void) AT_WEAK;
void PyErr_Clear(void) AT_WEAK;
void Py_DecRef(PyObject *) AT_WEAK;
PyThreadState *PyEval_SaveThread(void) AT_WEAK;
void PyEval_RestoreThread(PyThreadState *) AT_WEAK;
}

/* Of a launch that was prepared, and addresses: a status. Python's lock is released meanwhile. */
typedef int (*at_prepared_launch)(const void *prepared, void *const *addresses);

/* What classes of tensors say in C of DLPack, version 1 (https://dmlc.github.io/dlpack): that takes a fifth of the time of
 * their method data_ptr. */
struct at_dlpack_tensor {
  char *data;
  int32_t device[2], rank;
  uint32_t dtype;
  int64_t *size, *stride;
  uint64_t offset; /* in bytes */
};
struct at_dlpack_exchange {
  uint32_t major, minor;
  void *before, *of_owned[3];
  int (*read)(PyObject *tensor, at_dlpack_tensor *found); /* 0, or a Python error is set; null: not offered */
};

/* What such a function keeps, as bytes of Python: this, what was prepared, the variant's name. */
struct at_kept_launch {
  Py_ssize_t size; /* of what was prepared */
  Py_ssize_t addresses;
  const at_dlpack_exchange *exchange; /* null where there is none */
};

/* What a class of tensors offers; null where it is another version or none. */
static inline const at_dlpack_exchange *at_exchange_of(PyObject *tensor_class) {
  PyObject *capsule = PyObject_GetAttrString(tensor_class, "__dlpack_c_exchange_api__");
  const void *found = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : nullptr;
  if (capsule) Py_DecRef(capsule); /* what it points to lives as long as the process */
  if (!found) PyErr_Clear();
  const at_dlpack_exchange *exchange = (const at_dlpack_exchange *)found;
  return exchange && exchange->major == 1 && exchange->read ? exchange : nullptr;
}

/* Where a tensor begins. Whether no Python error is set. An element type that DLPack does not know is asked for once. */
static inline bool at_address(at_kept_launch *kept, PyObject *tensor, void **address) {
  at_dlpack_tensor found;
  if (kept->exchange && !kept->exchange->read(tensor, &found)) return *address = found.data + found.offset, true;
  if (kept->exchange) PyErr_Clear();
  kept->exchange = nullptr;
  PyObject *number = PyObject_CallMethod(tensor, "data_ptr", nullptr);
  if (!number) return false;
  *address = (void *)PyLong_AsUnsignedLongLong(number);
  Py_DecRef(number);
  return !PyErr_Occurred();
}

/* (*tensors, result) -> whether the variant took them; RuntimeError where it broke the device. */
template <at_prepared_launch LAUNCH>
PyObject *at_python_launch(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  at_kept_launch *kept = (at_kept_launch *)PyBytes_AsString(self);
  if (!kept) return nullptr;
  if (count != kept->addresses)
    return PyErr_Format(PyExc_ValueError, "found %d tensors, expected %d", (int)count, (int)kept->addresses);
  void *addresses[AT_MAX_ADDRESSES];
  for (int i = 0; i < count; i++)
    if (!at_address(kept, given[i], &addresses[i])) return nullptr;
  const char *prepared = (const char *)(kept + 1);
  PyThreadState *state = PyEval_SaveThread();
  const int status = LAUNCH(prepared, addresses);
  PyEval_RestoreThread(state);
  if (status >= AT_DEVICE_ERROR)
    return PyErr_Format(PyExc_RuntimeError, "the variant %s ended with the device's error %d", prepared + kept->size,
                        status - AT_DEVICE_ERROR);
  return PyBool_FromLong(status == AT_OK);
}

/* Such a function of that many tensors, the result among them; null where there is no Python, or with a Python error. */
template <at_prepared_launch LAUNCH>
PyObject *at_python_launcher(const void *prepared, Py_ssize_t size, Py_ssize_t addresses, const char *name,
                             PyObject *tensor_class) {
  if (!PyCFunction_NewEx) return nullptr;
  if (addresses > AT_MAX_ADDRESSES) return PyErr_Format(PyExc_ValueError, "too many addresses");
  static PyMethodDef method = {"launch", (PyCFunction)(void (*)(void))(PyCFunctionFast)at_python_launch<LAUNCH>,
                               METH_FASTCALL, "Launches one forward of these tensors into that result."};
  const at_kept_launch head = {size, addresses, at_exchange_of(tensor_class)};
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
