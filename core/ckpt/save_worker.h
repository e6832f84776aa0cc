// One worker of a save: several chunks in flight, each going through
//   read -> digest and CRC32C -> known already? -> write -> sync -> rename into place.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "ckpt/input.h"
#include "ckpt/lease.h"
#include "ckpt/recorder.h"
#include "ckpt/store.h"
#include "io/buffers.h"

namespace ff::ckpt {

struct DigestHash {
  size_t operator()(const simd::Digest& digest) const {
    return load_le<uint64_t>(digest.bytes.data());  // a digest is as good as any hash
  }
};

// What the workers of one save share.
struct SaveShared {
  Context& context;
  const Store& store;
  Lease& lease;
  Planner& planner;
  Recorder& recorder;
  bool compress = false;
  // The step exists already: nothing is written, and the first chunk that is not in the store
  // shows that the inputs differ.
  bool compare_only = false;

  std::atomic<bool> failed{false};
  std::atomic<uint64_t> next_file{0};  // names unfinished files
  std::atomic<uint64_t> zero_bytes{0};
  std::atomic<uint64_t> chunks_new{0};
  std::atomic<uint64_t> chunks_reused{0};  // found in the store
  std::atomic<uint64_t> bytes_written{0};

  std::mutex mutex;
  std::unordered_set<simd::Digest, DigestHash> seen;  // chunks of this save
};

class SaveWorker {
 public:
  static Result<void> run(SaveShared& shared);

 private:
  // A slot's memory: room for a block before the data (the head, or what alignment reads ahead),
  // the data, and a block after it.
  struct Slot {
    ByteSpan memory;
    bool busy = false;
    Job job;
    StoredJob stored;
    std::unique_ptr<io::File> out;
    std::string unfinished;  // path in tmp/
  };

  explicit SaveWorker(SaveShared& shared);
  Result<void> set_up();
  Result<bool> feed();
  void start(Slot& slot);
  void read_direct(Slot& slot);
  void process(Slot& slot);
  Result<bool> already_stored(Slot& slot, const simd::Digest& digest);
  Result<void> write(Slot& slot, const simd::Fingerprint& print);
  void written(Slot& slot);
  Result<void> put_in_place(Slot& slot);
  void finish(Slot& slot);
  void check(Result<void> result);

  ByteSpan data(Slot& slot) const { return slot.memory.subspan(kHeadBytes, slot.job.length); }

  SaveShared& shared_;
  Context& context_;
  std::optional<io::Buffers> buffers_;
  std::vector<Slot> slots_;
  std::vector<std::byte> packed_;  // compressed data on its way into a slot
  std::optional<Error> error_;
  std::unique_ptr<io::IoQueue> queue_;  // last: it waits for I/O on the members above
};

}  // namespace ff::ckpt
