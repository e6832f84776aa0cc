// Prints what the NVIDIA management library (NVML) reports about the GPUs of this machine, as lines
// of JSON on standard output. It is a separate program since a static program cannot load the
// driver library, and since that library may hang or crash: each line is flushed before the next
// call, so the last line shows where it stopped. `ff` embeds this program and runs it (gpu.cc).
// Plain C with its own prototypes, by the names of NVIDIA; it needs glibc 2.34 or later.
//
//   {"event":"begin"}                          before the first call
//   {"event":"driver","driver":…,"nvml":…,"count":8}
//   {"event":"begin","gpu":0}                  before the first call about a GPU
//   {"event":"at","gpu":0,"pci":…,"name":…}    the GPU is identified
//   {"event":"gpu","gpu":0,"celsius":35,…}     values; unavailable ones are absent
//   {"event":"error","gpu":0,"call":…,"code":15,"text":…}   without "gpu": of the library itself
//   {"event":"end"}                            before the last call
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

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
enum { NVML_CLOCK_SM = 1 };
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
enum { NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230 };

typedef struct nvmlDevice_st* nvmlDevice_t;

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
  F(nvmlReturn_t, nvmlDeviceGetFieldValues, (nvmlDevice_t, int, nvmlFieldValue_t*))

#define DECLARE(result, name, arguments) static result(*name) arguments;
FUNCTIONS(DECLARE)

enum { TEXT_MAX = 128, LINKS_MAX = 64, PROCESSES_MAX = 256 };

// The line that is being built. Much longer than needed for one GPU; excess is dropped.
struct line {
  size_t used;
  char bytes[32768];
};

static void add(struct line* line, const char* text) {
  const size_t length = strlen(text);
  if (line->used + length >= sizeof line->bytes) return;
  memcpy(line->bytes + line->used, text, length + 1);
  line->used += length;
}

// The line is ASCII, whatever the bytes are.
static void add_string(struct line* line, const char* text) {
  add(line, "\"");
  for (; *text != '\0'; text++) {
    const unsigned char byte = (unsigned char)*text;
    const int plain = byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\' && byte != '<';
    char escaped[8];
    snprintf(escaped, sizeof escaped, plain ? "%c" : "\\u%04x", byte);
    add(line, escaped);
  }
  add(line, "\"");
}

// Adds a comma first if needed. `name` null: an array element.
static void add_name(struct line* line, const char* name) {
  const char last = line->used > 0 ? line->bytes[line->used - 1] : '\0';
  if (last != '\0' && last != '{' && last != '[') add(line, ",");
  if (name == NULL) return;
  add_string(line, name);
  add(line, ":");
}

static void add_text(struct line* line, const char* name, const char* text) {
  add_name(line, name);
  add_string(line, text);
}

static void add_number(struct line* line, const char* name, unsigned long long number) {
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", number);
  add_name(line, name);
  add(line, digits);
}

static void begin_object(struct line* line, const char* name) {
  add_name(line, name);
  add(line, "{");
}

// `gpu` < 0: not about a GPU.
static void begin_line(struct line* line, const char* event, int gpu) {
  line->used = 0;
  begin_object(line, NULL);
  add_text(line, "event", event);
  if (gpu >= 0) add_number(line, "gpu", (unsigned)gpu);
}

static void end_line(struct line* line) {
  add(line, "}\n");
  fputs(line->bytes, stdout);
  fflush(stdout);
}

static void write_event(const char* event, int gpu) {
  static struct line line;
  begin_line(&line, event, gpu);
  end_line(&line);
}

static void write_error(int gpu, const char* call, nvmlReturn_t code, const char* text) {
  static struct line line;
  begin_line(&line, "error", gpu);
  add_text(&line, "call", call);
  add_number(&line, "code", (unsigned)code);
  add_text(&line, "text", text);
  end_line(&line);
}

// Calls. ------------------------------------------------------------------------------------------

static int gpu_now = -1;  // the GPU of the current calls
static int is_lost;       // it fell off the bus: skip further calls

// Whether a call returned a value. "Not supported" is not an error; the library rejects enum values
// newer than itself as invalid.
static int told(const char* call, nvmlReturn_t code) {
  switch (code) {
    case NVML_SUCCESS: return 1;
    case NVML_ERROR_INVALID_ARGUMENT:
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_FUNCTION_NOT_FOUND: return 0;
    default: break;
  }
  if (code == NVML_ERROR_GPU_IS_LOST) is_lost = 1;
  const char* text = nvmlErrorString != NULL ? nvmlErrorString(code) : NULL;
  write_error(gpu_now, call, code, text != NULL ? text : "");
  return 0;
}

#define ASK(call, ...) (!is_lost && (call) != NULL && told(#call, call(__VA_ARGS__)))

