// A libcuda.so.1 for the tests of ff-gpu: two devices whose work is done as soon as it is enqueued,
// while events take their times from a model of a healthy A100. It runs the source of the kernels
// (ff_gpu_kernels.cu) thread by thread, with tensor cores of its own. FF_FAKE_NVML makes it sick,
// in step with fake_nvml.c:
//
//   memory-bit   bit 17 of one word stays zero       input-bit     an element of a factor changes
//   core         multiprocessor 3 adds 1 in bf16     copy-bit      a copy to the host flips a bit
//   slow-link    copies take four times as long      slow-peer     those between devices do
//   hung-kernel  the product in tf32 never ends      hung-copy     the copy to the host never ends
//   hung-driver  cuInit never returns                broken        a kernel ends with an error
//   no-device    cuInit finds none                   no-memory     another program has it all
//
// It also has what libff.so calls, for tests/gpu/run.py: tests/training/cuda has a driver that
// finds mistakes in the order of work.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What nvcc has, in place of a device. ------------------------------------------------------------

namespace {

struct Index {
  unsigned x = 0;
};
Index gridDim, blockDim, blockIdx, threadIdx;

bool scenario(const char* name) {
  const char* const now = std::getenv("FF_FAKE_NVML");
  return now != nullptr && std::strcmp(now, name) == 0;
}

// Integers that are exact in the type; the layout of its bits is nobody's business.
template <int>
struct Small {
  int16_t value;
  explicit Small(float from) : value(static_cast<int16_t>(from)) {}
  explicit operator double() const { return value; }
};
using __half = Small<0>;
using __nv_bfloat16 = Small<1>;

void __syncwarp() {}
unsigned multiprocessor() { return blockIdx.x % 4; }
unsigned long long atomicAdd(unsigned long long* to, unsigned long long more) {
  return std::exchange(*to, *to + more);
}
long long __double_as_longlong(double value) {
  long long bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major };
namespace precision {
struct tf32;
}

// Rows of A, columns of B, or rows of sums. The first lane of a warp has all of it.
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  double at[16][16];
};
inline bool is_first_lane() { return threadIdx.x % 32 == 0; }

template <int K, class Sum>
void fill_fragment(fragment<accumulator, 16, 16, K, Sum>& sums, Sum value) {
  for (auto& row : sums.at)
    for (double& one : row) one = static_cast<double>(value);
}

template <class Use, int K, class T, class Layout, class From>
void load_matrix_sync(fragment<Use, 16, 16, K, T, Layout>& into, const From* from,
                      unsigned stride) {
  if (!is_first_lane()) return;
  for (unsigned i = 0; i < 16; i++)
    for (unsigned k = 0; k < K; k++) into.at[i][k] = static_cast<double>(from[i * stride + k]);
}

template <int K, class T, class Sum>
void mma_sync(fragment<accumulator, 16, 16, K, Sum>& to,
              const fragment<matrix_a, 16, 16, K, T, row_major>& a,
              const fragment<matrix_b, 16, 16, K, T, col_major>& b,
              const fragment<accumulator, 16, 16, K, Sum>& from) {
  if (!is_first_lane()) return;
  for (int i = 0; i < 16; i++) {
    for (int j = 0; j < 16; j++) {
      double sum = from.at[i][j];
      for (int k = 0; k < K; k++) sum += a.at[i][k] * b.at[j][k];
      to.at[i][j] = sum;
    }
  }
  static const bool is_sick = scenario("core");
  if (is_sick && std::is_same_v<T, __nv_bfloat16> && multiprocessor() == 3) to.at[5][7] += 1;
}

template <int K, class Sum>
void store_matrix_sync(Sum* to, const fragment<accumulator, 16, 16, K, Sum>& sums, unsigned stride,
                       layout_t) {
  if (!is_first_lane()) return;
  for (unsigned i = 0; i < 16; i++)
    for (unsigned j = 0; j < 16; j++) to[i * stride + j] = static_cast<Sum>(sums.at[i][j]);
}

}  // namespace nvcuda::wmma

