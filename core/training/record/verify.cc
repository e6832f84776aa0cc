// verify.cc: reads batches of samples, and those of a batch with damage one by one.
#include "training/record/verify.h"

#include <vector>

namespace ff::record {

namespace {

constexpr uint64_t kBatchBytes = 64 * kMiB;
constexpr size_t kBatchSamples = 4096;

// Reads the samples [first, end) into `memory`.
Result<void> read_range(Reader& reader, uint64_t first, uint64_t end,
                        std::vector<std::byte>& memory) {
  std::vector<uint64_t> samples;
  std::vector<std::byte*> places;
  uint64_t bytes = 0;
  for (uint64_t i = first; i < end; i++) bytes += *reader.bytes_of(i);
  if (memory.size() < bytes) memory.resize(bytes);
  std::byte* at = memory.data();
  for (uint64_t i = first; i < end; i++) {
    samples.push_back(i);
    places.push_back(at);
    at += *reader.bytes_of(i);
  }
  return reader.read(samples, places);
}

Damage damage_of(const Reader& reader, uint64_t sample, const Error& error) {
  const auto [file, number] = reader.find(sample);
  return {.path = file.open->path(), .sample = number, .cause = error.message};
}

}  // namespace

Result<void> verify(RunContext& work, Reader& reader,
                    const std::function<void(const Damage&)>& found) {
  work.progress.total = 0;
  for (uint64_t i = 0; i < reader.samples(); i++) work.progress.total += *reader.bytes_of(i);
  std::vector<std::byte> memory;
  for (uint64_t first = 0; first < reader.samples();) {
    FF_TRY(work.stop.check());
    uint64_t end = first;
    uint64_t bytes = 0;
    while (end < reader.samples() && end - first < kBatchSamples &&
           (end == first || bytes + *reader.bytes_of(end) <= kBatchBytes)) {
      bytes += *reader.bytes_of(end++);
    }
    if (!read_range(reader, first, end, memory)) {
      for (uint64_t i = first; i < end; i++) {
        const auto read = read_range(reader, i, i + 1, memory);
        if (!read) found(damage_of(reader, i, read.error()));
      }
    }
    work.progress.done += bytes;
    first = end;
  }
  return {};
}

}  // namespace ff::record
