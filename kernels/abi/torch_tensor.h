/* torch's tensors by the C functions of LibTorch's stable ABI. */
#ifndef AUTOTUNER_TORCH_TENSOR_H
#define AUTOTUNER_TORCH_TENSOR_H

#include <torch/csrc/stable/c/shim.h>

#include <string.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace at_torch {

constexpr int MOST_RANK = 64;

inline void check(AOTITorchError error, const char *what) {
  if (error) throw std::runtime_error(std::string("torch failed in ") + what);
}

// The sizes or strides of a tensor, for as long as that lives.
struct Dims {
  const int64_t *at;
  int64_t rank;

  int64_t operator[](int64_t i) const { return at[i]; }
  bool operator==(const Dims &other) const { return rank == other.rank && std::equal(at, at + rank, other.at); }
};

// A tensor of torch's, which it gives back.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(Tensor &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor(const Tensor &) = delete;
  Tensor &operator=(Tensor &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_) aoti_torch_delete_tensor_object(handle_);
  }

  static Tensor empty(const Dims &size, const int64_t *stride, int32_t dtype, int32_t kind, int32_t index) {
    AtenTensorHandle made;
    check(aoti_torch_empty_strided(size.rank, size.at, stride, dtype, kind, index, &made), "empty");
    return Tensor(made);
  }

  // For a function that takes what it is given.
  StableIValue given() const {
    AtenTensorHandle made;
    check(aoti_torch_new_tensor_handle(handle_, &made), "new_tensor_handle");
    return (StableIValue)made;
  }
  StableIValue give() { return (StableIValue)std::exchange(handle_, nullptr); }
  explicit operator bool() const { return handle_; }

  int32_t kind() const { return number(aoti_torch_get_device_type); }
  int32_t index() const { return number(aoti_torch_get_device_index); }
  int32_t dtype() const { return number(aoti_torch_get_dtype); }
  Dims sizes() const { return list(aoti_torch_get_sizes); }
  Dims strides() const { return list(aoti_torch_get_strides); }
  bool contiguous() const {
    bool found;
    check(aoti_torch_is_contiguous(handle_, &found), "is_contiguous");
    return found;
  }
  char *data() const {
    void *found;
    check(aoti_torch_get_data_ptr(handle_, &found), "data_ptr");
    return (char *)found;
  }
  int64_t offset() const {
    int64_t found;
    check(aoti_torch_get_storage_offset(handle_, &found), "storage_offset");
    return found;
  }

 private:
  int32_t number(AOTITorchError (*get)(AtenTensorHandle, int32_t *)) const {
    int32_t found;
    check(get(handle_, &found), "a tensor's fields");
    return found;
  }
  Dims list(AOTITorchError (*get)(AtenTensorHandle, int64_t **)) const {
    int64_t *found, rank;
    check(aoti_torch_get_dim(handle_, &rank), "dim");
    check(get(handle_, &found), "a tensor's sizes");
    return {found, rank};
  }

  AtenTensorHandle handle_ = nullptr;
};

// What a stack holds where the schema says that there may be none; torch takes it.
inline StableIValue optional(StableIValue value) { return (StableIValue) new StableIValue(value); }
inline StableIValue optional(const Tensor &tensor) { return tensor ? optional(tensor.given()) : 0; }

inline StableIValue number(double value) {
  StableIValue made;
  static_assert(sizeof made == sizeof value);
  memcpy(&made, &value, sizeof made);
  return made;
}

inline Tensor called(const char *op, StableIValue *stack) {
  check(torch_call_dispatcher(op, "", stack, TORCH_ABI_VERSION), op);
  return Tensor((AtenTensorHandle)stack[0]);
}

// Whether the elements fill their memory, in whichever order of the dimensions.
inline bool fills_its_memory(const Dims &size, const Dims &stride) {
  int64_t due = 1, left = size.rank - std::count(size.at, size.at + size.rank, 1);
  for (; left; left--) {
    int64_t next = 0;
    while (next < size.rank && (size[next] == 1 || stride[next] != due)) next++;
    if (next == size.rank) return false;
    due *= size[next];
  }
  return true;
}

// As aten::empty_like, which is looked up by its name at each call: where it keeps the strides that takes several times as
// long as this.
inline Tensor empty_like(const Tensor &like, int32_t dtype) {
  const Dims size = like.sizes(), stride = like.strides();
  if (fills_its_memory(size, stride)) return Tensor::empty(size, stride.at, dtype, like.kind(), like.index());
  StableIValue stack[6] = {like.given()};
  Tensor found = called("aten::empty_like", stack);
  return dtype == like.dtype() ? std::move(found)
                               : Tensor::empty(size, found.strides().at, dtype, like.kind(), like.index());
}

inline void copy(const Tensor &to, const Tensor &from) {
  StableIValue stack[3] = {to.given(), from.given(), 0};
  called("aten::copy_", stack);
}

inline Tensor dense(const Tensor &like, int32_t dtype) {
  const Dims size = like.sizes();
  int64_t stride[MOST_RANK], due = 1;
  if (size.rank > MOST_RANK) throw std::runtime_error("a tensor has too many dimensions");
  for (int64_t i = size.rank; i-- > 0; due *= size[i]) stride[i] = due;
  return Tensor::empty(size, stride, dtype, like.kind(), like.index());
}

}  // namespace at_torch
#endif
