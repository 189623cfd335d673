/* The few declarations of Python's stable ABI (limited API 3.11) that binding.cpp, python_launch.h and python_function.cpp use, so that
 * building a variant needs no Python headers: a system's python3 often comes without them. The stable ABI promises that
 * these do not change: https://docs.python.org/3/c-api/stable.html */
#ifndef AUTOTUNER_PYSTABLE_H
#define AUTOTUNER_PYSTABLE_H

#include <stddef.h>

extern "C" {
typedef ptrdiff_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct _ts PyThreadState;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);

struct PyObjectHead {
  Py_ssize_t refcount;
  void *type;
};
struct PyModuleDef_Base {
  PyObjectHead head;
  PyObject *(*init)(void);
  Py_ssize_t index;
  PyObject *copy;
};
struct PyMethodDef {
  const char *name;
  PyCFunction function;
  int flags;
  const char *doc;
};
struct PyModuleDef {
  PyModuleDef_Base base;
  const char *name;
  const char *doc;
  Py_ssize_t size;
  PyMethodDef *methods;
  void *slots, *traverse, *clear, *free;
};

typedef void (*PyCapsule_Destructor)(PyObject *);

typedef PyObject *(*PyCFunctionFast)(PyObject *, PyObject *const *, Py_ssize_t);

enum { METH_VARARGS = 1, METH_NOARGS = 4, METH_FASTCALL = 0x80, PYTHON_API_VERSION_ABI3 = 3, Py_EQ = 2 };

extern PyObject *PyExc_ValueError, *PyExc_TypeError, *PyExc_RuntimeError;
PyObject *PyModule_Create2(PyModuleDef *, int);
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
PyObject *PyErr_Format(PyObject *, const char *, ...);
PyObject *PyErr_Occurred(void);
int PyArg_ParseTuple(PyObject *, const char *, ...);
PyObject *Py_BuildValue(const char *, ...);
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
long long PyLong_AsLongLong(PyObject *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyBool_FromLong(long);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
char *PyBytes_AsString(PyObject *);
double PyFloat_AsDouble(PyObject *);
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
PyObject *PyObject_GetAttr(PyObject *, PyObject *);
PyObject *PyObject_CallNoArgs(PyObject *);
PyObject *PyObject_Str(PyObject *);
int PyObject_RichCompareBool(PyObject *, PyObject *, int);
PyObject *PyUnicode_InternFromString(const char *);
int PyUnicode_CompareWithASCIIString(PyObject *, const char *);
PyObject *PyCapsule_New(void *, const char *, PyCapsule_Destructor);
void *PyCapsule_GetPointer(PyObject *, const char *);
PyObject *PyImport_ImportModule(const char *);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
PyObject *PyObject_CallFunction(PyObject *, const char *, ...);
void PyErr_Print(void);
int PyGILState_Ensure(void);
void PyGILState_Release(int);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);
}
#endif
