// One worker of a save, with several chunks in flight, each in these steps:
//   read -> digest and CRC32C -> look up in the store -> write -> sync -> rename into place.
//
// A written chunk releases its slot and is synced together with others: a batch of files costs one
// journal commit of the file system and few flushes of the device.
#pragma once

#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "platform/io/buffers.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/sorted_set.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/save/index_recorder.h"
#include "training/checkpoint/save/input.h"

namespace ff::checkpoint {

struct DigestHash {
  size_t operator()(const simd::Digest& digest) const {
    return load_le<uint64_t>(digest.bytes.data());  // a digest is as good as any hash
  }
};

// The chunks that a committed index names; read at the first question. Thread-safe.
class CommittedChunks {
 public:
  CommittedChunks(io::Disk& disk, std::string index_path)
      : disk_(disk), index_path_(std::move(index_path)) {}
  Result<bool> contains(const simd::Digest& chunk);

 private:
  io::Disk& disk_;
  const std::string index_path_;
  std::mutex mutex_;
  std::optional<SortedSet<ChunkKey>> chunks_;
};

// State that the workers of one save share.
struct SaveShared {
  Context& context;
  const Store& store;
  Lease& lease;
  SavePlanner& planner;
  IndexRecorder& recorder;
  bool compress = false;
  // The step exists already, with this index: only chunks that it names are written, if they are
  // damaged or missing. A chunk that it does not name proves that the inputs differ.
  CommittedChunks* committed = nullptr;
  // Only these chunks are written; the index is of no use then.
  const std::set<simd::Digest>* wanted = nullptr;
  bool trash = true;  // it has entries that may have to be restored

  std::atomic<bool> failed{false};
  std::atomic<bool> differs{false};    // from the checkpoint of `committed`
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
    bool kept = false;       // the data is in memory; else only its digest is known
    bool zero = false;       // every byte of it
    bool looked_up = false;  // its digest was looked up
    bool known = false;      // and occurred before in this save
    SaveJob job;
    simd::Fingerprint print;
    StoredJob stored;
    std::unique_ptr<io::File> file;  // the chunk file that is read or written
    std::string unfinished;          // its path in tmp/ while it is written
  };
  // A chunk file that is written and not yet synced.
  struct Unsynced {
    std::unique_ptr<io::File> file;
    std::string path;
    SaveJob job;
    StoredJob stored;
  };

  explicit SaveWorker(SaveShared& shared);
  Result<void> set_up();
  Result<bool> feed();
  Result<void> start(Slot& slot);
  Result<void> read(Slot& slot, bool keep);
  Result<std::optional<simd::Fingerprint>> read_cached(Slot& slot, bool keep);
  void read_direct(Slot& slot);
  Result<void> fingerprint_and_go_on(Slot& slot);
  Result<void> go_on(Slot& slot, const simd::Fingerprint& print);
  Result<void> look_up(Slot& slot);
  Result<void> check_head(Slot& slot, size_t length);
  Result<void> store(Slot& slot);
  Result<void> write(Slot& slot);
  void written(Slot& slot);
  void sync_chunks(bool rest);
  Result<void> put_in_place(Unsynced& chunk);
  StoredJob stored_job(const Slot& slot) const;
  Result<void> finish_known(Slot& slot);
  Result<void> finish_zeros(Slot& slot);
  Result<void> finish(Slot& slot, StoredJob stored);
  void release(Slot& slot);
  void check(Result<void> result);

  ByteSpan data(const Slot& slot) const { return slot.memory.subspan(kHeadBytes, slot.job.length); }

  SaveShared& shared_;
  Context& context_;
  std::optional<io::Buffers> buffers_;
  std::vector<Slot> slots_;
  size_t busy_ = 0;                // slots
  std::vector<std::byte> window_;  // buffer for data that read_cached() does not keep
  std::vector<std::byte> packed_;  // compressed data before it is copied into a slot
  simd::Fingerprinter print_;
  simd::Digester digest_;
  bool expect_known_ = false;  // the last chunk was in the store; so may be the next
  std::list<Unsynced> unsynced_;
  std::list<Unsynced> syncing_;  // submitted to the queue
  std::optional<Error> error_;
  std::unique_ptr<io::IoQueue> queue_;  // last: it waits for I/O on the members above
};

}  // namespace ff::checkpoint