#define __global__
#define __device__
#define __shared__ static
#define __align__(bytes) alignas(bytes)
#define FF_KERNELS 0
#include "ops/validate/ff_gpu_kernels.cu"

// The driver. -------------------------------------------------------------------------------------

namespace {

enum { kOk = 0, kInvalid = 1, kNoMemory = 2, kNoDevice = 100, kNotFound = 500, kBusy = 600 };
enum { kEccError = 214 };
constexpr size_t kFree = 24 << 20, kLargest = 16 << 20;
constexpr double kLink = 26e9, kMemory = 1.7e12, kPeer = 250e9;  // bytes per second

struct Stream {
  double seconds = 0;
};
struct Event {
  double seconds = 0;
};
struct Function {
  std::string name;
};

std::recursive_mutex mutex;          // libff.so has threads
std::map<uintptr_t, size_t> memory;  // guarded by the mutex
size_t used = 0;
thread_local std::vector<void*> contexts;  // the last one is current
void* current() { return contexts.empty() ? nullptr : contexts.back(); }
bool is_hung = false;
int error = kOk;  // of the kernels so far

Stream& stream_of(void* handle) { return *static_cast<Stream*>(handle); }

bool is_memory(uintptr_t at, size_t bytes) {
  const std::lock_guard lock(mutex);
  auto found = memory.upper_bound(at);
  if (found == memory.begin()) return false;
  --found;
  return at + bytes <= found->first + found->second;
}

int copy(void* to, const void* from, size_t bytes, void* stream, double rate) {
  const std::lock_guard lock(mutex);
  std::memcpy(to, from, bytes);
  stream_of(stream).seconds += static_cast<double>(bytes) / rate;
  return kOk;
}

double link_rate() {
  return scenario("slow-link") ? kLink / 4 : scenario("few-lanes") ? kLink / 2 : kLink;
}

template <class... Arguments, size_t... Is>
void call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<Is...>) {
  const std::tuple<Arguments...> values{*static_cast<Arguments*>(arguments[Is])...};
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) std::apply(kernel, values);
  }
}

template <class... Arguments>
void call(void (*kernel)(Arguments...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<Arguments...>());
}

void run_kernel(const std::string& name, void** arguments) {
#define KERNEL(kernel) \
  if (name == #kernel) return call(kernel, arguments)
  KERNEL(ff_pattern_write);
  KERNEL(ff_pattern_check);
  KERNEL(ff_fill_fp64);
  KERNEL(ff_fill_fp32);
  KERNEL(ff_fill_fp16);
  KERNEL(ff_gemm_fp64);
  KERNEL(ff_gemm_fp32);
  KERNEL(ff_gemm_fp16);
  KERNEL(ff_fill_bf16);
  KERNEL(ff_fill_tf32);
  KERNEL(ff_fill_int8);
  KERNEL(ff_gemm_bf16);
  KERNEL(ff_gemm_tf32);
  KERNEL(ff_gemm_int8);
  std::abort();
}

void make_sick(const std::string& name, void** arguments) {
  constexpr ff_word kSickWord = 2'345'678;  // in the second piece of memory
  if (name == "ff_pattern_write" && scenario("memory-bit")) {
    auto* const words = *static_cast<ff_word**>(arguments[0]);
    const ff_word count = *static_cast<ff_word*>(arguments[1]);
    const ff_word first = *static_cast<ff_word*>(arguments[2]);
    if (first <= kSickWord && kSickWord < first + count)
      words[kSickWord - first] &= ~(ff_word{1} << 17);
  }
  if (name == "ff_fill_fp64" && scenario("input-bit")) {
    auto* const inputs = *static_cast<double**>(arguments[0]);
    inputs[2 * FF_MATRIX + 3 * FF_SIDE] += 1;  // row 3 of the second copy
  }
  if (name == "ff_gemm_tf32" && scenario("hung-kernel")) is_hung = true;
  if (name == "ff_gemm_int8" && scenario("broken")) error = kEccError;
}

}  // namespace

