// file_reduction.cc: two pieces in flight: one is read or written while the other is reduced.
#include "training/collective/file_reduction.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "platform/io/atomic_file.h"

namespace ff::collective {

namespace {

constexpr uint64_t kFilePieceBytes = 16 << 20;
constexpr size_t kFilePiecesMax = 2;  // in flight

struct ReductionStep {
  simd::DataType type = simd::DataType::f32;
  uint64_t offset = 0;  // bytes from the start of the data
  uint64_t count = 0;   // elements
  uint64_t bytes() const { return count * simd::size_of(type); }
};

std::vector<ReductionStep> steps_of(const std::vector<FileArray>& arrays) {
  std::vector<ReductionStep> steps;
  for (const FileArray& array : arrays) {
    const uint64_t size = simd::size_of(array.type);
    for (uint64_t first = 0; first < array.count;) {
      const uint64_t count = std::min(kFilePieceBytes / size, array.count - first);
      steps.push_back({.type = array.type, .offset = array.offset + first * size, .count = count});
      first += count;
    }
  }
  return steps;
}

class FileReducer {
 public:
  FileReducer(Communicator& ranks, Progress& progress, const FileReduction& reduction)
      : ranks_(ranks), progress_(progress), reduction_(reduction) {}

  // `out` null: this rank writes no file.
  Result<void> run(io::File& in, io::File* out) {
    for (Slot& slot : slots_) {
      FF_TRY(slot.in, ranks_.allocate(kFilePieceBytes));
      FF_TRY(slot.out, ranks_.allocate(kFilePieceBytes));
    }
    const std::vector<ReductionStep> steps = steps_of(reduction_.arrays);
    for (size_t i = 0; i < steps.size(); i++) {
      Slot& slot = slots_[i % kFilePiecesMax];
      FF_TRY(finish(slot, out));
      FF_TRY(begin(slot, steps[i], in));
    }
    for (size_t i = 0; i < kFilePiecesMax; i++) {
      FF_TRY(finish(slots_[(steps.size() + i) % kFilePiecesMax], out));
    }
    return {};
  }

 private:
  struct Slot {
    ByteSpan in, out;
    std::optional<uint64_t> number = {};  // of the operation on it
    ReductionStep step = {};
  };

  Result<void> begin(Slot& slot, const ReductionStep& step, io::File& in) {
    const ByteSpan into = slot.in.first(step.bytes());
    FF_TRY(const size_t got, in.read_at(into, reduction_.data_offset + step.offset));
    if (got < into.size())
      return fail(Errc::failed, "{}: the file became shorter during the reduction", in.path());
    slot.step = step;
    FF_TRY(slot.number,
           ranks_.start({.kind = reduction_.to_all ? Collective::allreduce : Collective::reduce,
                         .type = step.type,
                         .op = reduction_.op,
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
    return out->write_at(slot.out.first(slot.step.bytes()),
                         reduction_.header.size() + slot.step.offset);
  }

  Communicator& ranks_;
  Progress& progress_;
  const FileReduction& reduction_;
  std::array<Slot, kFilePiecesMax> slots_;
};

}  // namespace

Result<void> reduce_files(Communicator& ranks, io::Disk& disk, Rng& rng, Progress& progress,
                          const FileReduction& reduction) {
  FF_TRY(const auto in, disk.open(reduction.in, {.access = io::AccessMode::read}));
  FileReducer reducer(ranks, progress, reduction);
  if (reduction.out.empty()) return reducer.run(*in, nullptr);
  FF_TRY(io::AtomicFile::check(disk, reduction.out, reduction.replace));
  io::AtomicFile made(disk, rng, reduction.out);
  FF_TRY(const auto out,
         disk.open(made.temp_path(),
                   {.access = io::AccessMode::write, .create = true, .exclusive = true}));
  FF_TRY(out->write_at(as_bytes(reduction.header), 0));
  FF_TRY(reducer.run(*in, out.get()));
  FF_TRY(out->sync());
  return made.commit(reduction.replace);
}

}  // namespace ff::collective
