// file_sum.cc: two pieces of a file at work, one being read or written and one being reduced.
#include "training/collective/file_sum.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "platform/io/new_file.h"

namespace ff::collective {

namespace {

constexpr uint64_t kFilePieceBytes = 16 << 20;
constexpr size_t kPieces = 2;  // at once

struct SumStep {
  simd::DataType type = simd::DataType::f32;
  uint64_t at = 0;     // bytes of the data
  uint64_t count = 0;  // elements
  uint64_t bytes() const { return count * simd::size_of(type); }
};

std::vector<SumStep> steps_of(const std::vector<FileArray>& arrays) {
  std::vector<SumStep> steps;
  for (const FileArray& array : arrays) {
    const uint64_t size = simd::size_of(array.type);
    for (uint64_t first = 0; first < array.count;) {
      const uint64_t count = std::min(kFilePieceBytes / size, array.count - first);
      steps.push_back({.type = array.type, .at = array.at + first * size, .count = count});
      first += count;
    }
  }
  return steps;
}

class Summing {
 public:
  Summing(Communicator& ranks, Progress& progress, const FileSum& sum)
      : ranks_(ranks), progress_(progress), sum_(sum) {}

  // `out` null: this rank writes nothing.
  Result<void> run(io::File& in, io::File* out) {
    for (Slot& slot : slots_) {
      FF_TRY(slot.in, ranks_.allocate(kFilePieceBytes));
      FF_TRY(slot.out, ranks_.allocate(kFilePieceBytes));
    }
    const std::vector<SumStep> steps = steps_of(sum_.arrays);
    for (size_t i = 0; i < steps.size(); i++) {
      Slot& slot = slots_[i % kPieces];
      FF_TRY(finish(slot, out));
      FF_TRY(begin(slot, steps[i], in));
    }
    for (size_t i = 0; i < kPieces; i++) {
      FF_TRY(finish(slots_[(steps.size() + i) % kPieces], out));
    }
    return {};
  }

 private:
  struct Slot {
    ByteSpan in, out;
    std::optional<uint64_t> number = {};  // of the operation on it
    SumStep step = {};
  };

  Result<void> begin(Slot& slot, const SumStep& step, io::File& in) {
    const ByteSpan into = slot.in.first(step.bytes());
    FF_TRY(const size_t got, in.read_at(into, sum_.in_data + step.at));
    if (got < into.size()) return fail(Errc::failed, "{}: became shorter meanwhile", in.path());
    slot.step = step;
    FF_TRY(slot.number,
           ranks_.start({.kind = sum_.to_all ? Collective::allreduce : Collective::reduce,
                         .type = step.type,
                         .op = sum_.op,
                         .count = step.count,
                         .in = slot.in.data(),
                         .out = slot.out.data()}));
    return {};
  }
  Result<void> finish(Slot& slot, io::File* out) {
    if (!slot.number) return {};
    FF_TRY(ranks_.wait(*slot.number));
    slot.number.reset();
    progress_.done += slot.step.bytes();
    if (out == nullptr) return {};
    return out->write_at(slot.out.first(slot.step.bytes()), sum_.head.size() + slot.step.at);
  }

  Communicator& ranks_;
  Progress& progress_;
  const FileSum& sum_;
  std::array<Slot, kPieces> slots_;
};

}  // namespace

Result<void> sum_files(Communicator& ranks, io::Disk& disk, Rng& rng, Progress& progress,
                       const FileSum& sum) {
  FF_TRY(const auto in, disk.open(sum.in, {.access = io::Access::read}));
  Summing summing(ranks, progress, sum);
  if (sum.out.empty()) return summing.run(*in, nullptr);
  FF_TRY(io::NewFile::check(disk, sum.out, sum.replace));
  io::NewFile made(disk, rng, sum.out);
  FF_TRY(const auto out,
         disk.open(made.unfinished(),
                   {.access = io::Access::write, .create = true, .exclusive = true}));
  FF_TRY(out->write_at(as_bytes(sum.head), 0));
  FF_TRY(summing.run(*in, out.get()));
  FF_TRY(out->sync());
  return made.commit(sum.replace);
}

}  // namespace ff::collective
