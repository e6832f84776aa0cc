// ff_gpu_copy.c: copies between the host and the device, on the device, and to other devices. What
// was copied is compared at the end.
#include <stdio.h>
#include <string.h>

#include "ops/validate/ff_gpu_cuda.h"

enum { BYTES_MAX = 256 << 20, COPIES_LEAST = 4 };

struct buffers {
  size_t bytes;
  ff_word* host[2];       // pinned: source and destination
  CUdeviceptr device[2];  // likewise
};

// Where a copy goes; the second stream of "both ways" is its own.
struct direction {
  const char* name;
  void (*copy)(const struct buffers* buffers);
  unsigned times;  // bytes that it moves, in buffers
};

static CUstream second_stream;
static CUevent second_event;

static void to_device(const struct buffers* buffers) {
  MUST(cuMemcpyHtoDAsync, buffers->device[0], buffers->host[0], buffers->bytes, gpu.stream);
}
static void on_device(const struct buffers* buffers) {
  MUST(cuMemcpyDtoDAsync, buffers->device[1], buffers->device[0], buffers->bytes, gpu.stream);
}
static void to_host(const struct buffers* buffers) {
  MUST(cuMemcpyDtoHAsync, buffers->host[1], buffers->device[1], buffers->bytes, gpu.stream);
}
static void both_ways(const struct buffers* buffers) {
  MUST(cuStreamWaitEvent, second_stream, gpu.begin, 0);
  MUST(cuMemcpyDtoHAsync, buffers->host[1], buffers->device[1], buffers->bytes, second_stream);
  MUST(cuEventRecord, second_event, second_stream);
  to_device(buffers);
  MUST(cuStreamWaitEvent, gpu.stream, second_event, 0);
}

// In an order in which each finds the bytes of the one before. A copy on the device reads and
// writes.
static const struct direction directions[] = {{"to-device", to_device, 1},
                                              {"on-device", on_device, 2},
                                              {"to-host", to_host, 1},
                                              {"both-ways", both_ways, 2}};
enum { DIRECTIONS = sizeof directions / sizeof directions[0] };

static void report_copy(const char* direction, const char* peer, ff_word bytes, double seconds) {
  static struct line line;
  begin_line(&line, "copy", -1);
  add_text(&line, "direction", direction);
  if (peer != NULL) add_text(&line, "peer", peer);
  add_number(&line, "bytes", bytes);
  add_number(&line, "nanoseconds", (ff_word)(seconds * 1e9));
  end_line(&line);
}

static void add_fact(struct line* line, const char* name,
                     nvmlReturn_t (*call)(nvmlDevice_t, unsigned int*)) {
  unsigned int number = 0;
  if (call != NULL && call(gpu.nvml, &number) == NVML_SUCCESS) add_number(line, name, number);
}

// While the link works: an idle one is slower.
static void report_link(void) {
  static struct line line;
  unsigned int mhz = 0;
  if (gpu.nvml == NULL) return;
  begin_line(&line, "link", -1);
  add_fact(&line, "generation", nvmlDeviceGetCurrPcieLinkGeneration);
  add_fact(&line, "lanes", nvmlDeviceGetCurrPcieLinkWidth);
  add_fact(&line, "generation_max", nvmlDeviceGetMaxPcieLinkGeneration);
  add_fact(&line, "lanes_max", nvmlDeviceGetMaxPcieLinkWidth);
  add_fact(&line, "memory_bits", nvmlDeviceGetMemoryBusWidth);
  if (nvmlDeviceGetMaxClockInfo != NULL &&
      nvmlDeviceGetMaxClockInfo(gpu.nvml, NVML_CLOCK_MEM, &mhz) == NVML_SUCCESS)
    add_number(&line, "memory_mhz", mhz);
  end_line(&line);
}

static void time_direction(const struct buffers* buffers, const struct direction* direction,
                           long long milliseconds) {
  const long long end = now_ms() + milliseconds;
  double best = 0;
  begin_step(direction->name);
  for (int i = 0; i < COPIES_LEAST || now_ms() < end; i++) {
    begin_time();
    direction->copy(buffers);
    if (i == 1 && direction->copy == to_device) report_link();
    const double took = end_time();
    if (best == 0 || took < best) best = took;
  }
  report_copy(direction->name, NULL, buffers->bytes * direction->times, best);
}

static void compare(const struct buffers* buffers) {
  static struct line line;
  char digits[24];
  for (size_t i = 0; i < buffers->bytes / sizeof(ff_word); i++) {
    if (buffers->host[0][i] == buffers->host[1][i]) continue;
    begin_line(&line, "wrong", -1);
    add_text(&line, "step", "copies");
    add_number(&line, "at", i * sizeof(ff_word));
    snprintf(digits, sizeof digits, "%016llx", buffers->host[0][i]);
    add_text(&line, "expected", digits);
    snprintf(digits, sizeof digits, "%016llx", buffers->host[1][i]);
    add_text(&line, "got", digits);
    end_line(&line);
    return;
  }
}

// NVLink. -----------------------------------------------------------------------------------------

