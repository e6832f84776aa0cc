// Write-behind of one file: it collects bytes per chunk and writes them when the chunk is full,
// when a write is not contiguous, when memory is short, or after a while. At most one write per
// chunk is in flight, so that writes keep their order.
//
// Bytes whose write failed are kept and retried: every few seconds, before the next write to the
// file, and at each sync. Newer writes and truncations replace them. All files together may keep
// half of the write memory this way. Bytes that do not fit, and bytes that storage refuses
// permanently, are lost; the log names the range. Each failure is recorded in the ErrorSeq of the
// inode (client/error_seq.h), which reports it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/wait.h"
#include "storage/chain/buffer_pool.h"
#include "storage/client/error_seq.h"
#include "storage/client/recovery_table.h"
#include "storage/meta/inode.h"

namespace ff::client {

// The file is removed or the writer has no right to it: retrying is useless.
bool is_permanent_write_error(const Error& error);

class WriteBehind {
 public:
  // Shared by all files of a client.
  struct Shared {
    // With `recovery`, each acknowledged byte has a record before add() returns; the bytes lie in
    // `data`, memory that outlives the process and contains `arena`.
    Shared(Loop& loop, ByteSpan arena, uint64_t mib, Metrics& metrics, RecoveryTable* recovery,
           ByteSpan data);
    chain::BufferPool memory;
    const uint64_t capacity_mib;  // MiB
    Semaphore free_mib;           // of those
    uint64_t failed_mib = 0;      // MiB of failed writes
    Counter& lost_bytes;
    RecoveryTable* const recovery;  // null: none
    const ByteSpan data;
  };
  using Write = std::function<Task<Result<void>>(uint64_t offset, ByteView from)>;
  // `shared`, `errors` and `write` must outlive it. `session`: with which the file is open.
  WriteBehind(Loop& loop, Shared& shared, ErrorSeq& errors, const meta::Inode& inode,
              uint64_t session, Write write);

  // No bytes are buffered or being written for the first time.
  bool empty() const { return buffers_.empty() && writing_ == 0; }
  // Buffers the bytes: copies them, or shares ownership of whole chunks if there is an `owner`. If
  // earlier bytes still fail, it returns that error and buffers nothing, unless `force`.
  Task<Result<void>> add(uint64_t offset, ByteView from,
                         std::shared_ptr<const void> owner = nullptr, bool force = false);
  // What flush() does with failed bytes: ignore them, wait for running retries, retry if the last
  // attempt is long ago, or retry now.
  enum class Retry : uint8_t { no, wait, if_due, now };
  // Returns after every buffered byte was tried. Errc::interrupted: not all were.
  Task<Result<void>> flush(Retry retry);
  // Starts writing what was buffered before `before_ns` (steady clock), and due retries.
  void start_older_than(int64_t before_ns);
  // Cancels all tasks. Bytes that are still buffered are lost.
  Task<void> close();

  // The error of the failed bytes; none: there are no failed bytes.
  std::optional<Error> error() const;
  bool has_failed_bytes() const { return !failed_chunks_.empty(); }
  // Copies failed bytes over what storage returned for this range.
  void overlay(uint64_t offset, ByteSpan into) const;
  // Drops failed bytes of a range that was written or truncated since. Call it right after flush(),
  // while no retry runs.
  void discard(uint64_t begin, uint64_t end);
  // Whether a successor of this process finds all bytes that are held here.
  bool recorded() const { return shared_.recovery != nullptr && unrecorded_ == 0; }
  // Whether less than half of the memory of all files is in use.
  bool has_memory() const { return shared_.free_mib.available() > shared_.capacity_mib / 2; }
  // Drops what no write has begun with, and failed bytes that no retry runs with: the file is
  // removed.
  void drop_buffers();
  // A close(2) succeeds before its bytes are stored: none of them is given up for lack of memory.
  void promise() { promised_ = true; }
  // Keeps bytes that a predecessor of this process has left, where they are, as bytes that could
  // not be written. False, and nothing is changed: some lie outside the memory of all files.
  bool adopt(std::vector<RecoveryTable::Record>& left, const Error& why);
  // The offset behind the last byte held here.
  uint64_t end_offset() const;

 private:
  struct Buffer {
    chain::BufferPool::Buffer memory;  // of a chunk; empty: the owner holds the bytes
    std::shared_ptr<const void> owner = {};
    ByteView bytes = {};
    Semaphore::Permit hold;
    uint64_t begin = 0;  // in the file
    uint64_t size = 0;
    int64_t since_ns = 0;
    RecoveryTable::Record record = {};
    bool unrecorded = false;  // a record was wanted and not possible
  };
  using Buffers = std::map<uint64_t, Buffer>;  // by chunk
  struct FailedChunk;
  using FailedChunkRef = std::shared_ptr<FailedChunk>;

  Task<Result<void>> add_to(uint64_t chunk, uint64_t offset, ByteView from,
                            std::shared_ptr<const void> owner);
  void start(Buffers::iterator at);
  void start_all();
  Task<Result<void>> drain(bool attempts);
  Task<Result<void>> wait_turn(uint64_t chunk, uint64_t ticket);
  void end_turn(uint64_t chunk, size_t& of);
  Task<Result<void>> write_in_turn(uint64_t chunk, uint64_t ticket, ByteView from, uint64_t offset);
  Task<void> write(uint64_t chunk, uint64_t ticket, Buffer buffer);
  ByteView bytes_of(uint64_t chunk, const Buffer& buffer) const;
  RecoveryTable::Record record(ByteView bytes, uint64_t begin, uint64_t order) const;
  void record(uint64_t chunk, Buffer& buffer);
  void record(uint64_t chunk, FailedChunk& kept) const;
  bool due() const { return loop_.now_ns() - failed_ns_ >= kRetryNs; }
  void retry_all();
  Task<Result<void>> write_failed_chunk(uint64_t chunk, uint64_t ticket, FailedChunk& kept);
  Task<void> rewrite(uint64_t chunk, uint64_t ticket, FailedChunkRef kept);
  void on_failure(const Error& error);
  void keep_failed(uint64_t chunk, Buffer buffer, const Error& why);
  FailedChunkRef make_failed_chunk(uint64_t chunk, Buffer& buffer);
  void adopt(FailedChunk& kept, RecoveryTable::Record left, const Error& why);
  void drop_failed(uint64_t chunk, const Error& why);
  void report_lost(uint64_t begin, uint64_t end, const Error& why);
  void discard(uint64_t chunk, FailedChunk& kept, uint64_t begin, uint64_t end) const;

  static constexpr int64_t kRetryNs = 5 * kSecond;

  Loop& loop_;
  Shared& shared_;
  ErrorSeq& errors_;
  const meta::InodeId inode_;
  const uint64_t session_;
  const uint64_t chunk_size_;
  const size_t units_;  // MiB of a chunk
  const Write write_;
  Buffers buffers_;
  std::map<uint64_t, FailedChunkRef> failed_chunks_;  // by chunk
  uint64_t failures_ = 0;
  int64_t failed_ns_ = 0;  // time of the last failure
  bool closing_ = false;
  bool promised_ = false;
  // Writes of one chunk run in the order of their tickets.
  struct WriteOrder {
    uint64_t given = 0;
    uint64_t done = 0;
  };
  std::map<uint64_t, WriteOrder> order_;
  size_t writing_ = 0;
  size_t retries_ = 0;     // retries in flight
  size_t unrecorded_ = 0;  // buffers
  Event done_;             // pulsed after each write
  Gate gate_;
};

}  // namespace ff::client
