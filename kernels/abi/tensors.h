/* What binding.cpp asks of the tensors that it is given, before anything is launched.
 *
 * A build's signature is lines of fields between tabs: `device`, its name; then for each tensor `in` or `out`, its name,
 * its element type, 1 where its strides are the caller's, and its sizes, `d3` for dim[3] of the call. It is empty for what
 * takes no tensors. */
#ifndef AUTOTUNER_TENSORS_H
#define AUTOTUNER_TENSORS_H

#include <stdlib.h>
#include <string.h>

#include "pystable.h"
#include "variant.h"

namespace at {

/* A reference of ours, given back at the end of its block. */
class Owned {
 public:
  explicit Owned(PyObject *object) : object_(object) {}
  Owned(const Owned &) = delete;
  ~Owned() {
    if (object_) Py_DecRef(object_);
  }
  PyObject *get() const { return object_; }
  explicit operator bool() const { return object_; }

 private:
  PyObject *object_;
};

/* The names of attributes, made once. */
struct Names {
  PyObject *data_ptr = PyUnicode_InternFromString("data_ptr"), *dtype = PyUnicode_InternFromString("dtype"),
           *device = PyUnicode_InternFromString("device"), *type = PyUnicode_InternFromString("type"),
           *shape = PyUnicode_InternFromString("shape"), *stride = PyUnicode_InternFromString("stride");

  static const Names &get() {
    static const Names names;
    return names;
  }
};

inline PyObject *called(PyObject *object, PyObject *name) {
  const Owned method(PyObject_GetAttr(object, name));
  return method ? PyObject_CallNoArgs(method.get()) : nullptr;
}

/* One line of the signature, and the checks of a tensor against it. */
class Expected {
 public:
  bool written = false;

  /* `line` ends at `end`. */
  Expected(const char *line, const char *end) {
    written = field(line, end, name_, sizeof name_)[0] == 'o';
    field(line, end, name_, sizeof name_);
    field(line, end, dtype_, sizeof dtype_);
    char text[64];
    strided_ = field(line, end, text, sizeof text)[0] == '1';
    field(line, end, text, sizeof text);
    for (char *rest, *size = strtok_r(text, " ", &rest); size && rank_ < AT_MAX_RANK; size = strtok_r(nullptr, " ", &rest)) {
      is_dim_[rank_] = size[0] == 'd';
      size_[rank_] = atoll(is_dim_[rank_] ? size + 1 : size);
      rank_++;
    }
    item_ = strstr(dtype_, "float8") ? 1 : strstr(dtype_, "16") ? 2 : 4;
    align_ = strstr(dtype_, "int") ? item_ : 16;
  }

  /* Address and strides of the tensor; false, with a Python error, where it is not as it must be. `device`: its kind. */
  bool read(PyObject *tensor, const char *device, PyObject *beside, const at_call *call, void **address,
            int64_t *stride) {
    return check_dtype(tensor) && check_device(tensor, device, beside) && check_sizes(tensor, call, stride) &&
           read_address(tensor, address);
  }

 private:
  /* Copies what stands before the next tab, and goes on behind it. */
  static char *field(const char *&from, const char *end, char *to, size_t room) {
    size_t count = 0;
    for (; from < end && *from != '\t'; from++)
      if (count + 1 < room) to[count++] = *from;
    if (from < end) from++;
    to[count] = 0;
    return to;
  }

  bool check_dtype(PyObject *tensor) {
    const Owned found(PyObject_GetAttr(tensor, Names::get().dtype));
    if (!found) return false;
    if (found.get() == accepted_) return true; /* an element type is one object */
    const Owned text(PyObject_Str(found.get()));
    if (!text) return false;
    char full[sizeof dtype_ + 8];
    strcat(strcpy(full, "torch."), dtype_);
    if (PyUnicode_CompareWithASCIIString(text.get(), full) && PyUnicode_CompareWithASCIIString(text.get(), dtype_))
      return PyErr_Format(PyExc_TypeError, "%s is %S, expected %s", name_, found.get(), dtype_), false;
    Py_IncRef(accepted_ = found.get());
    return true;
  }

  bool check_device(PyObject *tensor, const char *device, PyObject *beside) const {
    const Names &names = Names::get();
    const Owned found(PyObject_GetAttr(tensor, names.device));
    const Owned type(found ? PyObject_GetAttr(found.get(), names.type) : nullptr);
    if (!type) return false;
    if (PyUnicode_CompareWithASCIIString(type.get(), device))
      return PyErr_Format(PyExc_TypeError, "%s is on %S, expected %s", name_, found.get(), device), false;
    if (tensor == beside) return true;
    const Owned first(PyObject_GetAttr(beside, names.device));
    const int same = first ? PyObject_RichCompareBool(found.get(), first.get(), Py_EQ) : -1;
    if (same == 0)
      PyErr_Format(PyExc_ValueError, "%s is on %S, other tensors on %S", name_, found.get(), first.get());
    return same == 1;
  }