#define FAKE __attribute__((visibility("default")))

extern "C" {

FAKE int cuInit(unsigned) {
  while (scenario("hung-driver")) ::pause();
  return scenario("no-device") ? kNoDevice : kOk;
}

FAKE int cuGetErrorName(int code, const char** name) {
  *name = code == kEccError   ? "CUDA_ERROR_ECC_UNCORRECTABLE"
          : code == kNoDevice ? "CUDA_ERROR_NO_DEVICE"
          : code == kNoMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
                              : nullptr;
  return *name != nullptr ? kOk : kInvalid;
}
FAKE int cuGetErrorString(int code, const char** text) {
  *text = code == kEccError ? "uncorrectable ECC error encountered" : nullptr;
  return *text != nullptr ? kOk : kInvalid;
}
FAKE int cuDriverGetVersion(int* version) { return *version = 12040, kOk; }
FAKE int cuDeviceGetCount(int* count) { return *count = 2, kOk; }
FAKE int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, kOk; }
FAKE int cuDeviceGetByPCIBusId(int* device, const char* address) {
  *device = std::strcmp(address, "0000:1b:00.0") == 0 ? 0 : 1;
  return *device == 0 || std::strcmp(address, "0000:36:00.0") == 0 ? kOk : kNoDevice;
}
FAKE int cuDeviceGetPCIBusId(char* address, int room, int device) {
  std::snprintf(address, static_cast<size_t>(room), "0000:%s:00.0", device == 0 ? "1B" : "36");
  return kOk;
}
FAKE int cuDeviceGetName(char* name, int room, int) {
  std::snprintf(name, static_cast<size_t>(room), "NVIDIA A100-SXM4-80GB");
  return kOk;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 16 ? 2 : attribute == 75 ? 8 : 0;
  return kOk;
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  static int contexts[2];
  *context = &contexts[device];
  return kOk;
}
FAKE int cuDevicePrimaryCtxRelease_v2(int) { return kOk; }
FAKE int cuCtxSetCurrent(void* context) {
  if (!contexts.empty()) contexts.pop_back();
  return contexts.push_back(context), kOk;
}
FAKE int cuDeviceCanAccessPeer(int* can, int, int) { return *can = 1, kOk; }
FAKE int cuCtxEnablePeerAccess(void*, unsigned) { return kOk; }
FAKE int cuModuleLoadData(void** module, const void* image) {
  *module = const_cast<void*>(image);
  return kOk;
}
FAKE int cuModuleGetFunction(void** function, void* module, const char* name) {
  const std::string entry = std::string(".entry ") + name + "(";
  if (std::strstr(static_cast<const char*>(module), entry.c_str()) == nullptr) return kNotFound;
  *function = new Function{name};
  return kOk;
}

