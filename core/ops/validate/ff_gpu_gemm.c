// ff_gpu_gemm.c: products of matrices in each type, of factors that fill the memory. The product is
// known: its digest is below (from tests/ops/validate/goldens.py), and the host works it out.
#include <stdio.h>
#include <string.h>

#include "ops/validate/ff_gpu_cuda.h"

enum { TYPES = 6, COUNTED_MS = 50 };

static const struct type {
  const char* name;
  const char* fill;
  const char* gemm;
  int kernels;     // the oldest GPUs that have it
  unsigned bytes;  // of an element
  // Of the factors: sums of 256 products stay below 2^24, in int8 2^31, in fp64 2^53.
  unsigned range;
  ff_word golden;
} types[TYPES] = {
    {"fp64", "ff_fill_fp64", "ff_gemm_fp64", 70, 8, 1 << 21, 0xd200056115562b85},
    {"fp32", "ff_fill_fp32", "ff_gemm_fp32", 70, 4, 255, 0x449cf32fd488dcb6},
    {"fp16", "ff_fill_fp16", "ff_gemm_fp16", 70, 2, 255, 0x7b74a62b65b93894},
    {"bf16", "ff_fill_bf16", "ff_gemm_bf16", 80, 2, 255, 0xcb65b880389131a4},
    {"tf32", "ff_fill_tf32", "ff_gemm_tf32", 80, 4, 255, 0x0339b19d66df96aa},
    {"int8", "ff_fill_int8", "ff_gemm_int8", 80, 1, 127, 0xcc67a384548e4999},
};

// Memory that all types use.
struct room {
  CUdeviceptr inputs, expected, results, report;
  size_t input_bytes;
  double* product;  // pinned
  struct ff_report* seen;
};

static ff_word digest_of(const double* product) {
  ff_word digest = 0;
  for (int i = 0; i < FF_MATRIX; i++) digest = ff_mixed(digest ^ (ff_word)(long long)product[i]);
  return digest;
}

static void multiply_on_host(const struct type* type, ff_word seed, double* product) {
  static long long a[FF_MATRIX], b[FF_MATRIX];
  for (int i = 0; i < FF_MATRIX; i++) {
    a[i] = ff_element((ff_word)i, seed, type->range);
    b[i] = ff_element((ff_word)(FF_MATRIX + i), seed, type->range);
  }
  for (int row = 0; row < FF_SIDE; row++) {
    for (int column = 0; column < FF_SIDE; column++) {
      long long sum = 0;
      for (int k = 0; k < FF_SIDE; k++) sum += a[row * FF_SIDE + k] * b[column * FF_SIDE + k];
      product[row * FF_SIDE + column] = (double)sum;
    }
  }
}

static void add_digits(struct line* line, const char* name, ff_word value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%016llx", value);
  add_text(line, name, digits);
}

static void report_wrong_elements(const struct room* room, const char* type) {
  static struct line line;
  for (ff_word i = 0; i < room->seen->count && i < FF_WRONG_MAX; i++) {
    const struct ff_wrong* const wrong = &room->seen->first[i];
    begin_line(&line, "wrong", -1);
    add_text(&line, "step", type);
    add_number(&line, "at", wrong->at);
    add_digits(&line, "expected", wrong->expected);
    add_digits(&line, "got", wrong->got);
    add_number(&line, "processor", wrong->processor);
    add_number(&line, "copy", wrong->copy);
    end_line(&line);
  }
}

struct run {
  const struct type* type;
  CUfunction kernel;
  ff_word copies;
  unsigned first, rounds;
};

static double multiply(const struct room* room, const struct run* run, unsigned blocks,
                       CUdeviceptr results) {
  CUdeviceptr inputs = room->inputs, expected = room->expected, report = room->report;
  ff_word copies = run->copies;
  unsigned first = run->first, rounds = run->rounds;
  void* arguments[] = {&inputs, &copies, &first, &rounds, &expected, &results, &report};
  begin_time();
  launch(run->kernel, blocks, arguments);
  return end_time();
}

static void run_type(const struct room* room, const struct type* type, long long milliseconds) {
  static struct line line;
  ff_word seed = (ff_word)(type - types) + 1;
  unsigned range = type->range;
  struct run run = {type, find_kernel(type->kernels, type->gemm),
                    room->input_bytes / type->bytes / (2 * FF_MATRIX), 0, 1};
  CUdeviceptr inputs = room->inputs;
  void* arguments[] = {&inputs, &run.copies, &seed, &range};
  multiply_on_host(type, seed, room->product);
  const ff_word host = digest_of(room->product);
  MUST(cuMemcpyHtoDAsync, room->expected, room->product, FF_MATRIX * sizeof(double), gpu.stream);
  MUST(cuMemsetD8Async, room->report, 0, sizeof(struct ff_report), gpu.stream);
  launch(find_kernel(type->kernels, type->fill), gpu.blocks, arguments);
  finish();
  // Once with the whole product, for its digest; then as fast as it goes.
  multiply(room, &run, FF_TILES, room->results);
  MUST(cuMemcpyDtoHAsync, room->product, room->results, FF_MATRIX * sizeof(double), gpu.stream);
  finish();
  const ff_word digest = digest_of(room->product);
  const long long end = now_ms() + milliseconds;
  double seconds = 0;
  ff_word rounds = 0;
  do {
    const double took = multiply(room, &run, gpu.blocks, 0);
    run.first += run.rounds;
    rounds += run.rounds;
    seconds += took;
    if (took < COUNTED_MS / 1e3 && run.rounds < 1 << 20) run.rounds *= 2;
  } while (now_ms() < end);
  MUST(cuMemcpyDtoHAsync, room->seen, room->report, sizeof *room->seen, gpu.stream);
  finish();
  report_wrong_elements(room, type->name);
  begin_line(&line, "gemm", -1);
  add_text(&line, "type", type->name);
  add_number(&line, "bytes", run.copies * 2 * FF_MATRIX * type->bytes);
  add_number(&line, "products", rounds * gpu.blocks);
  add_number(&line, "operations", rounds * gpu.blocks * (2ull * FF_TILE * FF_TILE * FF_SIDE));
  add_number(&line, "nanoseconds", (ff_word)(seconds * 1e9));
  add_digits(&line, "digest", digest);
  add_digits(&line, "host", host);
  add_digits(&line, "golden", type->golden);
  add_number(&line, "wrong", room->seen->count);
  end_line(&line);
}

void load_gemm(long long milliseconds) {
  struct room room;
  struct pieces pieces;
  memset(&room, 0, sizeof room);
  MUST(cuMemAlloc, &room.expected, FF_MATRIX * sizeof(double));
  MUST(cuMemAlloc, &room.results, FF_MATRIX * sizeof(double));
  MUST(cuMemAlloc, &room.report, sizeof(struct ff_report));
  MUST(cuMemHostAlloc, (void**)&room.product, FF_MATRIX * sizeof(double), 0);
  MUST(cuMemHostAlloc, (void**)&room.seen, sizeof(struct ff_report), 0);
  begin_step("the kernels");
  (void)find_kernel(70, types[0].gemm);
  if (gpu.capability >= 80) (void)find_kernel(80, types[TYPES - 1].gemm);
  take_memory(&pieces);
  room.inputs = pieces.at[0];
  room.input_bytes = pieces.bytes[0];
  for (int i = 0; i < TYPES; i++) {
    if (gpu.capability < types[i].kernels) continue;
    begin_step(types[i].name);
    run_type(&room, &types[i], milliseconds / TYPES);
    report_xids();
  }
}
