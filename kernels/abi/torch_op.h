// The ops autotuner_<name>::*: calls of torch's function by the variants of a package, else by torch. It speaks to torch
// through the C functions of LibTorch's stable ABI alone, so that one library serves every torch from 2.10 on; to Python
// only where it is asked for a launch that is a function of Python. An op's torch_op.cpp includes this and says `by_torch`,
// and before that AT_OP_TAKES and AT_OP_GIVES, where its first tensor is not of the same element type as its answer.
//
//   served(ARGUMENTS)
//       serves the call, for who knows that nothing needs a gradient: Python has it pass the dispatcher's autograd by.
//       ARGUMENTS are those of the op's signature (package.h). `how` is a sum of what is so, as each argument by name and
//       each string take their time
//   choice(ARGUMENTS, Tensor? out, int into)
//       the place in the table that would serve it. With an output, what a launch needs but addresses is written to the
//       address `into`: autotuner_launcher takes it, for calls of which Python knows that they are alike
//   computed(ARGUMENTS)
//       what torch computes where that takes more than one of its functions; it is defined in Python (library.py)
#ifndef AUTOTUNER_TORCH_OP_H
#define AUTOTUNER_TORCH_OP_H

#define TORCH_TARGET_VERSION (((0ULL + 2) << 56) | ((0ULL + 10) << 48))

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "device_model.h"
#include "package.h"
#include "python_launch.h"
#include "torch_tensor.h"

#ifndef AT_OP_TAKES
#define AT_OP_TAKES(dtype) ((dtype) >= 0 && (dtype) < AT_INT32) /* of the first tensor */
#define AT_OP_ALIKE signature.required                         /* leading tensors of one element type */
#define AT_OP_GIVES(first) (first).dtype()                      /* torch's number for that of the answer */
#endif

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using namespace at_torch;

const at_package &package = autotuner_package;
const at_signature &signature = autotuner_package.signature;
std::mutex turns[AT_MAX_VARIANTS];                  // a variant takes one call at a time (variant.h)
std::atomic<int64_t> *counts;                       // by place + table.reasons
std::atomic<const char *> another_model{nullptr};   // why this CPU is not the proven one
thread_local int last_place;                        // what has served the last call of this thread
constexpr int MOST_DEVICES = 64;
std::atomic<int> devices[MOST_DEVICES];             // 1: a GPU like the proven one, 2: another one
constexpr int MOST_ARGUMENTS = AT_MAX_IN + AT_OPTIONS + 4;

// What is so of a call, for `how`: these, and from FIRST_BIT on the options; serving.py has the same numbers.
enum { STRICT = 1, COPIES = 2, FIRST_BIT = 2 };

// What a stack holds where the schema says that there may be none: null, or the address of a value that is ours then.
AtenTensorHandle taken(StableIValue optional) {
  const std::unique_ptr<StableIValue> value((StableIValue *)optional);
  return value ? (AtenTensorHandle)*value : nullptr;
}

// A call as it was made. Its tensors are those of the signature, then those that are for torch alone.
struct Call {
  Tensor tensors[AT_MAX_IN];
  at_said said = {};
  int64_t how;
  int used;  // places of the stack

  explicit Call(const StableIValue *stack) {
    for (used = 0; used < signature.required; used++) tensors[used] = Tensor((AtenTensorHandle)stack[used]);
    how = (int64_t)stack[used++];
    for (int i = 0, at = FIRST_BIT; i < signature.options; at += signature.bits[i++])
      if (signature.bits[i])
        said[i] = (double)(how >> at & ((1 << signature.bits[i]) - 1));
      else
        memcpy(&said[i], &stack[used++], sizeof said[i]);
    for (int i = signature.required; i < last(); i++) tensors[i] = Tensor(taken(stack[used++]));
  }

  int last() const { return signature.required + signature.more + signature.beside; }
  const Tensor &first() const { return tensors[0]; }
  const Tensor &beside(int i) const { return tensors[signature.required + signature.more + i]; }
  bool is_dense() const {
    return std::all_of(tensors, tensors + signature.required, [](const Tensor &each) { return each.contiguous(); });
  }
};

// torch's answer, wherever that lies. Each op says it.
Tensor by_torch(const Call &call);

// The same by the package's Python.
Tensor computed(const Call &call) {
  StableIValue stack[MOST_ARGUMENTS];
  int at = 0;
  for (; at < signature.required; at++) stack[at] = call.tensors[at].given();
  stack[at++] = (StableIValue)call.how;
  for (int i = 0; i < signature.options; i++)
    if (!signature.bits[i]) stack[at++] = number(call.said[i]);
  for (int i = signature.required; i < call.last(); i++) stack[at++] = optional(call.tensors[i]);
  return called((std::string(package.name) + "::computed").c_str(), stack);
}