static ff_word errors_of_link(unsigned int link) {
  ff_word all = 0;
  for (int counter = NVML_NVLINK_ERROR_DL_REPLAY; counter <= NVML_NVLINK_ERROR_DL_CRC_DATA;
       counter++) {
    unsigned long long count = 0;
    if (ASK(nvmlDeviceGetNvLinkErrorCounter, gpu.nvml, link, counter, &count)) all += count;
  }
  return all;
}

static void report_nvlink(unsigned int link, ff_word errors_before) {
  static struct line line;
  nvmlPciInfo_t remote;
  int active = 0;
  if (!ASK(nvmlDeviceGetNvLinkState, gpu.nvml, link, &active)) return;
  begin_line(&line, "nvlink", -1);
  add_number(&line, "link", link);
  add_number(&line, "active", active == NVML_FEATURE_ENABLED);
  memset(&remote, 0, sizeof remote);
  if (active == NVML_FEATURE_ENABLED &&
      ASK(nvmlDeviceGetNvLinkRemotePciInfo_v2, gpu.nvml, link, &remote)) {
    remote.busId[sizeof remote.busId - 1] = '\0';
    add_text(&line, "remote", remote.busId);
  }
  add_number(&line, "errors", errors_of_link(link) - errors_before);
  end_line(&line);
}

static void report_nvlink_speed(void) {
  static struct line line;
  nvmlFieldValue_t field;
  memset(&field, 0, sizeof field);
  field.fieldId = NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
  field.nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  if (!ASK(nvmlDeviceGetFieldValues, gpu.nvml, 1, &field)) return;
  if (field.nvmlReturn != NVML_SUCCESS || field.value.uiVal == 0) return;
  begin_line(&line, "nvlinks", -1);
  add_number(&line, "mbps", field.value.uiVal);
  end_line(&line);
}

static void time_peer(const struct buffers* buffers, CUdevice other, long long milliseconds) {
  char address[32] = "";
  int reaches = 0;
  CUcontext context = NULL;
  CUdeviceptr there = 0;
  double best = 0;
  MUST(cuDeviceGetPCIBusId, address, sizeof address, other);
  begin_step(address);
  MUST(cuDeviceCanAccessPeer, &reaches, gpu.device, other);
  MUST(cuDevicePrimaryCtxRetain, &context, other);
  MUST(cuCtxSetCurrent, context);
  MUST(cuMemAlloc, &there, buffers->bytes);
  MUST(cuCtxSetCurrent, gpu.context);
  const CUresult code = reaches ? cuCtxEnablePeerAccess(context, 0) : CUDA_SUCCESS;
  if (code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) must("cuCtxEnablePeerAccess", code);
  const long long end = now_ms() + milliseconds;
  for (int i = 0; i < COPIES_LEAST || now_ms() < end; i++) {
    begin_time();
    MUST(cuMemcpyPeerAsync, there, context, buffers->device[0], gpu.context, buffers->bytes,
         gpu.stream);
    const double took = end_time();
    if (best == 0 || took < best) best = took;
  }
  report_copy(reaches ? "to-peer" : "to-peer-through-host", address, buffers->bytes, best);
  MUST(cuMemFree, there);
  MUST(cuDevicePrimaryCtxRelease, other);
}

static void load_peers(const struct buffers* buffers, long long milliseconds) {
  ff_word errors[LINKS_MAX];
  int count = 0;
  for (unsigned int link = 0; link < LINKS_MAX; link++)
    errors[link] = gpu.nvml == NULL ? 0 : errors_of_link(link);
  MUST(cuDeviceGetCount, &count);
  for (int i = 0; i < count; i++) {
    CUdevice other = 0;
    MUST(cuDeviceGet, &other, i);
    if (other != gpu.device) time_peer(buffers, other, milliseconds / count);
  }
  if (gpu.nvml == NULL) return;
  report_nvlink_speed();
  for (unsigned int link = 0; link < LINKS_MAX; link++) report_nvlink(link, errors[link]);
}

void load_copy(long long milliseconds, int with_peers) {
  struct buffers buffers;
  size_t left = 0, whole = 0;
  begin_step("its memory");
  MUST(cuMemGetInfo, &left, &whole);
  buffers.bytes = left / 4 < BYTES_MAX ? left / 4 / sizeof(ff_word) * sizeof(ff_word) : BYTES_MAX;
  MUST(cuStreamCreate, &second_stream, CU_STREAM_NON_BLOCKING);
  MUST(cuEventCreate, &second_event, 0);
  for (int i = 0; i < 2; i++) {
    MUST(cuMemAlloc, &buffers.device[i], buffers.bytes);
    MUST(cuMemHostAlloc, (void**)&buffers.host[i], buffers.bytes, 0);
    memset(buffers.host[i], 0, buffers.bytes);
  }
  for (size_t i = 0; i < buffers.bytes / sizeof(ff_word); i++) buffers.host[0][i] = ff_mixed(i);
  for (int i = 0; i < DIRECTIONS; i++)
    time_direction(&buffers, &directions[i], milliseconds / DIRECTIONS);
  compare(&buffers);
  if (with_peers) load_peers(&buffers, milliseconds);
}
