// The host side of IMPL = cublas. For every chunk of query rows: S = scale Q K^T by cuBLAS, P = softmax(S) by the
// kernel of cublas.cu, O = P V by cuBLAS, all on the caller's stream. Compiled once a toolchain and linked with every
// such variant; what distinguishes them is in the cubin: geometry.host, whose slots cublas_plan.h names.
//
// cuBLAS is found at run time, so a variant can be built and asked for its identity where there is none. The part used
// is cublasLt: its heuristic proposes several algorithms, while cublasGemmEx ignores a wish on recent GPUs. Descriptors
// and algorithms are made once for each shape and kept: a later call allocates nothing and can be captured in a graph.
//
// Status beyond those of variant.h and of the driver, whose error numbers end at 999:
//   AT_DEVICE_ERROR + 500           there is no cuBLAS (CUDA_ERROR_NOT_FOUND)
//   AT_DEVICE_ERROR + 2000 + n      cuBLAS failed with the cublasStatus_t n
#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <map>
#include <vector>

#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include "cuda_host.h"

#include "cublas_plan.h"

namespace {

constexpr int CUBLAS_ERROR = 2000;
constexpr int64_t ALIGNMENT = 256;  // of each part of the workspace
constexpr int64_t CUBLAS_WORKSPACE = 4 << 20;  // what an algorithm may want of it

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The functions of libcublasLt that are called, by their names there.
struct Cublas {
  decltype(&::cublasLtCreate) cublasLtCreate;
  decltype(&::cublasLtMatmul) cublasLtMatmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) cublasLtMatmulAlgoGetHeuristic;
  decltype(&::cublasLtMatmulDescCreate) cublasLtMatmulDescCreate;
  decltype(&::cublasLtMatmulDescSetAttribute) cublasLtMatmulDescSetAttribute;
  decltype(&::cublasLtMatrixLayoutCreate) cublasLtMatrixLayoutCreate;
  decltype(&::cublasLtMatrixLayoutSetAttribute) cublasLtMatrixLayoutSetAttribute;
  decltype(&::cublasLtMatmulPreferenceCreate) cublasLtMatmulPreferenceCreate;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) cublasLtMatmulPreferenceSetAttribute;
  bool found;

  static const Cublas &get() {
    static const Cublas cublas = load();
    return cublas;
  }

 private:
  static Cublas load() {
    Cublas cublas = {};
    void *const library = open();
    if (!library) return cublas;
    cublas.found = true;
#define AT_FIND(name) cublas.found &= (cublas.name = (decltype(cublas.name))dlsym(library, #name)) != nullptr
    AT_FIND(cublasLtCreate);
    AT_FIND(cublasLtMatmul);
    AT_FIND(cublasLtMatmulAlgoGetHeuristic);
    AT_FIND(cublasLtMatmulDescCreate);
    AT_FIND(cublasLtMatmulDescSetAttribute);
    AT_FIND(cublasLtMatrixLayoutCreate);
    AT_FIND(cublasLtMatrixLayoutSetAttribute);
    AT_FIND(cublasLtMatmulPreferenceCreate);
    AT_FIND(cublasLtMatmulPreferenceSetAttribute);
#undef AT_FIND
    return cublas;
  }

  // The one that the process has loaded already, if any.
  static void *open() {
    for (const int flag : {RTLD_NOLOAD, 0})
      for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        if (void *const library = dlopen(name, RTLD_NOW | RTLD_LOCAL | flag)) return library;
    return nullptr;
  }
};

struct CublasError {
  cublasStatus_t status;
};

void check(cublasStatus_t status) {
  if (status) throw CublasError{status};
}

cublasLtHandle_t create_handle() {
  cublasLtHandle_t handle;
  check(Cublas::get().cublasLtCreate(&handle));
  return handle;
}

// A batch of column-major matrices.
struct Matrices {
  cudaDataType_t type;
  int64_t rows, columns, pitch, stride;  // in elements
};

cublasLtMatrixLayout_t create_layout(const Matrices &matrices, int32_t slices) {
  const Cublas &cublas = Cublas::get();
  cublasLtMatrixLayout_t layout;
  check(cublas.cublasLtMatrixLayoutCreate(&layout, matrices.type, (uint64_t)matrices.rows, (uint64_t)matrices.columns,
                                          matrices.pitch));
  const auto set = [&](cublasLtMatrixLayoutAttribute_t name, const auto &value) {
    check(cublas.cublasLtMatrixLayoutSetAttribute(layout, name, &value, sizeof value));
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, slices);
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrices.stride);
  return layout;
}