// Values of one GPU. ------------------------------------------------------------------------------

static void find_address(struct line* facts, nvmlDevice_t device) {
  nvmlPciInfo_t pci;
  memset(&pci, 0, sizeof pci);
  const int there =
      ASK(nvmlDeviceGetPciInfo_v3, device, &pci) || ASK(nvmlDeviceGetPciInfo_v2, device, &pci);
  char name[TEXT_MAX] = "";
  if (there) {
    pci.busId[sizeof pci.busId - 1] = pci.busIdLegacy[sizeof pci.busIdLegacy - 1] = '\0';
    add_text(facts, "pci", pci.busId[0] != '\0' ? pci.busId : pci.busIdLegacy);
  }
  if (ASK(nvmlDeviceGetName, device, name, sizeof name)) add_text(facts, "name", name);
}

static void add_state(struct line* facts, nvmlDevice_t device) {
  char uuid[TEXT_MAX] = "";
  unsigned int number = 0;
  unsigned long long reasons = 0;
  int mode = 0;
  if (ASK(nvmlDeviceGetUUID, device, uuid, sizeof uuid)) add_text(facts, "uuid", uuid);
  if (ASK(nvmlDeviceGetTemperature, device, NVML_TEMPERATURE_GPU, &number))
    add_number(facts, "celsius", number);
  if (ASK(nvmlDeviceGetTemperatureThreshold, device, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, &number))
    add_number(facts, "slowdown_celsius", number);
  if (ASK(nvmlDeviceGetPowerUsage, device, &number)) add_number(facts, "milliwatts", number);
  if (ASK(nvmlDeviceGetEnforcedPowerLimit, device, &number))
    add_number(facts, "limit_milliwatts", number);
  if (ASK(nvmlDeviceGetClockInfo, device, NVML_CLOCK_SM, &number))
    add_number(facts, "sm_mhz", number);
  if (ASK(nvmlDeviceGetMaxClockInfo, device, NVML_CLOCK_SM, &number))
    add_number(facts, "sm_max_mhz", number);
  // The same value under its newer and its older name.
  if (ASK(nvmlDeviceGetCurrentClocksEventReasons, device, &reasons) ||
      ASK(nvmlDeviceGetCurrentClocksThrottleReasons, device, &reasons))
    add_number(facts, "slowed_by", reasons);
  if (ASK(nvmlDeviceGetPersistenceMode, device, &mode))
    add_number(facts, "persistence", mode == NVML_FEATURE_ENABLED);
}

static void add_ecc(struct line* facts, nvmlDevice_t device) {
  static const struct {
    const char* name;
    int type, since;
  } counters[] = {
      {"corrected", NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC},
      {"uncorrected", NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC},
      {"corrected_ever", NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC},
      {"uncorrected_ever", NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC},
  };
  int now = 0, pending = 0;
  if (!ASK(nvmlDeviceGetEccMode, device, &now, &pending)) return;
  add_number(facts, "ecc", now == NVML_FEATURE_ENABLED);
  if (now != NVML_FEATURE_ENABLED) return;
  for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
    unsigned long long count = 0;
    if (ASK(nvmlDeviceGetTotalEccErrors, device, counters[i].type, counters[i].since, &count))
      add_number(facts, counters[i].name, count);
  }
}

// Retired memory: remapped rows, or pages before the A100.
static void add_repairs(struct line* facts, nvmlDevice_t device) {
  unsigned int corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (ASK(nvmlDeviceGetRemappedRows, device, &corrected, &uncorrected, &pending, &failed)) {
    begin_object(facts, "rows");
    add_number(facts, "corrected", corrected);
    add_number(facts, "uncorrected", uncorrected);
    add_number(facts, "pending", pending != 0);
    add_number(facts, "failed", failed != 0);
    add(facts, "}");
    return;
  }
  int is_pending = 0;
  if (!ASK(nvmlDeviceGetRetiredPagesPendingStatus, device, &is_pending)) return;
  begin_object(facts, "pages");
  add_number(facts, "pending", is_pending == NVML_FEATURE_ENABLED);
  // Without a buffer the library returns the count and an insufficient-size error.
  static const struct {
    const char* name;
    int cause;
  } causes[] = {
      {"corrected", NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS},
      {"uncorrected", NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR},
  };
  for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
    unsigned int count = 0;
    if (is_lost || nvmlDeviceGetRetiredPages == NULL) break;
    const nvmlReturn_t code = nvmlDeviceGetRetiredPages(device, causes[i].cause, &count, NULL);
    if (code == NVML_ERROR_INSUFFICIENT_SIZE || told("nvmlDeviceGetRetiredPages", code))
      add_number(facts, causes[i].name, count);
  }
  add(facts, "}");
}

