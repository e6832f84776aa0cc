// ff_gpu_load.c: a load on one GPU.
//
//   ff-gpu memory|gemm|copy|peers ADDRESS MILLISECONDS HANG_MILLISECONDS
//
// The load runs for about MILLISECONDS, at least once through; a kernel or copy that takes longer
// than HANG_MILLISECONDS is reported as a hang. One line of JSON each:
//
//   {"event":"begin","step":"fp16"}              before each step
//   {"event":"device","pci":…,"name":…,"processors":132,"capability":90,"bytes":…,"free":…}
//   {"event":"ecc","corrected":0,"uncorrected":0}         before and after the load
//   {"event":"memory","bytes":…,"rounds":2,"wrong":1,"seconds":…}
//   {"event":"gemm","type":"fp16","bytes":…,"rounds":…,"operations":…,"nanoseconds":…,
//    "digest":"…","golden":"…","wrong":0}
//   {"event":"wrong","step":…,"at":…,"expected":"…","got":"…","processor":7}   in hexadecimal
//   {"event":"copy","direction":"to-device","bytes":…,"nanoseconds":…}   the fastest one
//   {"event":"link","generation":5,"lanes":16,"generation_max":5,"lanes_max":16}
//   {"event":"nvlink","link":0,"active":1,"remote":"0000:36:00.0","errors":2}   since the begin
//   {"event":"xid","code":79}
//   {"event":"failed","step":…,"call":…,"code":…,"name":…,"text":…}      the end
//   {"event":"hang","step":…}                                            the end
//   {"event":"end"}
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/validate/ff_gpu_cuda.h"

static void open_nvml(const char* address) {
  begin_step("NVML");
  if (!load_nvml() || !told("nvmlInit_v2", nvmlInit_v2())) return;
  if (!ASK(nvmlDeviceGetHandleByPciBusId_v2, address, &gpu.nvml)) return;
  if (!ASK(nvmlEventSetCreate, &gpu.events)) return;
  if (ASK(nvmlDeviceRegisterEvents, gpu.nvml, nvmlEventTypeXidCriticalError, gpu.events)) return;
  gpu.events = NULL;
}

void report_xids(void) {
  static struct line line;
  nvmlEventData_t event;
  if (gpu.events == NULL || nvmlEventSetWait_v2 == NULL) return;
  for (;;) {
    memset(&event, 0, sizeof event);
    if (nvmlEventSetWait_v2(gpu.events, &event, 0) != NVML_SUCCESS) return;
    if (event.eventType != nvmlEventTypeXidCriticalError) continue;
    begin_line(&line, "xid", -1);
    add_number(&line, "code", event.eventData);
    end_line(&line);
  }
}

int read_ecc(ff_word* corrected, ff_word* uncorrected) {
  int now = 0, pending = 0;
  if (gpu.nvml == NULL || !ASK(nvmlDeviceGetEccMode, gpu.nvml, &now, &pending)) return 0;
  return now == NVML_FEATURE_ENABLED &&
         ASK(nvmlDeviceGetTotalEccErrors, gpu.nvml, NVML_MEMORY_ERROR_TYPE_CORRECTED,
             NVML_VOLATILE_ECC, corrected) &&
         ASK(nvmlDeviceGetTotalEccErrors, gpu.nvml, NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
             NVML_VOLATILE_ECC, uncorrected);
}

static void report_ecc(void) {
  static struct line line;
  ff_word corrected = 0, uncorrected = 0;
  if (!read_ecc(&corrected, &uncorrected)) return;
  begin_line(&line, "ecc", -1);
  add_number(&line, "corrected", corrected);
  add_number(&line, "uncorrected", uncorrected);
  end_line(&line);
}

int run_load(int count, char** words) {
  if (count != 5) return 2;
  const long long milliseconds = atoll(words[3]);
  // What a user has set for other programs must not hide devices. The load leaves no cache, and
  // loads its kernels before it takes all memory.
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  gpu.hang_ms = atoll(words[4]);
  open_nvml(words[2]);
  open_device(words[2]);
  report_ecc();
  if (strcmp(words[1], "memory") == 0)
    load_memory(milliseconds);
  else if (strcmp(words[1], "gemm") == 0)
    load_gemm(milliseconds);
  else
    load_copy(milliseconds, strcmp(words[1], "peers") == 0);
  report_ecc();
  report_xids();
  write_event("end", -1);
  fflush(stdout);
  _exit(0);  // the driver frees everything
}