// The limits within which cuBLAS proposes algorithms. Sums must not be split among blocks: how they are may depend on a
// slice's place in the batch.
cublasLtMatmulPreference_t create_preference() {
  const Cublas &cublas = Cublas::get();
  cublasLtMatmulPreference_t preference;
  check(cublas.cublasLtMatmulPreferenceCreate(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto &value) {
    check(cublas.cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value));
  };
  const uint32_t tensors_aligned = 16;
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)CUBLAS_WORKSPACE);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (uint32_t)CUBLASLT_REDUCTION_SCHEME_NONE);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, tensors_aligned);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, tensors_aligned);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, tensors_aligned);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, tensors_aligned);
  return preference;
}

// D = alpha op(A) B for every slice, summed in float32.
class Product {
 public:
  Product(cublasLtHandle_t handle, cublasOperation_t op, const Matrices &a, const Matrices &b, const Matrices &d,
          int32_t slices)
      : handle_(handle), a_(create_layout(a, slices)), b_(create_layout(b, slices)), d_(create_layout(d, slices)) {
    const Cublas &cublas = Cublas::get();
    check(cublas.cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    check(cublas.cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op));
    choose_algorithm();
  }

  void run(float alpha, const void *a, const void *b, void *d, void *workspace, void *stream) const {
    const float beta = 0;  // D is not read
    check(Cublas::get().cublasLtMatmul(handle_, operation_, &alpha, a, a_, b, b_, &beta, d, d_, d, d_, &algorithm_,
                                       workspace, CUBLAS_WORKSPACE, (cudaStream_t)stream));
  }

 private:
  void choose_algorithm() {
    const Cublas &cublas = Cublas::get();
    static const cublasLtMatmulPreference_t preference = create_preference();
    std::vector<cublasLtMatmulHeuristicResult_t> proposals((size_t)at::geometry().host[CUBLAS_HEURISTIC] + 1);
    int count = 0;
    check(cublas.cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a_, b_, d_, d_, preference, (int)proposals.size(),
                                                proposals.data(), &count));
    if (count == 0) throw CublasError{CUBLAS_STATUS_NOT_SUPPORTED};
    const cublasLtMatmulHeuristicResult_t &chosen = proposals[(size_t)count - 1];
    check(chosen.state);
    algorithm_ = chosen.algo;
  }

  cublasLtHandle_t handle_;
  cublasLtMatrixLayout_t a_, b_, d_;
  cublasLtMatmulDesc_t operation_;
  cublasLtMatmulAlgo_t algorithm_;
};

// What the call asks for, and what a chunk needs of the workspace: S and P, each chunk x pitch a slice, and cuBLAS's
// part.
struct Problem {
  int64_t slices, seq_q, seq_k, chunk, pitch, head_dim;

  explicit Problem(const at_call *call) {
    const at_geometry &shape = at::geometry();
    slices = call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS];
    seq_q = call->dim[SDPA_SEQ_Q];
    seq_k = call->dim[SDPA_SEQ_K];
    chunk = shape.host[CUBLAS_CHUNK] && shape.host[CUBLAS_CHUNK] < seq_q ? shape.host[CUBLAS_CHUNK] : seq_q;
    pitch = round_up(seq_k, CUBLAS_ROW_ELEMENTS);
    head_dim = shape.head_dim;
  }

  bool served() const {
    return at::geometry().args_bytes == (int32_t)sizeof(softmax_args) && seq_q <= INT32_MAX / 2 &&
           seq_k <= INT32_MAX / 2 && slices * chunk <= INT32_MAX / 2;
  }

  bool in_place() const { return at::geometry().host[CUBLAS_SCORE_BYTES] == 2; }  // P takes the place of S
  int64_t score_bytes() const { return round_up(slices * chunk * pitch * (in_place() ? 2 : 4), ALIGNMENT); }
  int64_t probability_bytes() const { return in_place() ? 0 : round_up(slices * chunk * pitch * 2, ALIGNMENT); }
  // The workspace that is given may begin anywhere between two multiples of ALIGNMENT.
  int64_t workspace_bytes() const { return ALIGNMENT + score_bytes() + probability_bytes() + CUBLAS_WORKSPACE; }
};

