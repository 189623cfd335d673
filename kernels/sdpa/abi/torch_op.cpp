// The op autotuner_<name>::sdpa: attention by the variants of a package, else by torch. It speaks to torch through the C
// functions of LibTorch's stable ABI alone, so that one library serves every torch from 2.10 on; to Python only where it
// is asked for a launch that is a function of Python.
//
//   sdpa(query, key, value, key_lengths, attn_mask, *, is_causal, enable_gqa, corner, strict, copies)
//       serves the call; `attn_mask`: what lengths and corner say, for torch; `strict`: an error where no variant does;
//       `copies`: of strided tensors
//   served(query, key, value, how, key_lengths, attn_mask)
//       the same for who knows that nothing needs a gradient: Python has it pass the dispatcher's autograd by. `how` is a
//       sum of what is so, as each argument by name and each string take their time
//   choice(query, key, value, key_lengths, attn_mask, *, is_causal, enable_gqa, corner, copies)
//       the place in the table that would serve it
//   kept(query, key, value, out, *, is_causal, enable_gqa, into)
//       the same, and where a variant would serve it what a launch needs but addresses, written to the address `into`:
//       autotuner_launcher takes it, for calls of which Python knows that they are alike
//   masked(query, key, value, key_lengths, *, is_causal, enable_gqa, corner)
//       what torch computes with the mask that lengths and corner stand for; it is defined in Python (serving.py)
#define TORCH_TARGET_VERSION (((0ULL + 2) << 56) | ((0ULL + 10) << 48))

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device_model.h"
#include "package.h"
#include "python_launch.h"
#include "sdpa_call.h"
#include "torch_tensor.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using namespace at_torch;

const at_package &package = autotuner_package;
std::mutex turns[AT_MAX_VARIANTS];                  // a variant takes one call at a time (variant.h)
std::atomic<int64_t> *counts;                       // by place + AT_REASONS
std::atomic<const char *> another_model{nullptr};   // why this CPU is not the proven one
constexpr int MOST_DEVICES = 64;
std::atomic<int> devices[MOST_DEVICES];             // 1: a GPU like the proven one, 2: another one

// What a stack holds where the schema says that there may be none: null, or the address of a value that is ours then.
AtenTensorHandle taken(StableIValue optional) {
  const std::unique_ptr<StableIValue> value((StableIValue *)optional);
  return value ? (AtenTensorHandle)*value : nullptr;
}

constexpr char BOTTOM_RIGHT[] = "bottom_right", TOP_LEFT[] = "top_left";

bool is_bottom_right(StableIValue text) {
  const char *found;
  const bool known = !torch_string_c_str((StringHandle)text, &found);
  const bool bottom = known && !strcmp(found, BOTTOM_RIGHT), wrong = !known || (!bottom && strcmp(found, TOP_LEFT));
  torch_delete_string((StringHandle)text);
  if (wrong) throw std::runtime_error(std::string("corner is neither ") + TOP_LEFT + " nor " + BOTTOM_RIGHT);
  return bottom;
}

// What is so of a call; serving.py has the same numbers.
enum { CAUSAL = 1, GROUPS = 2, BOTTOM_RIGHT_CORNER = 4, STRICT = 8, COPIES = 16 };

// A call as it was made.
struct Call {
  Tensor q, k, v, lengths, mask;
  bool causal = false, groups = false, bottom_right = false, strict = false, copies = false;

  // `stack` begins with Q, K and V.
  Call(const StableIValue *stack, StableIValue lengths_given, StableIValue mask_given)
      : q((AtenTensorHandle)stack[0]), k((AtenTensorHandle)stack[1]), v((AtenTensorHandle)stack[2]),
        lengths(taken(lengths_given)), mask(taken(mask_given)) {}
  Call(Call &&) = default;

  std::array<const Tensor *, 3> tensors() const { return {&q, &k, &v}; }
  bool is_dense() const { return q.contiguous() && k.contiguous() && v.contiguous(); }
  // Whether torch's own function needs a mask tensor to say the same.
  bool is_masked() const { return lengths || (causal && bottom_right); }
  bool lengths_are_served() const {
    return lengths.dtype() == aoti_torch_dtype_int32() && lengths.sizes() == Dims{q.sizes().at, 1} &&
           lengths.contiguous();
  }
};

// How it is served.
struct Plan {
  int place;
  at_problem problem = {};
  sdpa_tensor qkv[3] = {};
  bool copies = false;

  int use() const { return at_use(&package.table, place); }
};

