/* The Python module around a variant: compiled once a toolchain, linked with every variant.
 *
 *   identity()                                   -> (abi_version, call_size, build_id, macros)
 *   workspace(dims, scalars)                     -> bytes of workspace that run() needs
 *   run(inputs, outputs, dims, scalars, workspace, workspace_bytes, stream)  -> status of variant_run
 *   prepare(inputs, outputs, dims, scalars, workspace, workspace_bytes)      -> a call that is checked once
 *   launch(call, stream)                                                     -> status of variant_run
 *   floats_changed()                             -> launches that left the float environment changed; it was changed back
 *
 * inputs, outputs: tuples of tensors, or of what has their data_ptr(), dtype, device, shape and stride(); dims, scalars:
 * tuples of numbers; workspace: an address. The module's name is given at link time:
 * -Wl,--defsym=PyInit_<name>=PyInit_variant. The interpreter's lock is released while the variant runs.
 *
 * Tensors must be as the build's signature says (tensors.h): a TypeError or a ValueError says what is not, and nothing
 * has been launched. */
#include "launch.h"
#include "tensors.h"

namespace {

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

at::Signature &signature() {
  static at::Signature found(variant_identity.signature);
  return found;
}

bool read_workspace(unsigned long long workspace, long long workspace_bytes, at_call *call) {
  if (workspace % 64) return PyErr_Format(PyExc_ValueError, "the workspace is not aligned to 64 bytes"), false;
  call->workspace = (void *)workspace;
  call->workspace_bytes = workspace_bytes;
  return true;
}

bool read_call(PyObject *inputs, PyObject *outputs, PyObject *dims, PyObject *scalars, unsigned long long workspace,
               long long workspace_bytes, at_call *call) {
  if (!read_dims(dims, call) || !read_scalars(scalars, call)) return false;
  return signature().read(inputs, outputs, call) && read_workspace(workspace, workspace_bytes, call);
}

/* How this thread rounds, whether subnormals are zeros to it, and whether the stack of x87 is empty, as every function
 * must leave it: a number is lost that finds no place there. Not what has happened to its numbers. */
#if defined(__x86_64__)
uint64_t float_controls() {
  uint16_t x87, top;
  __asm__ volatile("fnstcw %0\n\tfxam\n\tfnstsw %1" : "=m"(x87), "=m"(top));
  return uint64_t(top & 0x7d00) << 48 | uint64_t(x87) << 32 | (__builtin_ia32_stmxcsr() & 0xffc0u);
}

void set_float_controls(uint64_t controls) {
  const uint16_t x87 = uint16_t(controls >> 32);
  __asm__ volatile("emms\n\tfldcw %0" : : "m"(x87));
  __builtin_ia32_ldmxcsr(uint32_t(controls));
}
#elif defined(__aarch64__)
uint64_t float_controls() {
  uint64_t controls;
  __asm__ volatile("mrs %0, fpcr" : "=r"(controls));
  return controls;
}

void set_float_controls(uint64_t controls) { __asm__ volatile("msr fpcr, %0" : : "r"(controls)); }
#else
uint64_t float_controls() { return 0; }
void set_float_controls(uint64_t) {}
#endif

long long floats_changed = 0;

PyObject *launched(const at_call *call) {
  PyThreadState *state = PyEval_SaveThread();
  const uint64_t controls = float_controls();
  const int status = at_launch(&variant_identity, call);
  if (float_controls() != controls) {
    set_float_controls(controls);
    floats_changed += 1;
  }
  PyEval_RestoreThread(state);
  return PyLong_FromLongLong(status);
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
  if (!read_call(inputs, outputs, dims, scalars, workspace_address, workspace_bytes, &call)) return nullptr;
  call.stream = (void *)stream;
  return launched(&call);
}

/* A call that was checked, and the tensors, which live as long as it does. */
struct Prepared {
  at_call call;
  PyObject *inputs, *outputs;
};

constexpr char PREPARED[] = "autotuner.call";

void forget(PyObject *capsule) {
  Prepared *prepared = (Prepared *)PyCapsule_GetPointer(capsule, PREPARED);
  Py_DecRef(prepared->inputs);
  Py_DecRef(prepared->outputs);
  delete prepared;
}

PyObject *prepare(PyObject *, PyObject *arguments) {
  PyObject *inputs, *outputs, *dims, *scalars;
  unsigned long long workspace_address;
  long long workspace_bytes;
  at_call call = {};
  if (!PyArg_ParseTuple(arguments, "OOOOKL", &inputs, &outputs, &dims, &scalars, &workspace_address, &workspace_bytes))
    return nullptr;
  if (!read_call(inputs, outputs, dims, scalars, workspace_address, workspace_bytes, &call)) return nullptr;
  Py_IncRef(inputs);
  Py_IncRef(outputs);
  return PyCapsule_New(new Prepared{call, inputs, outputs}, PREPARED, forget);
}

PyObject *launch(PyObject *, PyObject *arguments) {
  PyObject *capsule;
  unsigned long long stream;
  if (!PyArg_ParseTuple(arguments, "OK", &capsule, &stream)) return nullptr;
  Prepared *prepared = (Prepared *)PyCapsule_GetPointer(capsule, PREPARED);
  if (!prepared) return nullptr;
  prepared->call.stream = (void *)stream;
  return launched(&prepared->call);
}

PyObject *changed_floats(PyObject *, PyObject *) { return PyLong_FromLongLong(floats_changed); }

PyMethodDef methods[] = {
    {"identity", identity, METH_NOARGS, "What the binary says it is: (abi_version, call_size, build_id, macros)."},
    {"workspace", workspace, METH_VARARGS, "Bytes of workspace for (dims, scalars)."},
    {"run", run, METH_VARARGS, "Runs the variant; returns its status."},
    {"prepare", prepare, METH_VARARGS, "Checks the tensors of a call, to be launched often."},
    {"launch", launch, METH_VARARGS, "Runs the variant on a prepared call; returns its status."},
    {"floats_changed", changed_floats, METH_NOARGS, "Launches that left the float environment changed."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {{{1, nullptr}, nullptr, 0, nullptr}, "variant", "A built variant.", -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) PyObject *PyInit_variant(void) {
  return PyModule_Create2(&module, PYTHON_API_VERSION_ABI3);
}