// How it is served.
struct Plan {
  int place;
  at_problem problem = {};
  at_tensor in[AT_MAX_IN] = {};
  bool copies = false;

  int use() const { return at_use(&package.table, place); }
  bool dense() const { return at_are_dense(in, signature.required); }
};

int element(int32_t dtype) {
  if (dtype == aoti_torch_dtype_float32()) return AT_FLOAT32;
  if (dtype == aoti_torch_dtype_bfloat16()) return AT_BFLOAT16;
  if (dtype == aoti_torch_dtype_int32()) return AT_INT32;
  if (dtype == aoti_torch_dtype_float8_e4m3fn()) return AT_FLOAT8;
  return dtype == aoti_torch_dtype_float16() ? AT_FLOAT16 : AT_DTYPE;
}

// 0 where variants are proven on such a device, else the reason.
int device_reason(const Tensor &tensor) {
  if (tensor.kind() != (package.on_cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu()))
    return AT_ELSEWHERE;
  if (!package.on_cuda) {
    uint32_t threads;
    check(torch_get_num_threads(&threads), "get_num_threads");
    if (another_model.load()) return AT_OTHER_MODEL;
    return (int32_t)threads == package.threads ? 0 : AT_OTHER_THREADS;
  }
  const int index = tensor.index();
  if (index < 0 || index >= MOST_DEVICES) return AT_OTHER_MODEL;
  if (!devices[index]) devices[index] = at_cuda_is(index, package.sm, package.multiprocessors) ? 1 : 2;
  return devices[index] == 1 ? 0 : AT_OTHER_MODEL;
}

// Where a tensor lies, by how it lies; or why it is none of the op's.
int read(const Tensor &tensor, at_tensor *made) {
  const Dims size = tensor.sizes(), stride = tensor.strides();
  if (size.rank > AT_CALL_RANK) return AT_SHAPES;
  made->dtype = element(tensor.dtype());
  made->rank = (int32_t)size.rank;
  std::copy(size.at, size.at + size.rank, made->size);
  std::copy(stride.at, stride.at + size.rank, made->stride);
  made->data = tensor.data();
  made->storage = tensor.data() - tensor.offset() * at_item(made);
  return 0;
}

int looked_up(const Call &call, bool as_dense, Plan *plan) {
  for (int i = 0; i < signature.required + signature.more; i++) {
    if (!call.tensors[i]) continue;
    if (const int reason = read(call.tensors[i], &plan->in[i])) return reason;
    if (as_dense && i < signature.required) at_lie_dense(&plan->in[i]);
  }
  if (const int reason = AT_OP_PROBLEM(plan->in, call.said, &plan->problem)) return reason;
  return AT_OP_LOOK_UP(&package.table, &plan->problem);
}

Plan planned(const Call &call) {
  Plan plan = {};
  const Tensor &first = call.first();
  const int32_t kind = first.kind(), index = first.index(), dtype = first.dtype();
  for (int i = 1; i < signature.required + signature.more; i++) {
    const Tensor &each = call.tensors[i];
    if (!each) continue;
    if (each.kind() != kind || each.index() != index || (i < AT_OP_ALIKE && each.dtype() != dtype))
      return plan.place = AT_MIXED, plan;
  }
  if ((plan.place = device_reason(first))) return plan;
  if (!AT_OP_TAKES(element(dtype))) return plan.place = AT_DTYPE, plan;
  plan.place = looked_up(call, false, &plan);
  if (plan.use() < 0 && call.how & COPIES && !call.is_dense()) {
    const int place = looked_up(call, true, &plan);
    plan.copies = at_use(&package.table, place) >= 0;
    if (plan.copies) plan.place = place;
  }
  return plan;
}

// A function of torch's library for CUDA; null where there is none.
void *in_torchs_cuda(const char *name) {
  static void *library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  return library ? dlsym(library, name) : nullptr;
}

// torch's current stream of a device, to which launches go; null on a CPU.
void *current_stream(int index) {
  if (!package.on_cuda) return nullptr;
  static const auto current = (AOTITorchError(*)(int32_t, void **))in_torchs_cuda("aoti_torch_get_current_cuda_stream");
  if (!current) throw std::runtime_error("this torch has no CUDA");
  void *stream;
  check(current(index, &stream), "current_cuda_stream");
  return stream;
}