int element(int32_t dtype) {
  if (dtype == aoti_torch_dtype_float32()) return AT_FLOAT32;
  if (dtype == aoti_torch_dtype_bfloat16()) return AT_BFLOAT16;
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

// Sizes and strides of the call's tensors, or why they are none of the op's.
int read(const Call &call, bool as_dense, sdpa_tensor *qkv) {
  const int item = call.q.dtype() == aoti_torch_dtype_float32() ? 4 : 2;
  for (int i = 0; i < 3; i++) {
    const Tensor &tensor = *call.tensors()[i];
    const Dims size = tensor.sizes(), stride = tensor.strides();
    if (size.rank != 4) return AT_SHAPES;
    qkv[i].data = tensor.data();
    qkv[i].storage = tensor.data() - tensor.offset() * item;
    memcpy(qkv[i].size, size.at, sizeof qkv[i].size);
    memcpy(qkv[i].stride, stride.at, sizeof qkv[i].stride);
    int64_t due = 1;
    for (int j = 3; as_dense && j >= 0; due *= size[j--]) qkv[i].stride[j] = due;
  }
  return 0;
}

int looked_up(const Call &call, bool as_dense, Plan *plan) {
  if (const int reason = read(call, as_dense, plan->qkv)) return reason;
  if (call.lengths && !call.lengths_are_served()) return AT_LENGTHS;
  const sdpa_said said = {element(call.q.dtype()), call.causal, call.bottom_right ? AT_BOTTOM_RIGHT : AT_TOP_LEFT, call.groups,
                          (bool)call.lengths};
  if (const int reason = sdpa_problem(plan->qkv, &said, &plan->problem)) return reason;
  return sdpa_look_up(&package.table, &plan->problem);
}

Plan planned(const Call &call) {
  if (call.mask && !call.is_masked())
    throw std::runtime_error("attn_mask says what key_lengths or a corner says: give these too");
  Plan plan = {};
  for (const Tensor *each : call.tensors())
    if (each->kind() != call.q.kind() || each->index() != call.q.index() || each->dtype() != call.q.dtype())
      return plan.place = AT_MIXED, plan;
  if (call.lengths && (call.lengths.kind() != call.q.kind() || call.lengths.index() != call.q.index()))
    return plan.place = AT_MIXED, plan;
  if ((plan.place = device_reason(call.q))) return plan;
  if (element(call.q.dtype()) < 0) return plan.place = AT_DTYPE, plan;
  plan.place = looked_up(call, false, &plan);
  if (plan.use() < 0 && call.copies && !call.is_dense()) {
    plan.place = looked_up(call, true, &plan);
    plan.copies = plan.use() >= 0;
  }
  return plan;
}

// Launches go to torch's current stream of the tensors' device, which is current for as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int index) {
    if (!package.on_cuda) return;
    static void *library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    static const auto current =
        (AOTITorchError(*)(int32_t, void **))(library ? dlsym(library, "aoti_torch_get_current_cuda_stream") : nullptr);
    if (!current) throw std::runtime_error("this torch has no CUDA");
    check(aoti_torch_create_device_guard(index, &guard_), "device_guard");
    check(current(index, &stream_), "current_cuda_stream");
    at_cuda_enter(index);
  }
  OnDevice(const OnDevice &) = delete;
  ~OnDevice() {
    if (guard_) aoti_torch_delete_device_guard(guard_);
  }
  void *stream() const { return stream_; }

 private:
  DeviceGuardHandle guard_ = nullptr;
  void *stream_ = nullptr;
};

// A launch but for where things are.
struct Kept {
  int use;
  int32_t kind, index;  // of the device
  at_call call;
};

Kept kept(const Plan &plan, const Call &made, const Tensor &out) {
  Kept found = {plan.use(), made.q.kind(), made.q.index(), {}};
  const double scale = 1 / std::sqrt((double)plan.problem.field[SDPA_HEAD_DIM]);
  sdpa_inputs(plan.qkv, made.lengths ? made.lengths.data() : nullptr, &plan.problem, scale, &found.call);
  sdpa_tensor lies = plan.qkv[0];
  memcpy(lies.stride, out.strides().at, sizeof lies.stride);
  sdpa_strides_of(&lies, plan.problem.field[SDPA_LAYOUT], found.call.out_stride[SDPA_O]);
  found.call.out[SDPA_O] = out.data();
  found.call.workspace_bytes = package.table.variants[found.use]->workspace(&found.call);
  return found;
}