  bool check_sizes(PyObject *tensor, const at_call *call, int64_t *stride) const {
    const Owned shape(PyObject_GetAttr(tensor, Names::get().shape)), strides(called(tensor, Names::get().stride));
    if (!shape || !strides) return false;
    int64_t size[AT_MAX_RANK];
    bool fits = PyTuple_Size(shape.get()) == rank_ && PyTuple_Size(strides.get()) == rank_;
    for (int i = 0; fits && i < rank_; i++) {
      size[i] = PyLong_AsLongLong(PyTuple_GetItem(shape.get(), i));
      stride[i] = PyLong_AsLongLong(PyTuple_GetItem(strides.get(), i));
      fits = size[i] == (is_dim_[i] ? call->dim[size_[i]] : size_[i]);
    }
    if (PyErr_Occurred()) return false;
    if (!fits) return refuse_shape(shape.get(), call);
    if (strided_ ? !any_stride(size, stride) : !dense(size, stride))
      return PyErr_Format(PyExc_ValueError, "%s has strides %S, expected %s", name_, strides.get(), wanted()), false;
    return true;
  }

  const char *wanted() const {
    if (!strided_) return "those of a contiguous tensor";
    if (!written) return "dense rows and otherwise multiples of 16 bytes";
    return "dense rows, otherwise multiples of 16 bytes, and no two elements in one place";
  }

  bool refuse_shape(PyObject *shape, const at_call *call) const {
    char text[96] = "", one[24];
    for (int i = 0; i < rank_; i++) {
      long long size = is_dim_[i] ? call->dim[size_[i]] : size_[i];
      char *end = one + sizeof one - 1;
      for (*end = 0; end == one + sizeof one - 1 || size; size /= 10) *--end = (char)('0' + size % 10);
      strcat(strcat(text, i ? ", " : ""), end);
    }
    return PyErr_Format(PyExc_ValueError, "%s has shape %S, expected (%s)", name_, shape, text), false;
  }

  bool dense(const int64_t *size, int64_t *stride) const {
    int64_t due = 1;
    for (int i = rank_ - 1; i >= 0; due *= size[i--]) {
      if (size[i] > 1 && stride[i] != due) return false;
      stride[i] = due;
    }
    return true;
  }

  bool any_stride(const int64_t *size, int64_t *stride) const {
    for (int i = 0; i < rank_; i++) {
      if (size[i] == 1 && i + 1 < rank_) stride[i] = 0; /* whatever it was, nothing lies there */
      if (i + 1 == rank_ ? stride[i] != 1 && size[i] > 1 : stride[i] < 0 || stride[i] * item_ % 16) return false;
    }
    stride[rank_ - 1] = 1;
    return !written || apart(size, stride);
  }

  /* Whether no two elements share a place: each stride, from the smallest on, leads past all that lies within. */
  bool apart(const int64_t *size, const int64_t *stride) const {
    int64_t within = 1;
    bool done[AT_MAX_RANK] = {};
    for (int turn = 0; turn < rank_; turn++) {
      int least = -1;
      for (int i = 0; i < rank_; i++)
        if (!done[i] && size[i] > 1 && (least < 0 || stride[i] < stride[least])) least = i;
      if (least < 0) return true;
      if (stride[least] < within) return false;
      within += (size[least] - 1) * stride[least];
      done[least] = true;
    }
    return true;
  }

  bool read_address(PyObject *tensor, void **address) const {
    const Owned found(called(tensor, Names::get().data_ptr));
    if (!found) return false;
    const unsigned long long value = PyLong_AsUnsignedLongLong(found.get());
    if (PyErr_Occurred()) return false;
    *address = (void *)value;
    if (value && value % align_ == 0) return true;
    return PyErr_Format(PyExc_ValueError, "%s is not aligned to %d bytes", name_, align_), false;
  }

  char name_[32], dtype_[16];
  bool strided_ = false, is_dim_[AT_MAX_RANK] = {};
  int rank_ = 0, item_, align_;
  int64_t size_[AT_MAX_RANK] = {};
  PyObject *accepted_ = nullptr; /* the element type that was last found right */
};

/* All lines of a signature. */
class Signature {
 public:
  explicit Signature(const char *text) {
    for (const char *end; (end = strchr(text, '\n')); text = end + 1)
      if (!strncmp(text, "device\t", 7))
        memcpy(device_, text + 7, (size_t)(end - text - 7) < sizeof device_ ? (size_t)(end - text - 7) : 0);
      else if (text[0] == 'i' && ins_ < AT_MAX_IN)
        in_[ins_++] = new Expected(text, end);
      else if (text[0] == 'o' && outs_ < AT_MAX_OUT)
        out_[outs_++] = new Expected(text, end);
  }

  /* Addresses and strides of all tensors into the call, whose dims are set; false with a Python error. */
  bool read(PyObject *inputs, PyObject *outputs, at_call *call) {
    const Py_ssize_t ins = PyTuple_Size(inputs), outs = PyTuple_Size(outputs);
    if (ins < 0 || outs < 0) return false;
    if (ins != ins_) return PyErr_Format(PyExc_ValueError, "found %d inputs, expected %d", (int)ins, ins_), false;
    if (outs != outs_) return PyErr_Format(PyExc_ValueError, "found %d outputs, expected %d", (int)outs, outs_), false;
    PyObject *first = ins ? PyTuple_GetItem(inputs, 0) : nullptr;
    for (int i = 0; i < ins_; i++)
      if (!in_[i]->read(PyTuple_GetItem(inputs, i), device_, first, call, const_cast<void **>(&call->in[i]),
                        call->in_stride[i]))
        return false;
    for (int i = 0; i < outs_; i++)
      if (!out_[i]->read(PyTuple_GetItem(outputs, i), device_, first, call, &call->out[i], call->out_stride[i]))
        return false;
    return true;
  }

 private:
  char device_[16] = {};
  int ins_ = 0, outs_ = 0;
  Expected *in_[AT_MAX_IN], *out_[AT_MAX_OUT];
};

}  // namespace at

#endif
