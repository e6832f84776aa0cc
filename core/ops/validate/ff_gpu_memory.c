// ff_gpu_memory.c: writes patterns over all free memory of the device, and reads them back.
#include <stdio.h>
#include <string.h>

#include "ops/validate/ff_gpu_cuda.h"

static const char* const pattern_names[FF_PATTERNS] = {"zeros and ones", "its own address",
                                                       "walking ones", "walking zeros", "random"};
enum { SEED = 20240811 };

// The memory, and the report of the device, which is read after each pass.
struct test {
  struct pieces pieces;
  CUfunction write, check;
  CUdeviceptr report;
  struct ff_report* seen;  // pinned
};

static void report_wrong_words(const struct test* test, ff_word from, const char* pattern) {
  static struct line line;
  for (ff_word i = from; i < test->seen->count && i < FF_WRONG_MAX; i++) {
    const struct ff_wrong* const wrong = &test->seen->first[i];
    char digits[24];
    begin_line(&line, "wrong", -1);
    add_text(&line, "step", pattern);
    add_number(&line, "at", wrong->at * sizeof(ff_word));
    snprintf(digits, sizeof digits, "%016llx", wrong->expected);
    add_text(&line, "expected", digits);
    snprintf(digits, sizeof digits, "%016llx", wrong->got);
    add_text(&line, "got", digits);
    add_number(&line, "processor", wrong->processor);
    end_line(&line);
  }
}

// One kernel over all pieces.
static void over_all(const struct test* test, CUfunction kernel, unsigned pattern, ff_word flip) {
  ff_word first = 0, seed = SEED;
  for (int i = 0; i < test->pieces.count; i++) {
    CUdeviceptr words = test->pieces.at[i], report = test->report;
    ff_word count = test->pieces.bytes[i] / sizeof(ff_word);
    void* arguments[] = {&words, &count, &first, &pattern, &seed, &flip, &report};
    launch(kernel, gpu.blocks, arguments);
    first += count;
  }
}

static void run_pass(const struct test* test, unsigned pattern, ff_word flip) {
  const ff_word before = test->seen->count;
  over_all(test, test->write, pattern, flip);
  finish();
  over_all(test, test->check, pattern, flip);
  MUST(cuMemcpyDtoHAsync, test->seen, test->report, sizeof *test->seen, gpu.stream);
  finish();
  report_wrong_words(test, before, pattern_names[pattern]);
}

void load_memory(long long milliseconds) {
  static struct line line;
  struct test test;
  memset(&test, 0, sizeof test);
  MUST(cuMemAlloc, &test.report, sizeof(struct ff_report));
  MUST(cuMemHostAlloc, (void**)&test.seen, sizeof(struct ff_report), 0);
  memset(test.seen, 0, sizeof *test.seen);
  test.write = find_kernel(70, "ff_pattern_write");
  test.check = find_kernel(70, "ff_pattern_check");
  MUST(cuMemsetD8Async, test.report, 0, sizeof(struct ff_report), gpu.stream);
  take_memory(&test.pieces);
  const long long begin = now_ms();
  unsigned rounds = 0;
  begin_time();
  do {
    for (unsigned pattern = 0; pattern < FF_PATTERNS; pattern++) {
      begin_step(pattern_names[pattern]);
      run_pass(&test, pattern, 0);
      run_pass(&test, pattern, ~0ull);
    }
    rounds++;
    report_xids();
  } while (now_ms() - begin < milliseconds);
  begin_line(&line, "memory", -1);
  add_number(&line, "bytes", test.pieces.all);
  add_number(&line, "rounds", rounds);
  add_number(&line, "passes", rounds * FF_PATTERNS * 2ull);
  add_number(&line, "wrong", test.seen->count);
  add_number(&line, "nanoseconds", (ff_word)(end_time() * 1e9));
  end_line(&line);
}