// The tensors' device is current for as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int index) {
    if (!package.on_cuda) return;
    check(aoti_torch_create_device_guard(index, &guard_), "device_guard");
    at_cuda_enter(index);
  }
  OnDevice(const OnDevice &) = delete;
  ~OnDevice() {
    if (guard_) aoti_torch_delete_device_guard(guard_);
  }

 private:
  DeviceGuardHandle guard_ = nullptr;
};

// A launch but for where things are.
struct Kept {
  int use;
  int32_t kind, index;  // of the device
  int32_t count;        // tensors that are given
  int32_t alignment[AT_MAX_IN];
  at_call call;
};

Kept kept(const Plan &plan, const Call &made, const Tensor &out) {
  Kept found = {plan.use(), made.first().kind(), made.first().index(), 0, {}, {}};
  at_tensor lies = plan.in[0];
  lies.data = out.data();
  if (!plan.dense()) std::copy(out.strides().at, out.strides().at + lies.rank, lies.stride);
  at_prepared(plan.in, signature.required, signature.more, &lies, &plan.problem, &found.call);
  for (int i = 0; i < signature.required + signature.more; i++)
    if (plan.in[i].data) {
      found.alignment[found.count] = plan.in[i].dtype == AT_INT32 ? 4 : 16;
      found.count++;
    }
  found.call.workspace_bytes = package.table.variants[found.use]->workspace(&found.call);
  return found;
}

// Memory of torch's for one launch on the current stream. A GPU's is asked of torch's allocator itself: with a tensor
// around it, it takes the host several times as long.
class Workspace {
 public:
  explicit Workspace(const Kept &made) {
    static const auto alloc =
        (AOTITorchError(*)(uint64_t, void **))in_torchs_cuda("aoti_torch_cuda_caching_allocator_raw_alloc");
    const int64_t bytes = made.call.workspace_bytes, one = 1;
    if (bytes <= 0) return;
    if (package.on_cuda && alloc && free_()) {
      check(alloc((uint64_t)bytes, &raw_), "a workspace");
      return;
    }
    tensor_ = Tensor::empty({&bytes, 1}, &one, aoti_torch_dtype_uint8(), made.kind, made.index);
  }
  Workspace(const Workspace &) = delete;
  ~Workspace() {
    if (raw_) free_()(raw_);
  }
  void *data() const { return tensor_ ? tensor_.data() : raw_; }

 private:
  using Free = AOTITorchError (*)(void *);
  static Free free_() {
    static const auto found = (Free)in_torchs_cuda("aoti_torch_cuda_caching_allocator_raw_delete");
    return found;
  }

  void *raw_ = nullptr;
  Tensor tensor_;
};

int launch(const Kept &made) {
  at_call call = made.call;
  const Workspace workspace(made);
  call.workspace = workspace.data();
  call.stream = current_stream(made.index);
  const std::lock_guard<std::mutex> turn(turns[made.use]);
  return at_launch(package.table.variants[made.use], &call);
}

// Where the tensors and the output are elsewhere.
int launch_at(const void *made, void *const *addresses) {
  Kept call;
  memcpy(&call, made, sizeof call);
  for (int i = 0; i < call.count; i++) {
    if ((uintptr_t)addresses[i] % (uintptr_t)call.alignment[i]) return AT_OUTSIDE_DOMAIN;
    call.call.in[i] = addresses[i];
  }
  call.call.out[0] = addresses[call.count];
  if ((uintptr_t)addresses[call.count] % 16) return AT_OUTSIDE_DOMAIN;
  try {
    if (package.on_cuda) at_cuda_enter(call.index);
    return launch(call);
  } catch (const std::exception &) {  // there is no memory for the workspace: the op says so
    return AT_NO_WORKSPACE;
  }
}

bool is_aligned(const Plan &plan) {
  return std::all_of(plan.in, plan.in + AT_MAX_IN, [](const at_tensor &each) { return at_is_aligned(&each, each.data); });
}

void count(int place) { counts[(last_place = place) + package.table.reasons]++; }

// What torch gives, laid as the op's fake says: like the first tensor.
Tensor aside(const Call &call, int reason) {
  if (call.how & STRICT)
    throw std::runtime_error(std::string("no variant serves this call: ") + at_why(&package.table, reason));
  Tensor found = by_torch(call);
  count(reason);
  if (found.contiguous() && call.is_dense()) return found;
  Tensor lies = found.sizes() == call.first().sizes() ? empty_like(call.first(), found.dtype()) : dense(found, found.dtype());
  if (found.strides() == lies.strides() || !(found.sizes() == lies.sizes())) return found;
  copy(lies, found);
  return lies;
}