// The two products for a chunk of `rows` queries that see `keys` keys. What is row-major here is the transpose to
// cuBLAS: S^T = K Q^T, where K's columns are stored, and O^T = V^T P^T.
struct Products {
  Product scores, output;

  Products(cublasLtHandle_t handle, const Problem &p, int64_t rows, int64_t keys)
      : scores(handle, CUBLAS_OP_T, {element(), p.head_dim, keys, p.head_dim, p.seq_k * p.head_dim},
               {element(), p.head_dim, rows, p.head_dim, p.seq_q * p.head_dim},
               {p.in_place() ? element() : CUDA_R_32F, keys, rows, p.pitch, rows * p.pitch}, (int32_t)p.slices),
        output(handle, CUBLAS_OP_N, {element(), p.head_dim, keys, p.head_dim, p.seq_k * p.head_dim},
               {element(), keys, rows, p.pitch, rows * p.pitch},
               {element(), p.head_dim, rows, p.head_dim, p.seq_q * p.head_dim}, (int32_t)p.slices) {}

 private:
  static cudaDataType_t element() {
    return at::geometry().host[CUBLAS_DTYPE] == AT_FLOAT16 ? CUDA_R_16F : CUDA_R_16BF;
  }
};

// The products for a shape, made on the first call that needs them, with one handle a device. Nothing is destroyed: at
// the end of the process cuBLAS may be gone before this library is.
const Products &products_for(const Problem &problem, int64_t rows, int64_t keys, CUdevice device) {
  static std::map<CUdevice, cublasLtHandle_t> handles;
  static std::map<std::array<int64_t, 6>, Products> known;
  const std::array<int64_t, 6> key = {device, problem.slices, problem.seq_q, problem.seq_k, rows, keys};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  if (!handles.count(device)) handles[device] = create_handle();
  return known.emplace(key, Products(handles[device], problem, rows, keys)).first->second;
}

constexpr at::Kernel softmax("variant_kernel");

// The rows q0 .. q0 + rows - 1 of every slice.
int attend(const at_call *call, const Problem &p, int64_t q0, int64_t rows, CUdevice device) {
  const bool causal = at::geometry().host[CUBLAS_CAUSAL];
  const int64_t keys = causal && q0 + rows < p.seq_k ? q0 + rows : p.seq_k, first = q0 * p.head_dim * 2;
  char *const scores = (char *)round_up((int64_t)call->workspace, ALIGNMENT);
  char *const probabilities = p.in_place() ? scores : scores + p.score_bytes();
  char *const scratch = scores + p.score_bytes() + p.probability_bytes();
  const Products &products = products_for(p, rows, keys, device);
  products.scores.run((float)call->scalar[SDPA_SCALE], call->in[SDPA_K], (const char *)call->in[SDPA_Q] + first, scores,
                      scratch, call->stream);
  softmax_args args = {scores,        probabilities, p.pitch,      (int32_t)(p.slices * rows),
                       (int32_t)rows, (int32_t)q0,   (int32_t)keys};
  const int32_t block_rows = at::geometry().rows;
  if (const int error = softmax.launch((unsigned)((args.rows + block_rows - 1) / block_rows), &args,
                                       (CUstream)call->stream))
    return at::status(error);
  products.output.run(1, call->in[SDPA_V], probabilities, (char *)call->out[SDPA_O] + first, scratch, call->stream);
  return AT_OK;
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *call) { return Problem(call).workspace_bytes(); }

extern "C" int variant_run(const at_call *call) {
  const Problem problem(call);
  if (!problem.served()) return AT_OUTSIDE_DOMAIN;
  if (!call->workspace || call->workspace_bytes < problem.workspace_bytes()) return AT_NO_WORKSPACE;
  CUdevice device;
  if (const int error = at_cuda_device(&device)) return at::status(error);
  if (!Cublas::get().found) return at::status(CUDA_ERROR_NOT_FOUND);
  try {
    for (int64_t q0 = 0; q0 < problem.seq_q; q0 += problem.chunk) {
      const int64_t rows = problem.seq_q - q0 < problem.chunk ? problem.seq_q - q0 : problem.chunk;
      if (const int error = attend(call, problem, q0, rows, device)) return error;
    }
  } catch (const CublasError &error) {
    return AT_DEVICE_ERROR + CUBLAS_ERROR + (int)error.status;
  }
  return AT_OK;
}