FAKE int cuMemGetInfo_v2(size_t* left, size_t* whole) {
  *whole = 2 * kFree;
  *left = scenario("no-memory") ? 0 : kFree - used;
  return kOk;
}
FAKE int cuMemAlloc_v2(uintptr_t* at, size_t bytes) {
  if (bytes > kLargest || bytes > kFree - used) return kNoMemory;
  *at = reinterpret_cast<uintptr_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  const std::lock_guard lock(mutex);
  memory[*at] = bytes;
  used += bytes < (1 << 20) ? 0 : bytes;
  return kOk;
}
FAKE int cuMemFree_v2(uintptr_t at) {
  const std::lock_guard lock(mutex);
  used -= memory[at] < (1 << 20) ? 0 : memory[at];
  memory.erase(at);
  std::free(reinterpret_cast<void*>(at));
  return kOk;
}
FAKE int cuMemHostAlloc(void** at, size_t bytes, unsigned) {
  *at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return kOk;
}
FAKE int cuMemsetD8Async(uintptr_t at, unsigned char value, size_t bytes, void*) {
  if (!is_memory(at, bytes)) return kInvalid;
  std::memset(reinterpret_cast<void*>(at), value, bytes);
  return kOk;
}
FAKE int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t bytes, void* stream) {
  if (!is_memory(to, bytes)) return kInvalid;
  return copy(reinterpret_cast<void*>(to), from, bytes, stream, link_rate());
}
FAKE int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t bytes, void* stream) {
  if (!is_memory(from, bytes)) return kInvalid;
  (void)copy(to, reinterpret_cast<void*>(from), bytes, stream, link_rate());
  if (scenario("hung-copy")) is_hung = true;
  if (scenario("copy-bit") && bytes > 4096) static_cast<char*>(to)[4096] ^= 2;
  return kOk;
}
FAKE int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, void* stream) {
  if (!is_memory(to, bytes) || !is_memory(from, bytes)) return kInvalid;
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, stream,
              kMemory / 2);
}
FAKE int cuMemcpyPeerAsync(uintptr_t to, void*, uintptr_t from, void*, size_t bytes, void* stream) {
  if (!is_memory(to, bytes) || !is_memory(from, bytes)) return kInvalid;
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, stream,
              scenario("slow-peer") ? kPeer / 4 : kPeer);
}

FAKE int cuStreamCreate(void** stream, unsigned) { return *stream = new Stream(), kOk; }
FAKE int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  stream_of(stream).seconds =
      std::max(stream_of(stream).seconds, static_cast<Event*>(event)->seconds);
  return kOk;
}
FAKE int cuEventCreate(void** event, unsigned) { return *event = new Event(), kOk; }
FAKE int cuEventRecord(void* event, void* stream) {
  static_cast<Event*>(event)->seconds = stream_of(stream).seconds;
  return kOk;
}
FAKE int cuEventQuery(void*) { return is_hung ? kBusy : error; }
FAKE int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  *milliseconds = static_cast<float>(
      (static_cast<Event*>(end)->seconds - static_cast<Event*>(begin)->seconds) * 1000);
  return kOk;
}

FAKE int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned, void* stream, void** arguments, void**) {
  constexpr double kSeconds = 0.06;
  const std::string& name = static_cast<Function*>(function)->name;
  gridDim.x = blocks;
  blockDim.x = threads;
  run_kernel(name, arguments);
  make_sick(name, arguments);
  stream_of(stream).seconds += kSeconds;
  return kOk;
}

// What libff.so and tests/gpu call.
// ----------------------------------------------------------------

FAKE int cuCtxGetCurrent(void** context) { return *context = current(), kOk; }
FAKE int cuCtxGetDevice(int* device) { return *device = 0, kOk; }
FAKE int cuCtxPushCurrent_v2(void* context) { return contexts.push_back(context), kOk; }
FAKE int cuCtxPopCurrent_v2(void** context) {
  *context = current();
  return contexts.pop_back(), kOk;
}
FAKE int cuCtxSynchronize() { return error; }
FAKE int cuPointerGetAttribute(void* data, int attribute, uintptr_t pointer) {
  if (!is_memory(pointer, 1)) return kInvalid;
  *static_cast<int*>(data) = attribute == 2 ? 2 : 0;
  return kOk;
}
FAKE int cuMemHostRegister_v2(void*, size_t, unsigned) { return kOk; }
FAKE int cuMemHostUnregister(void*) { return kOk; }
FAKE int cuMemcpyHtoD_v2(uintptr_t to, const void* from, size_t bytes) {
  if (!is_memory(to, bytes)) return kInvalid;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kOk;
}
FAKE int cuMemcpyDtoH_v2(void* to, uintptr_t from, size_t bytes) {
  if (!is_memory(from, bytes)) return kInvalid;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return kOk;
}
FAKE int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return kOk;
}
FAKE int cuStreamQuery(void*) { return error; }
FAKE int cuStreamSynchronize(void*) { return error; }
FAKE int cuStreamIsCapturing(void*, int* status) { return *status = 0, kOk; }
FAKE int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kOk;
}

}  // extern "C"