Tensor result(const Call &call) {
  Plan plan = planned(call);
  if (plan.use() < 0) return aside(call, plan.place);
  Tensor copied[AT_MAX_IN];
  for (int i = 0; plan.copies && i < signature.required; i++) {
    copied[i] = dense(call.tensors[i], call.tensors[i].dtype());
    copy(copied[i], call.tensors[i]);
    plan.in[i].data = copied[i].data();
  }
  const int32_t dtype = AT_OP_GIVES(call.first());
  Tensor out = plan.dense() ? dense(call.first(), dtype) : empty_like(call.first(), dtype);
  if (!is_aligned(plan) || (uintptr_t)out.data() % 16) return aside(call, AT_UNALIGNED);
  int status;
  {
    const OnDevice device(call.first().index());
    status = launch(kept(plan, call, out));
  }
  if (status >= AT_DEVICE_ERROR)
    throw std::runtime_error("a variant ended with the device's error " + std::to_string(status - AT_DEVICE_ERROR));
  if (status) return aside(call, AT_REFUSED);
  count(plan.place);
  if (!plan.copies || call.first().contiguous()) return out;
  Tensor lies = empty_like(call.first(), dtype);
  copy(lies, out);
  return lies;
}

void served(StableIValue *stack, uint64_t, uint64_t) {
  const Call call(stack);
  stack[0] = result(call).give();
}

void choice(StableIValue *stack, uint64_t, uint64_t) {
  const Call call(stack);
  const Tensor out(taken(stack[call.used]));
  const Plan plan = planned(call);
  if (out && plan.use() >= 0) *(Kept *)stack[call.used + 1] = kept(plan, call, out);
  const int64_t place = plan.use() < 0 || plan.copies || is_aligned(plan) ? plan.place : AT_UNALIGNED;
  memcpy(stack, &place, sizeof place);
}

// Ops live as long as the process: their library objects are never given back.
void define() {
  TorchLibraryHandle library;
  check(aoti_torch_library_init_def(package.name, __FILE__, __LINE__, &library), "library_init_def");
  const std::string arguments = signature.arguments;
  for (const std::string &schema : {"served(" + arguments + ") -> Tensor", "computed(" + arguments + ") -> Tensor",
                                    "choice(" + arguments + ", Tensor? out=None, int into=0) -> int"})
    check(aoti_torch_library_def(library, schema.c_str()), "library_def");
  for (const char *key : {"CPU", "CUDA"}) {
    check(aoti_torch_library_init_impl(package.name, key, __FILE__, __LINE__, &library), "library_init_impl");
    check(torch_library_impl(library, "served", served, TORCH_ABI_VERSION), "library_impl");
    check(torch_library_impl(library, "choice", choice, TORCH_ABI_VERSION), "library_impl");
  }
}

}  // namespace

/* Defines the ops, once. Null, or "" where that was done before, or what went wrong. */
EXPORTED const char *autotuner_register() {
  static std::string failed;
  if (counts) return failed.c_str();
  counts = new std::atomic<int64_t>[package.table.reasons + at_places(&package.table)]();
  try {
    define();
  } catch (const std::exception &error) {
    failed = error.what();
    return failed.c_str();
  }
  return nullptr;
}

/* Says why no variant is proven on this CPU; the text is kept. */
EXPORTED void autotuner_elsewhere(const char *why) { another_model = strdup(why); }

EXPORTED int autotuner_places() { return at_places(&package.table); }
EXPORTED int autotuner_reasons() { return package.table.reasons; }
EXPORTED int autotuner_last() { return last_place; }
EXPORTED int autotuner_use(int place) { return at_use(&package.table, place); }
EXPORTED const char *autotuner_why(int place) {
  const char *model = another_model;
  return place == AT_OTHER_MODEL && model ? model : at_why(&package.table, place);
}
EXPORTED int64_t autotuner_count(int place) { return counts[place + package.table.reasons]; }
EXPORTED void autotuner_reset() {
  for (int i = 0; i < package.table.reasons + at_places(&package.table); i++) counts[i] = 0;
}

EXPORTED int64_t autotuner_kept_size() { return sizeof(Kept); }

/* A function of Python that launches a kept call on tensors that lie as its did; the variant's name, and torch's class of
 * tensors. */
EXPORTED PyObject *autotuner_launcher(const void *made, const char *name, PyObject *tensor_class) {
  const int count = PyCFunction_NewEx ? ((const Kept *)made)->count : 0;
  return at_python_launcher<launch_at>(made, sizeof(Kept), count + 1, name, tensor_class);
}

#endif
