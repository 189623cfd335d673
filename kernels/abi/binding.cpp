/* The Python module around a variant: compiled once a toolchain, linked with every variant.
 *
 *   identity()                                   -> (abi_version, call_size, build_id, macros)
 *   workspace(dims, scalars)                     -> bytes of workspace that run() needs
 *   run(inputs, outputs, dims, scalars, workspace, workspace_bytes, stream)  -> status of variant_run
 *
 * inputs, outputs: tuples of addresses (0: absent); dims, scalars: tuples of numbers. The module's name is given at
 * link time: -Wl,--defsym=PyInit_<name>=PyInit_variant. The interpreter's lock is released while the variant runs. */
#include "identity.h"
#include "pystable.h"

namespace {

/* Reads a tuple of at most `most` addresses; refuses those that are not aligned to 16 bytes. */
bool read_addresses(PyObject *tuple, void **to, int most, const char *what) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 0) return false;
  if (count > most) return PyErr_Format(PyExc_ValueError, "too many %s: at most %d", what, most), false;
  for (Py_ssize_t i = 0; i < count; i++) {
    const unsigned long long address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred()) return false;
    if (address % 16) return PyErr_Format(PyExc_ValueError, "%s[%d] is not aligned to 16 bytes", what, (int)i), false;
    to[i] = (void *)address;
  }
  return true;
}

bool read_dims(PyObject *tuple, at_call *call) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 0) return false;
  if (count > AT_MAX_DIM) return PyErr_Format(PyExc_ValueError, "too many dims: at most %d", AT_MAX_DIM), false;
  for (Py_ssize_t i = 0; i < count; i++) {
    call->dim[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred()) return false;
    if (call->dim[i] < 1) return PyErr_Format(PyExc_ValueError, "dims[%d] must be at least 1", (int)i), false;
  }
  return true;
}

bool read_scalars(PyObject *tuple, at_call *call) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 0) return false;
  if (count > AT_MAX_SCALAR) return PyErr_Format(PyExc_ValueError, "too many scalars: at most %d", AT_MAX_SCALAR), false;
  for (Py_ssize_t i = 0; i < count; i++) {
    call->scalar[i] = PyFloat_AsDouble(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred()) return false;
  }
  return true;
}

PyObject *identity(PyObject *, PyObject *) {
  return Py_BuildValue("(iiss)", variant_identity.abi_version, variant_identity.call_size, variant_identity.build_id,
                       variant_identity.macros);
}

PyObject *workspace(PyObject *, PyObject *arguments) {
  PyObject *dims, *scalars;
  at_call call = {};
  if (!PyArg_ParseTuple(arguments, "OO", &dims, &scalars)) return nullptr;
  if (!read_dims(dims, &call) || !read_scalars(scalars, &call)) return nullptr;
  return PyLong_FromLongLong(variant_identity.workspace(&call));
}

PyObject *run(PyObject *, PyObject *arguments) {
  PyObject *inputs, *outputs, *dims, *scalars;
  unsigned long long workspace_address, stream;
  long long workspace_bytes;
  at_call call = {};
  if (!PyArg_ParseTuple(arguments, "OOOOKLK", &inputs, &outputs, &dims, &scalars, &workspace_address, &workspace_bytes,
                        &stream))
    return nullptr;
  if (!read_addresses(inputs, const_cast<void **>(call.in), AT_MAX_IN, "inputs")) return nullptr;
  if (!read_addresses(outputs, call.out, AT_MAX_OUT, "outputs")) return nullptr;
  if (!read_dims(dims, &call) || !read_scalars(scalars, &call)) return nullptr;
  if (workspace_address % 64)
    return PyErr_Format(PyExc_ValueError, "the workspace is not aligned to 64 bytes");
  call.workspace = (void *)workspace_address;
  call.workspace_bytes = workspace_bytes;
  call.stream = (void *)stream;
  PyThreadState *state = PyEval_SaveThread();
  const int status = variant_identity.run(&call);
  PyEval_RestoreThread(state);
  return PyLong_FromLongLong(status);
}

PyMethodDef methods[] = {
    {"identity", identity, METH_NOARGS, "What the binary says it is: (abi_version, call_size, build_id, macros)."},
    {"workspace", workspace, METH_VARARGS, "Bytes of workspace for (dims, scalars)."},
    {"run", run, METH_VARARGS, "Runs the variant; returns its status."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {{{1, nullptr}, nullptr, 0, nullptr}, "variant", "A built variant.", -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) PyObject *PyInit_variant(void) {
  return PyModule_Create2(&module, PYTHON_API_VERSION_ABI3);
}
