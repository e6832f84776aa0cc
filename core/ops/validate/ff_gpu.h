// Parts of ff-gpu (ff_gpu.c): lines of output, and the functions of the NVIDIA management library.
#pragma once

#include <stddef.h>

// From the NVML documentation (docs.nvidia.com/deploy/nvml-api); its enums are ints.
typedef int nvmlReturn_t;
enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
};
enum { NVML_TEMPERATURE_GPU = 0 };
enum { NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1 };
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
enum { NVML_MEMORY_ERROR_TYPE_CORRECTED = 0, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1 };
enum { NVML_VOLATILE_ECC = 0, NVML_AGGREGATE_ECC = 1 };
enum {
  NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS = 0,
  NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR = 1,
};
enum {
  NVML_NVLINK_ERROR_DL_REPLAY = 0,
  NVML_NVLINK_ERROR_DL_RECOVERY = 1,
  NVML_NVLINK_ERROR_DL_CRC_FLIT = 2,
  NVML_NVLINK_ERROR_DL_CRC_DATA = 3,
};
enum { NVML_FEATURE_ENABLED = 1 };
enum { NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 90, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230 };
enum { nvmlEventTypeXidCriticalError = 8 };

typedef struct nvmlDevice_st* nvmlDevice_t;
typedef struct nvmlEventSet_st* nvmlEventSet_t;

// Of nvmlEventSetWait_v2; the first version fills less.
typedef struct {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;  // of an Xid: its code
  unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

// As filled by nvmlDeviceGetPciInfo_v3; _v2 fills less, and does not write beyond its end.
typedef struct {
  char busIdLegacy[16];  // "0000:17:00.0"
  unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];  // "00000000:17:00.0"
} nvmlPciInfo_t;

typedef struct {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
  unsigned int fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType;
  nvmlReturn_t nvmlReturn;
  union {
    double dVal;
    int siVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
  } value;
} nvmlFieldValue_t;