// On the device's current stream, which is given.
int launch(const Kept &made, void *stream) {
  at_call call = made.call;
  const bool wanted = call.workspace_bytes > 0;
  const int64_t one = 1;
  const Tensor workspace =
      wanted ? Tensor::empty({&call.workspace_bytes, 1}, &one, aoti_torch_dtype_uint8(), made.kind, made.index)
             : Tensor(nullptr);
  call.workspace = wanted ? workspace.data() : nullptr;
  call.stream = stream;
  const std::lock_guard<std::mutex> turn(turns[made.use]);
  return package.table.variants[made.use]->run(&call);
}

// Where Q, K, V and the output are elsewhere.
int launch_at(const void *made, void *const *addresses, void *stream) {
  if (std::any_of(addresses, addresses + 4, [](const void *each) { return (uintptr_t)each % 16; })) return AT_OUTSIDE_DOMAIN;
  Kept call;
  memcpy(&call, made, sizeof call);
  std::copy(addresses, addresses + 3, call.call.in);
  call.call.out[SDPA_O] = addresses[3];
  try {
    if (package.on_cuda) at_cuda_enter(call.index);
    return launch(call, stream);
  } catch (const std::exception &) {  // there is no memory for the workspace: the op says so
    return AT_NO_WORKSPACE;
  }
}

int launch(const Plan &plan, const Call &made, const Tensor &out) {
  const OnDevice device(made.q.index());
  return launch(kept(plan, made, out), device.stream());
}

bool is_aligned(const Plan &plan, const Call &call, const Tensor &out) {
  uintptr_t all = (uintptr_t)out.data();
  for (const sdpa_tensor &each : plan.qkv) all |= (uintptr_t)each.data;
  return all % 16 == 0 && !(call.lengths && (uintptr_t)call.lengths.data() % 4);
}

void count(int place) { counts[place + AT_REASONS]++; }

Tensor by_torch(const Call &call) {
  if (!call.is_masked() || call.mask) {
    StableIValue *mask = call.mask ? new StableIValue(call.mask.given()) : nullptr;  // torch takes it
    const bool causal = call.causal && !call.mask;
    StableIValue stack[8] = {call.q.given(), call.k.given(), call.v.given(), (StableIValue)mask, 0, causal, 0, call.groups};
    return called("aten::scaled_dot_product_attention", stack);
  }
  const std::string corner = call.bottom_right ? BOTTOM_RIGHT : TOP_LEFT, op = std::string(package.name) + "::masked";
  StringHandle text;
  check(torch_new_string_handle(corner.data(), corner.size(), &text), "new_string");
  StableIValue *lengths = call.lengths ? new StableIValue(call.lengths.given()) : nullptr;  // torch takes it
  StableIValue stack[7] = {call.q.given(), call.k.given(), call.v.given(), (StableIValue)lengths,
                                         call.causal,    call.groups,    (StableIValue)text};
  return called(op.c_str(), stack);
}

// What torch gives, laid as the op's fake says: like Q.
Tensor aside(const Call &call, int reason) {
  if (call.strict) throw std::runtime_error(std::string("no variant serves this call: ") + at_why(&package.table, reason));
  count(reason);
  Tensor found = by_torch(call);
  if (found.contiguous() && call.is_dense()) return found;
  const Dims q = call.q.sizes(), v = call.v.sizes();
  const bool as_q = q.rank && v.rank && q[q.rank - 1] == v[v.rank - 1];
  Tensor lies = as_q ? empty_like(call.q) : dense(found);
  if (found.strides() == lies.strides() || !(found.sizes() == lies.sizes())) return found;
  copy(lies, found);
  return lies;
}

Tensor result(const Call &call) {
  Plan plan = planned(call);
  if (plan.use() < 0) return aside(call, plan.place);
  std::vector<Tensor> copied;
  for (int i = 0; plan.copies && i < 3; i++) {
    copied.push_back(dense(*call.tensors()[i]));
    copy(copied[i], *call.tensors()[i]);
    plan.qkv[i].data = copied[i].data();
  }
  Tensor out = plan.problem.field[SDPA_LAYOUT] == AT_BHSD ? dense(call.q) : empty_like(call.q);
  if (!is_aligned(plan, call, out)) return aside(call, AT_UNALIGNED);
  const int status = launch(plan, call, out);
  if (status >= AT_DEVICE_ERROR)
    throw std::runtime_error("a variant ended with the device's error " + std::to_string(status - AT_DEVICE_ERROR));
  if (status) return aside(call, AT_REFUSED);
  count(plan.place);
  if (!plan.copies || call.q.contiguous()) return out;
  Tensor lies = empty_like(call.q);
  copy(lies, out);
  return lies;
}