static void add_link(struct line* facts, nvmlDevice_t device, unsigned int link) {
  static const struct {
    const char* name;
    int counter;
  } counters[] = {
      {"replay", NVML_NVLINK_ERROR_DL_REPLAY},
      {"recovery", NVML_NVLINK_ERROR_DL_RECOVERY},
      {"crc_flit", NVML_NVLINK_ERROR_DL_CRC_FLIT},
      {"crc_data", NVML_NVLINK_ERROR_DL_CRC_DATA},
  };
  int state = 0;
  if (!ASK(nvmlDeviceGetNvLinkState, device, link, &state)) return;
  begin_object(facts, NULL);
  add_number(facts, "link", link);
  add_number(facts, "active", state == NVML_FEATURE_ENABLED);
  for (size_t i = 0; state == NVML_FEATURE_ENABLED && i < sizeof counters / sizeof counters[0];
       i++) {
    unsigned long long count = 0;
    if (ASK(nvmlDeviceGetNvLinkErrorCounter, device, link, counters[i].counter, &count))
      add_number(facts, counters[i].name, count);
  }
  add(facts, "}");
}

// Processes on the GPU. Not every user may read them, and no check depends on it: no errors.
static void add_processes(struct line* facts, nvmlDevice_t device) {
  static nvmlProcessInfo_t processes[PROCESSES_MAX];
  unsigned int count = PROCESSES_MAX;
  if (is_lost || nvmlDeviceGetComputeRunningProcesses_v3 == NULL) return;
  if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes) != NVML_SUCCESS) return;
  add_name(facts, "processes");
  add(facts, "[");
  for (unsigned int i = 0; i < count && i < PROCESSES_MAX; i++)
    add_number(facts, NULL, processes[i].pid);
  add(facts, "]");
}

// The recovery action that the driver demands; libraries before 570 do not know the field.
static void add_recovery(struct line* facts, nvmlDevice_t device) {
  nvmlFieldValue_t field;
  memset(&field, 0, sizeof field);
  field.fieldId = NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
  field.nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  if (!ASK(nvmlDeviceGetFieldValues, device, 1, &field)) return;
  if (field.nvmlReturn == NVML_SUCCESS) add_number(facts, "recovery", field.value.uiVal);
}

static void tell_of(unsigned int index) {
  static struct line facts, place;
  gpu_now = (int)index;
  is_lost = 0;
  write_event("begin", gpu_now);
  nvmlDevice_t device = NULL;
  if (!ASK(nvmlDeviceGetHandleByIndex_v2, index, &device)) return;
  begin_line(&facts, "gpu", gpu_now);
  begin_line(&place, "at", gpu_now);
  find_address(&place, device);
  end_line(&place);
  add_state(&facts, device);
  add_ecc(&facts, device);
  add_repairs(&facts, device);
  add_name(&facts, "links");
  add(&facts, "[");
  for (unsigned int link = 0; link < LINKS_MAX; link++) add_link(&facts, device, link);
  add(&facts, "]");
  add_processes(&facts, device);
  add_recovery(&facts, device);
  if (!is_lost) end_line(&facts);
}

static int load(void) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == NULL) {
    const char* const text = dlerror();
    write_error(-1, "dlopen", 0, text != NULL ? text : "");
    return 0;
  }
  void* found = NULL;
#define LOAD(result, name, arguments) \
  found = dlsym(library, #name);      \
  memcpy(&name, &found, sizeof found);
  FUNCTIONS(LOAD)
  if (nvmlInit_v2 != NULL && nvmlDeviceGetCount_v2 != NULL && nvmlDeviceGetHandleByIndex_v2 != NULL)
    return 1;
  write_error(-1, "dlsym", 0, "libnvidia-ml.so.1 is too old: nvmlInit_v2 or its like is missing");
  return 0;
}

int main(void) {
  static struct line driver;
  prctl(PR_SET_NAME, "ff-gpu");      // else it has a number as its name when run from memory
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no use without its parent
  write_event("begin", -1);
  if (!load() || !told("nvmlInit_v2", nvmlInit_v2())) return 1;
  char text[TEXT_MAX] = "";
  unsigned int count = 0;
  begin_line(&driver, "driver", -1);
  if (ASK(nvmlSystemGetDriverVersion, text, sizeof text)) add_text(&driver, "driver", text);
  if (ASK(nvmlSystemGetNVMLVersion, text, sizeof text)) add_text(&driver, "nvml", text);
  if (!ASK(nvmlDeviceGetCount_v2, &count)) return 1;
  add_number(&driver, "count", count);
  end_line(&driver);
  for (unsigned int i = 0; i < count; i++) tell_of(i);
  write_event("end", -1);
  if (nvmlShutdown != NULL) nvmlShutdown();
  return 0;
}