// Functions that the library exports; a missing one is null.
#define FUNCTIONS(F)                                                                              \
  F(nvmlReturn_t, nvmlInit_v2, (void))                                                            \
  F(nvmlReturn_t, nvmlShutdown, (void))                                                           \
  F(const char*, nvmlErrorString, (nvmlReturn_t))                                                 \
  F(nvmlReturn_t, nvmlSystemGetDriverVersion, (char*, unsigned int))                              \
  F(nvmlReturn_t, nvmlSystemGetNVMLVersion, (char*, unsigned int))                                \
  F(nvmlReturn_t, nvmlDeviceGetCount_v2, (unsigned int*))                                         \
  F(nvmlReturn_t, nvmlDeviceGetHandleByIndex_v2, (unsigned int, nvmlDevice_t*))                   \
  F(nvmlReturn_t, nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t*))                        \
  F(nvmlReturn_t, nvmlDeviceGetPciInfo_v2, (nvmlDevice_t, nvmlPciInfo_t*))                        \
  F(nvmlReturn_t, nvmlDeviceGetName, (nvmlDevice_t, char*, unsigned int))                         \
  F(nvmlReturn_t, nvmlDeviceGetUUID, (nvmlDevice_t, char*, unsigned int))                         \
  F(nvmlReturn_t, nvmlDeviceGetTemperature, (nvmlDevice_t, int, unsigned int*))                   \
  F(nvmlReturn_t, nvmlDeviceGetTemperatureThreshold, (nvmlDevice_t, int, unsigned int*))          \
  F(nvmlReturn_t, nvmlDeviceGetPowerUsage, (nvmlDevice_t, unsigned int*))                         \
  F(nvmlReturn_t, nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t, unsigned int*))                 \
  F(nvmlReturn_t, nvmlDeviceGetClockInfo, (nvmlDevice_t, int, unsigned int*))                     \
  F(nvmlReturn_t, nvmlDeviceGetMaxClockInfo, (nvmlDevice_t, int, unsigned int*))                  \
  F(nvmlReturn_t, nvmlDeviceGetCurrentClocksEventReasons, (nvmlDevice_t, unsigned long long*))    \
  F(nvmlReturn_t, nvmlDeviceGetCurrentClocksThrottleReasons, (nvmlDevice_t, unsigned long long*)) \
  F(nvmlReturn_t, nvmlDeviceGetEccMode, (nvmlDevice_t, int*, int*))                               \
  F(nvmlReturn_t, nvmlDeviceGetTotalEccErrors, (nvmlDevice_t, int, int, unsigned long long*))     \
  F(nvmlReturn_t, nvmlDeviceGetRemappedRows,                                                      \
    (nvmlDevice_t, unsigned int*, unsigned int*, unsigned int*, unsigned int*))                   \
  F(nvmlReturn_t, nvmlDeviceGetRetiredPages,                                                      \
    (nvmlDevice_t, int, unsigned int*, unsigned long long*))                                      \
  F(nvmlReturn_t, nvmlDeviceGetRetiredPagesPendingStatus, (nvmlDevice_t, int*))                   \
  F(nvmlReturn_t, nvmlDeviceGetNvLinkState, (nvmlDevice_t, unsigned int, int*))                   \
  F(nvmlReturn_t, nvmlDeviceGetNvLinkErrorCounter,                                                \
    (nvmlDevice_t, unsigned int, int, unsigned long long*))                                       \
  F(nvmlReturn_t, nvmlDeviceGetPersistenceMode, (nvmlDevice_t, int*))                             \
  F(nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses_v3,                                        \
    (nvmlDevice_t, unsigned int*, nvmlProcessInfo_t*))                                            \
  F(nvmlReturn_t, nvmlDeviceGetFieldValues, (nvmlDevice_t, int, nvmlFieldValue_t*))               \
  F(nvmlReturn_t, nvmlDeviceGetHandleByPciBusId_v2, (const char*, nvmlDevice_t*))                 \
  F(nvmlReturn_t, nvmlDeviceGetCurrPcieLinkGeneration, (nvmlDevice_t, unsigned int*))             \
  F(nvmlReturn_t, nvmlDeviceGetCurrPcieLinkWidth, (nvmlDevice_t, unsigned int*))                  \
  F(nvmlReturn_t, nvmlDeviceGetMaxPcieLinkGeneration, (nvmlDevice_t, unsigned int*))              \
  F(nvmlReturn_t, nvmlDeviceGetMaxPcieLinkWidth, (nvmlDevice_t, unsigned int*))                   \
  F(nvmlReturn_t, nvmlDeviceGetMemoryBusWidth, (nvmlDevice_t, unsigned int*))                     \
  F(nvmlReturn_t, nvmlDeviceGetNvLinkRemotePciInfo_v2,                                            \
    (nvmlDevice_t, unsigned int, nvmlPciInfo_t*))                                                 \
  F(nvmlReturn_t, nvmlEventSetCreate, (nvmlEventSet_t*))                                          \
  F(nvmlReturn_t, nvmlDeviceRegisterEvents, (nvmlDevice_t, unsigned long long, nvmlEventSet_t))   \
  F(nvmlReturn_t, nvmlEventSetWait_v2, (nvmlEventSet_t, nvmlEventData_t*, unsigned int))

#define DECLARE(result, name, arguments) extern result(*name) arguments;
FUNCTIONS(DECLARE)

enum { TEXT_MAX = 128, LINKS_MAX = 64, PROCESSES_MAX = 256 };

// Lines of output. --------------------------------------------------------------------------------

// The line that is being built. Much longer than needed for one GPU; excess is dropped.
struct line {
  size_t used;
  char bytes[32768];
};

void add(struct line* line, const char* text);
// Adds a comma first if needed. `name` null: an array element.
void add_name(struct line* line, const char* name);
void add_text(struct line* line, const char* name, const char* text);
void add_number(struct line* line, const char* name, unsigned long long number);
void begin_object(struct line* line, const char* name);
// `gpu` < 0: not about a GPU.
void begin_line(struct line* line, const char* event, int gpu);
void end_line(struct line* line);
void write_event(const char* event, int gpu);
void write_error(int gpu, const char* call, nvmlReturn_t code, const char* text);

// Calls of NVML. ----------------------------------------------------------------------------------

extern int gpu_now;  // the GPU of the current calls
extern int is_lost;  // it fell off the bus: skip further calls

// Whether a call returned a value. "Not supported" is not an error; the library rejects enum values
// newer than itself as invalid.
int told(const char* call, nvmlReturn_t code);

#define ASK(call, ...) (!is_lost && (call) != NULL && told(#call, call(__VA_ARGS__)))

// Whether the library is there and has what every version has; if not, it has written an error.
int load_nvml(void);

// What the program does. --------------------------------------------------------------------------

// Prints what NVML reports about all GPUs; the exit status.
int query_nvml(void);
// A load on one GPU (ff_gpu_load.c); the exit status.
int run_load(int count, char** words);
