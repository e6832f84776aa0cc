// ff_gpu_nvml.c: loads the management library, and asks it about every GPU.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ops/validate/ff_gpu.h"

#define DEFINE(result, name, arguments) result(*name) arguments;
FUNCTIONS(DEFINE)

// Calls. ------------------------------------------------------------------------------------------

int gpu_now = -1;
int is_lost;

int told(const char* call, nvmlReturn_t code) {
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

int load_nvml(void) {
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

int query_nvml(void) {
  static struct line driver;
  write_event("begin", -1);
  if (!load_nvml() || !told("nvmlInit_v2", nvmlInit_v2())) return 1;
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