// What a stack says by names, but for what stands behind the corner.
Call named(const StableIValue *stack) {
  Call call(stack, stack[3], stack[4]);
  call.causal = stack[5] & 1;
  call.groups = stack[6] & 1;
  call.bottom_right = is_bottom_right(stack[7]);
  return call;
}

void sdpa(StableIValue *stack, uint64_t, uint64_t) {
  Call call = named(stack);
  call.strict = stack[8] & 1;
  call.copies = stack[9] & 1;
  stack[0] = result(call).give();
}

void served(StableIValue *stack, uint64_t, uint64_t) {
  Call call(stack, stack[4], stack[5]);
  const int64_t how = (int64_t)stack[3];
  call.causal = how & CAUSAL;
  call.groups = how & GROUPS;
  call.bottom_right = how & BOTTOM_RIGHT_CORNER;
  call.strict = how & STRICT;
  call.copies = how & COPIES;
  stack[0] = result(call).give();
}

void choice(StableIValue *stack, uint64_t, uint64_t) {
  Call call = named(stack);
  call.copies = stack[8] & 1;
  const int64_t place = planned(call).place;
  memcpy(stack, &place, sizeof place);
}

void keep(StableIValue *stack, uint64_t, uint64_t) {
  Call call(stack, 0, 0);
  const Tensor out((AtenTensorHandle)stack[3]);
  call.causal = stack[4] & 1;
  call.groups = stack[5] & 1;
  const Plan plan = planned(call);
  if (plan.use() >= 0) *(Kept *)stack[6] = kept(plan, call, out);
  const int64_t place = plan.place;
  memcpy(stack, &place, sizeof place);
}

constexpr char CALL[] =
    "Tensor query, Tensor key, Tensor value, Tensor? key_lengths=None, Tensor? attn_mask=None, *, bool is_causal=False, "
    "bool enable_gqa=False, str corner=\"top_left\"";

constexpr char SERVED[] =
    "served(Tensor query, Tensor key, Tensor value, int how=0, Tensor? key_lengths=None, Tensor? attn_mask=None) -> Tensor";

constexpr char KEPT[] =
    "kept(Tensor query, Tensor key, Tensor value, Tensor out, *, bool is_causal=False, bool enable_gqa=False, int into) -> int";

// Ops live as long as the process: their library objects are never given back.
void define() {
  TorchLibraryHandle library;
  check(aoti_torch_library_init_def(package.name, __FILE__, __LINE__, &library), "library_init_def");
  const std::string sdpa_schema = std::string("sdpa(") + CALL + ", bool strict=False, bool copies=False) -> Tensor";
  const std::string choice_schema = std::string("choice(") + CALL + ", bool copies=False) -> int";
  for (const std::string &schema : {sdpa_schema, std::string(SERVED), choice_schema, std::string(KEPT)})
    check(aoti_torch_library_def(library, schema.c_str()), "library_def");
  for (const char *key : {"CPU", "CUDA"}) {
    check(aoti_torch_library_init_impl(package.name, key, __FILE__, __LINE__, &library), "library_init_impl");
    check(torch_library_impl(library, "sdpa", sdpa, TORCH_ABI_VERSION), "library_impl");
    check(torch_library_impl(library, "served", served, TORCH_ABI_VERSION), "library_impl");
    check(torch_library_impl(library, "choice", choice, TORCH_ABI_VERSION), "library_impl");
    check(torch_library_impl(library, "kept", keep, TORCH_ABI_VERSION), "library_impl");
  }
}

}  // namespace

/* Defines the ops, once. Null, or "" where that was done before, or what went wrong. */
EXPORTED const char *autotuner_register() {
  static std::string failed;
  if (counts) return failed.c_str();
  counts = new std::atomic<int64_t>[AT_REASONS + at_places(&package.table)]();
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
EXPORTED int autotuner_reasons() { return AT_REASONS; }
EXPORTED int autotuner_use(int place) { return at_use(&package.table, place); }
EXPORTED const char *autotuner_why(int place) {
  const char *model = another_model;
  return place == AT_OTHER_MODEL && model ? model : at_why(&package.table, place);
}
EXPORTED int64_t autotuner_count(int place) { return counts[place + AT_REASONS]; }
EXPORTED void autotuner_reset() {
  for (int i = 0; i < AT_REASONS + at_places(&package.table); i++) counts[i] = 0;
}

EXPORTED int64_t autotuner_kept_size() { return sizeof(Kept); }

/* A function of Python that launches a kept call on tensors that lie as its did; the variant's name. */
EXPORTED PyObject *autotuner_launcher(const void *made, const char *name) {
  return at_python_launcher<launch_at>(made, sizeof(Kept), 4, name);
}
