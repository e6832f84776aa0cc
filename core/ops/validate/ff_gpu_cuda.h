// Parts of ff-gpu: the functions of NVIDIA's driver (CUDA driver API) that loads call, and the
// device that the program works on. An error ends the program: it serves one load on one device.
#pragma once

#include <stddef.h>

#include "ops/validate/ff_gpu.h"
#include "ops/validate/ff_gpu_kernels.h"

// From the CUDA documentation (docs.nvidia.com/cuda/cuda-driver-api); its enums are ints.
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_READY = 600 };
enum { CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};

// Where NVIDIA has changed a function, the library has it under a name with a version.
#define CUDA_FUNCTIONS(F)                                                                        \
  F(cuInit, cuInit, (unsigned))                                                                  \
  F(cuGetErrorName, cuGetErrorName, (CUresult, const char**))                                    \
  F(cuGetErrorString, cuGetErrorString, (CUresult, const char**))                                \
  F(cuDriverGetVersion, cuDriverGetVersion, (int*))                                              \
  F(cuDeviceGetCount, cuDeviceGetCount, (int*))                                                  \
  F(cuDeviceGet, cuDeviceGet, (CUdevice*, int))                                                  \
  F(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, (CUdevice*, const char*))                      \
  F(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char*, int, CUdevice))                            \
  F(cuDeviceGetName, cuDeviceGetName, (char*, int, CUdevice))                                    \
  F(cuDeviceGetAttribute, cuDeviceGetAttribute, (int*, int, CUdevice))                           \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                  \
  F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))                         \
  F(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext))                                               \
  F(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int*, CUdevice, CUdevice))                    \
  F(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext, unsigned))                         \
  F(cuModuleLoadData, cuModuleLoadData, (CUmodule*, const void*))                                \
  F(cuModuleGetFunction, cuModuleGetFunction, (CUfunction*, CUmodule, const char*))              \
  F(cuMemGetInfo, cuMemGetInfo_v2, (size_t*, size_t*))                                           \
  F(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr*, size_t))                                           \
  F(cuMemFree, cuMemFree_v2, (CUdeviceptr))                                                      \
  F(cuMemHostAlloc, cuMemHostAlloc, (void**, size_t, unsigned))                                  \
  F(cuMemsetD8Async, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))            \
  F(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void*, size_t, CUstream))       \
  F(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void*, CUdeviceptr, size_t, CUstream))             \
  F(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))       \
  F(cuMemcpyPeerAsync, cuMemcpyPeerAsync,                                                        \
    (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))                          \
  F(cuStreamCreate, cuStreamCreate, (CUstream*, unsigned))                                       \
  F(cuStreamWaitEvent, cuStreamWaitEvent, (CUstream, CUevent, unsigned))                         \
  F(cuEventCreate, cuEventCreate, (CUevent*, unsigned))                                          \
  F(cuEventRecord, cuEventRecord, (CUevent, CUstream))                                           \
  F(cuEventQuery, cuEventQuery, (CUevent))                                                       \
  F(cuEventElapsedTime, cuEventElapsedTime, (float*, CUevent, CUevent))                          \
  F(cuLaunchKernel, cuLaunchKernel,                                                              \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
     void**, void**))

#define DECLARE_CUDA(name, symbol, arguments) extern CUresult(*name) arguments;
CUDA_FUNCTIONS(DECLARE_CUDA)

// The device, its context (current in the only thread) and what is made in it.
struct gpu {
  CUdevice device;
  CUcontext context;
  CUstream stream;
  CUevent begin, end;  // of what is timed
  unsigned blocks;     // that a kernel is started with
  int capability;      // 80: the A100
  nvmlDevice_t nvml;   // null: no NVML, or it does not know the device
  nvmlEventSet_t events;
  long long hang_ms;  // how long one step may take
};
extern struct gpu gpu;

// Writes the name of what begins, which is reported if it fails or hangs.
void begin_step(const char* step);
// Ends the program with an error of the driver unless `code` is that of success.
void must(const char* call, CUresult code);
#define MUST(call, ...) must(#call, call(__VA_ARGS__))

// Opens the device at an address of the kernel ("0000:17:00.0").
void open_device(const char* address);
CUfunction find_kernel(int kernels, const char* name);  // of the module 70 or 80
// Starts a kernel of `blocks` blocks on the stream of the device.
void launch(CUfunction kernel, unsigned blocks, void** arguments);
// Records the begin of what is timed.
void begin_time(void);
// Waits until the stream is empty, and ends the program with a report if that takes too long.
void finish(void);
double end_time(void);  // the same; the seconds since begin_time()

// All free memory of the device but for a little, in pieces, largest first; at least one.
enum { PIECES_MAX = 64 };
struct pieces {
  int count;
  CUdeviceptr at[PIECES_MAX];
  size_t bytes[PIECES_MAX];
  size_t all;
};
void take_memory(struct pieces* pieces);

// The clock of the host.
long long now_ms(void);

// What NVML has to say: reports Xids that have occurred since the last call.
void report_xids(void);
// Total ECC errors of the memory; false: unknown.
int read_ecc(ff_word* corrected, ff_word* uncorrected);

void load_memory(long long milliseconds);
void load_gemm(long long milliseconds);
void load_copy(long long milliseconds, int with_peers);
