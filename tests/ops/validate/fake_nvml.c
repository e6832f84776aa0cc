// A libnvidia-ml.so.1 for the tests, with eight GPUs that the variable FF_FAKE_NVML makes sick in
// one way or another. Written from NVIDIA's documentation apart from ff_gpu.c, so that both have to
// agree. With FAKE_IS_OLD it lacks what was added in the last years.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
  SUCCESS = 0,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NO_PERMISSION = 4,
  INSUFFICIENT_SIZE = 7,
  DRIVER_NOT_LOADED = 9,
  TIMEOUT = 10,
  GPU_IS_LOST = 15,
  RESET_REQUIRED = 16,
  LIB_RM_VERSION_MISMATCH = 18,
  UNKNOWN = 999
};
enum { GPUS = 8, LINKS = 12 };

struct gpu {
  int index;
};
static struct gpu gpus[GPUS];

static int scenario(const char* name) {
  const char* now = getenv("FF_FAKE_NVML");
  return now != NULL && strcmp(now, name) == 0;
}

static int is(const struct gpu* gpu, int index, const char* name) {
  return gpu->index == index && scenario(name);
}

// Of NVML's index. One that vanished leaves no gap.
static int slot_of(const struct gpu* gpu) {
  return scenario("vanished") && gpu->index >= 6 ? gpu->index + 1 : gpu->index;
}

static int copy(char* to, unsigned int room, const char* text) {
  if (strlen(text) >= room) return INSUFFICIENT_SIZE;
  strcpy(to, text);
  return SUCCESS;
}

int nvmlInit_v2(void) {
  if (scenario("mismatch")) return LIB_RM_VERSION_MISMATCH;
  if (scenario("not-loaded")) return DRIVER_NOT_LOADED;
  if (scenario("hung-at-once")) {
    for (;;) pause();
  }
  for (int i = 0; i < GPUS; i++) gpus[i].index = i;
  return SUCCESS;
}

int nvmlShutdown(void) {
  if (scenario("hung-at-end")) {
    for (;;) pause();
  }
  return SUCCESS;
}

const char* nvmlErrorString(int code) {
  switch (code) {
    case NO_PERMISSION: return "Insufficient Permissions";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires reset";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* version, unsigned int room) {
  return copy(version, room, "550.54.15");
}

int nvmlSystemGetNVMLVersion(char* version, unsigned int room) {
  return copy(version, room, "12.550.54.15");
}

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = scenario("vanished") ? GPUS - 1 : GPUS;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct gpu** gpu) {
  if (index >= GPUS) return INVALID_ARGUMENT;
  *gpu = &gpus[index];
  if (is(*gpu, 3, "no-handle")) return UNKNOWN;
  return is(*gpu, 2, "forbidden") ? NO_PERMISSION : SUCCESS;
}

// Buses 1b, 36, 51 and so on: some have letters.
static int put_address(const struct gpu* gpu, const char* format, char* to, size_t room) {
  snprintf(to, room, format, 0u, 0x1bu * (1u + (unsigned)slot_of(gpu)), 0u);
  return SUCCESS;
}

struct pci_v2 {
  char id[16];
  unsigned int domain, bus, device, ids, subsystem, reserved[4];
};

int nvmlDeviceGetPciInfo_v2(struct gpu* gpu, struct pci_v2* pci) {
  memset(pci, 0, sizeof *pci);
  return put_address(gpu, "%04X:%02X:%02X.0", pci->id, sizeof pci->id);
}

int nvmlDeviceGetName(struct gpu* gpu, char* name, unsigned int room) {
  if (is(gpu, 4, "odd-name")) return copy(name, room, "A \"B\"\\\n\x1b[31m\xff{<");
  return copy(name, room, "NVIDIA A100-SXM4-80GB");
}

int nvmlDeviceGetUUID(struct gpu* gpu, char* uuid, unsigned int room) {
  char text[64];
  snprintf(text, sizeof text, "GPU-8a3c5c5e-0000-4000-8000-00000000000%d", gpu->index);
  return copy(uuid, room, text);
}

