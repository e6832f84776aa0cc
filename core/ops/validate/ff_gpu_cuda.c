// ff_gpu_cuda.c: loads libcuda.so.1, opens the device, and waits for it with a deadline.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ops/validate/ff_gpu_cuda.h"

// The kernels as text, which the driver compiles for the device.
__asm__(
    "  .pushsection .rodata\n"
    "ff_kernels_70:\n"
    "  .incbin \"" FF_KERNELS_FOLDER
    "/ff_gpu_kernels_70.ptx\"\n"
    "  .byte 0\n"
    "ff_kernels_80:\n"
    "  .incbin \"" FF_KERNELS_FOLDER
    "/ff_gpu_kernels_80.ptx\"\n"
    "  .byte 0\n"
    "  .popsection\n");
extern const char ff_kernels_70[], ff_kernels_80[];

#define DEFINE_CUDA(name, symbol, arguments) CUresult(*name) arguments;
CUDA_FUNCTIONS(DEFINE_CUDA)

struct gpu gpu;
static const char* step_now = "the driver";

enum { POLL_NS = 100000, BLOCKS_PER_PROCESSOR = 8 };
enum { PAGE = 2 << 20, RESERVE = 32 << 20 };  // what is left to the driver

void begin_step(const char* step) {
  static struct line line;
  step_now = step;
  begin_line(&line, "begin", -1);
  add_text(&line, "step", step);
  end_line(&line);
}

static void end_with(const char* event, const char* call, CUresult code) {
  static struct line line;
  report_xids();
  begin_line(&line, event, -1);
  add_text(&line, "step", step_now);
  if (call != NULL) {
    const char* name = NULL;
    const char* text = NULL;
    if (cuGetErrorName != NULL) cuGetErrorName(code, &name);
    if (cuGetErrorString != NULL) cuGetErrorString(code, &text);
    add_text(&line, "call", call);
    add_number(&line, "code", (unsigned)code);
    add_text(&line, "name", name != NULL ? name : "");
    add_text(&line, "text", text != NULL ? text : "");
  }
  end_line(&line);
  _exit(1);  // a driver that hangs would hang at the end of the program, too
}

void must(const char* call, CUresult code) {
  if (code != CUDA_SUCCESS) end_with("failed", call, code);
}

static void missing(const char* call, const char* text) {
  static struct line line;
  begin_line(&line, "failed", -1);
  add_text(&line, "step", step_now);
  add_text(&line, "call", call);
  add_text(&line, "text", text);
  end_line(&line);
  _exit(1);
}

static void load_cuda(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    const char* const text = dlerror();
    missing("dlopen", text != NULL ? text : "");
  }
  void* found = NULL;
#define LOAD_CUDA(name, symbol, arguments)                                           \
  found = dlsym(library, #symbol);                                                   \
  if (found == NULL) missing("dlsym", "libcuda.so.1 is too old: it lacks " #symbol); \
  memcpy(&name, &found, sizeof found);
  CUDA_FUNCTIONS(LOAD_CUDA)
}

void open_device(const char* address) {
  static struct line line;
  char name[TEXT_MAX] = "";
  int processors = 0, major = 0, minor = 0, version = 0;
  size_t free_bytes = 0, bytes = 0;
  begin_step("the driver");
  load_cuda();
  MUST(cuInit, 0);
  begin_step("the device");
  MUST(cuDeviceGetByPCIBusId, &gpu.device, address);
  MUST(cuDeviceGetName, name, sizeof name, gpu.device);
  MUST(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device);
  MUST(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu.device);
  MUST(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu.device);
  MUST(cuDriverGetVersion, &version);
  MUST(cuDevicePrimaryCtxRetain, &gpu.context, gpu.device);
  MUST(cuCtxSetCurrent, gpu.context);
  MUST(cuMemGetInfo, &free_bytes, &bytes);
  gpu.blocks = (unsigned)processors * BLOCKS_PER_PROCESSOR;
  gpu.capability = major * 10 + minor;
  begin_line(&line, "device", -1);
  add_text(&line, "pci", address);
  add_text(&line, "name", name);
  add_number(&line, "processors", (unsigned)processors);
  add_number(&line, "capability", (unsigned)gpu.capability);
  add_number(&line, "version", (unsigned)version);
  add_number(&line, "bytes", bytes);
  add_number(&line, "free", free_bytes);
  end_line(&line);
  if (gpu.capability < 70) missing("cuDeviceGetAttribute", "the GPU is older than Volta");
  MUST(cuStreamCreate, &gpu.stream, CU_STREAM_NON_BLOCKING);
  MUST(cuEventCreate, &gpu.begin, 0);
  MUST(cuEventCreate, &gpu.end, 0);
}

CUfunction find_kernel(int kernels, const char* name) {
  static CUmodule modules[2];
  CUmodule* const module = &modules[kernels == 80];
  CUfunction found = NULL;
  if (*module == NULL)
    MUST(cuModuleLoadData, module, kernels == 80 ? ff_kernels_80 : ff_kernels_70);
  MUST(cuModuleGetFunction, &found, *module, name);
  return found;
}

void launch(CUfunction kernel, unsigned blocks, void** arguments) {
  MUST(cuLaunchKernel, kernel, blocks, 1, 1, FF_THREADS, 1, 1, 0, gpu.stream, arguments, NULL);
}

long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

void begin_time(void) { MUST(cuEventRecord, gpu.begin, gpu.stream); }

void finish(void) {
  const long long deadline = now_ms() + gpu.hang_ms;
  MUST(cuEventRecord, gpu.end, gpu.stream);
  for (;;) {
    const CUresult code = cuEventQuery(gpu.end);
    if (code == CUDA_SUCCESS) break;
    if (code != CUDA_ERROR_NOT_READY) must("cuEventQuery", code);
    if (now_ms() > deadline) end_with("hang", NULL, 0);
    const struct timespec pause = {0, POLL_NS};
    nanosleep(&pause, NULL);
  }
}

double end_time(void) {
  float milliseconds = 0;
  finish();
  MUST(cuEventElapsedTime, &milliseconds, gpu.begin, gpu.end);
  return (double)milliseconds / 1000;
}

void take_memory(struct pieces* pieces) {
  size_t bytes = 0, left = 0, whole = 0;
  memset(pieces, 0, sizeof *pieces);
  begin_step("its memory");
  MUST(cuMemGetInfo, &left, &whole);
  if (left > 2 * RESERVE) left -= RESERVE;
  for (bytes = left / PAGE * PAGE; bytes >= PAGE && pieces->count < PIECES_MAX;) {
    CUdeviceptr at = 0;
    const CUresult code = cuMemAlloc(&at, bytes);
    if (code == CUDA_SUCCESS) {
      pieces->at[pieces->count] = at;
      pieces->bytes[pieces->count++] = bytes;
      pieces->all += bytes;
      left -= bytes;
      if (bytes > left) bytes = left / PAGE * PAGE;
    } else if (code == CUDA_ERROR_OUT_OF_MEMORY) {
      bytes -= bytes / 64 > PAGE ? bytes / 64 / PAGE * PAGE : PAGE;
    } else {
      must("cuMemAlloc", code);
    }
  }
  if (pieces->count == 0) must("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
}