int nvmlDeviceGetTemperature(struct gpu* gpu, int sensor, unsigned int* celsius) {
  if (is(gpu, 5, "hung")) {
    for (;;) pause();
  }
  if (is(gpu, 2, "crash")) {
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    raise(SIGSEGV);
  }
  if (is(gpu, 3, "lost")) return GPU_IS_LOST;
  if (is(gpu, 3, "reset")) return RESET_REQUIRED;
  *celsius = is(gpu, 1, "throttled") ? 93 : 35;
  return sensor == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetTemperatureThreshold(struct gpu* gpu, int which, unsigned int* celsius) {
  (void)gpu;
  *celsius = which == 1 ? 92 : 95;  // where it slows down; where it switches off
  return SUCCESS;
}

int nvmlDeviceGetPowerUsage(struct gpu* gpu, unsigned int* milliwatts) {
  (void)gpu;
  *milliwatts = 61500;
  return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(struct gpu* gpu, unsigned int* milliwatts) {
  (void)gpu;
  *milliwatts = 400000;
  return SUCCESS;
}

int nvmlDeviceGetClockInfo(struct gpu* gpu, int clock, unsigned int* mhz) {
  (void)gpu;
  *mhz = clock == 1 ? 210 : 1;
  return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(struct gpu* gpu, int clock, unsigned int* mhz) {
  (void)gpu;
  *mhz = clock == 1 ? 1410 : clock == 2 ? 1593 : 1;
  return SUCCESS;
}

// Idle everywhere, but for: 1 heat by hardware, 2 the power brake, 3 heat by the driver, 4 its
// limit of power and clocks that were set, 5 a reason that nobody knows yet.
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu* gpu, unsigned long long* reasons) {
  static const unsigned long long sick[GPUS] = {1, 0x48, 0x88, 0x20, 0x06, 0x4001, 1, 1};
  *reasons = scenario("throttled") ? sick[gpu->index] : 1;
  return SUCCESS;
}

int nvmlDeviceGetEccMode(struct gpu* gpu, int* now, int* pending) {
  *now = *pending = !is(gpu, 5, "ecc");
  return SUCCESS;
}

// 0 and 1 have corrected some, 2 not all, 3 not all long ago.
int nvmlDeviceGetTotalEccErrors(struct gpu* gpu, int type, int since, unsigned long long* count) {
  static unsigned long long asked[2];
  const int uncorrected = type == 1, ever = since == 1;
  // They rise while a load runs: by 3 corrected, or by one uncorrected.
  if (scenario("ecc-corrected") && !uncorrected) return *count = 7 + 3 * asked[0]++, SUCCESS;
  if (scenario("ecc-uncorrected") && uncorrected) return *count = asked[1]++, SUCCESS;
  *count = 0;
  if (!scenario("ecc")) return SUCCESS;
  if (gpu->index == 4) return UNKNOWN;
  if (gpu->index <= 1 && !uncorrected) *count = ever ? 20 : 5;
  if (gpu->index == 2 && uncorrected) *count = ever ? 3 : 1;
  if (gpu->index == 3 && uncorrected && ever) *count = 7;
  return SUCCESS;
}

int nvmlDeviceGetRetiredPages(struct gpu* gpu, int cause, unsigned int* count,
                              unsigned long long* addresses) {
  const unsigned int there = is(gpu, 1, "remap") ? 2 : 0;
  (void)cause;
  if (*count < there || addresses == NULL) {
    *count = there;
    return there > 0 ? INSUFFICIENT_SIZE : SUCCESS;
  }
  return SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(struct gpu* gpu, int* pending) {
  *pending = is(gpu, 1, "remap");
  return SUCCESS;
}

// On 1 one link is down; those of 3 lead nowhere.
int nvmlDeviceGetNvLinkState(struct gpu* gpu, unsigned int link, int* active) {
  if (link >= LINKS) return INVALID_ARGUMENT;
  *active = !(is(gpu, 1, "nvlink") && link == 7) && !is(gpu, 3, "nvlink");
  return SUCCESS;
}

int nvmlDeviceGetNvLinkErrorCounter(struct gpu* gpu, unsigned int link, int counter,
                                    unsigned long long* count) {
  static unsigned long long errors;
  if (counter > 4) return INVALID_ARGUMENT;
  if (scenario("nvlink-errors") && link == 9 && counter == 2) return *count = errors += 5, SUCCESS;
  *count = 0;
  if (is(gpu, 2, "nvlink") && link == 4) *count = 1ull << (4 * counter);
  return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(struct gpu* gpu, int* mode) {
  (void)gpu;
  *mode = !scenario("throttled");
  return SUCCESS;
}

#ifndef FAKE_IS_OLD

struct pci_v3 {
  char legacy[16];
  unsigned int domain, bus, device, ids, subsystem;
  char id[32];
};

int nvmlDeviceGetPciInfo_v3(struct gpu* gpu, struct pci_v3* pci) {
  memset(pci, 0, sizeof *pci);
  put_address(gpu, "%04X:%02X:%02X.0", pci->legacy, sizeof pci->legacy);
  return put_address(gpu, "%08X:%02X:%02X.0", pci->id, sizeof pci->id);
}

int nvmlDeviceGetCurrentClocksEventReasons(struct gpu* gpu, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksThrottleReasons(gpu, reasons);
}

int nvmlDeviceGetRemappedRows(struct gpu* gpu, unsigned int* corrected, unsigned int* uncorrected,
                              unsigned int* pending, unsigned int* failed) {
  *corrected = *uncorrected = *pending = *failed = 0;
  if (!scenario("remap")) return SUCCESS;
  *corrected = 2;
  *uncorrected = gpu->index == 4 ? 1 : 0;
  *pending = gpu->index == 1;
  *failed = gpu->index == 2;
  return gpu->index == 3 ? NOT_SUPPORTED : SUCCESS;
}

struct process {
  unsigned int pid;
  unsigned long long used;
  unsigned int instance, compute;
};

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu* gpu, unsigned int* count,
                                            struct process* processes) {
  const unsigned int there = gpu->index == 0 ? 2 : 0;
  if (*count < there) return INSUFFICIENT_SIZE;
  for (unsigned int i = 0; i < there; i++) processes[i] = (struct process){1000 + i, 1, -1u, -1u};
  *count = there;
  return SUCCESS;
}

struct field {
  unsigned int id, scope;
  long long time, took;
  int type, code;
  union {
    double d;
    unsigned int u;
  } value;
};

int nvmlDeviceGetFieldValues(struct gpu* gpu, int count, struct field* fields) {
  for (int i = 0; i < count; i++) {
    fields[i].code = fields[i].id == 230 || fields[i].id == 90 ? SUCCESS : NOT_SUPPORTED;
    fields[i].type = 1;
    fields[i].value.u = scenario("recovery") ? (unsigned)gpu->index : 0;
    if (fields[i].id == 90) fields[i].value.u = 25000;  // MB/s of each NVLink
  }
  return SUCCESS;
}

// What loads ask. ---------------------------------------------------------------------------------

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, struct gpu** gpu) {
  for (int i = 0; i < GPUS; i++) {
    char mine[32];
    put_address(&gpus[i], "%04x:%02x:%02x.0", mine, sizeof mine);
    *gpu = &gpus[i];
    if (strcmp(mine, address) == 0) return SUCCESS;
  }
  return INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrPcieLinkGeneration(struct gpu* gpu, unsigned int* generation) {
  (void)gpu;
  *generation = scenario("low-generation") ? 1 : 4;
  return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkWidth(struct gpu* gpu, unsigned int* lanes) {
  (void)gpu;
  *lanes = scenario("few-lanes") ? 8 : 16;
  return SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkGeneration(struct gpu* gpu, unsigned int* generation) {
  (void)gpu;
  *generation = 4;
  return SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkWidth(struct gpu* gpu, unsigned int* lanes) {
  (void)gpu;
  *lanes = 16;
  return SUCCESS;
}

int nvmlDeviceGetMemoryBusWidth(struct gpu* gpu, unsigned int* bits) {
  (void)gpu;
  *bits = 5120;
  return SUCCESS;
}

// All links lead to a switch, which has an address of its own.
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu* gpu, unsigned int link, struct pci_v3* pci) {
  (void)gpu;
  memset(pci, 0, sizeof *pci);
  snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", 0xc1 + link % 6);
  return SUCCESS;
}

struct event {
  struct gpu* gpu;
  unsigned long long type, data;
  unsigned int instance, compute;
};

int nvmlEventSetCreate(void** set) {
  static int events;
  *set = &events;
  return SUCCESS;
}

int nvmlDeviceRegisterEvents(struct gpu* gpu, unsigned long long types, void* set) {
  (void)gpu;
  (void)set;
  return types == 8 ? SUCCESS : NOT_SUPPORTED;
}

// One Xid, at the second call.
int nvmlEventSetWait_v2(void* set, struct event* event, unsigned int milliseconds) {
  static int calls;
  (void)set;
  (void)milliseconds;
  if (!scenario("xid") || ++calls != 2) return TIMEOUT;
  *event = (struct event){&gpus[0], 8, 94, -1u, -1u};
  return SUCCESS;
}

#endif
