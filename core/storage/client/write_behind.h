// What a file's writer need not wait for: bytes are gathered by chunk and written when a chunk is
// full, when what comes next does not follow, when memory is short, or after a while. One write of
// a chunk is under way at a time, so that they keep their order.
//
// Bytes that could not be written are kept and tried again: every few seconds, before more of the
// file is taken, and whenever somebody syncs. Of each place the newest count; a later write or a
// cut replaces them. All files together keep so in half of the memory for writes; what does not
// fit, and what storage refuses for good, is lost, which the log says with its range. Each failure
// is recorded in the inode's errors (client/error_seq.h): nobody is told here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/wait.h"
#include "storage/chain/memory.h"
#include "storage/client/error_seq.h"
#include "storage/meta/inode.h"

namespace ff::client {

class WriteBehind {
 public:
  // What the files of a client share.
  struct Shared {
    Shared(Loop& loop, ByteSpan arena, uint64_t mib, Metrics& metrics);
    chain::Memory memory;
    const uint64_t all;  // MiB
    Semaphore free;      // of those
    uint64_t kept = 0;   // MiB of what could not be written
    Counter& lost;
  };
  using Write = std::function<Task<Result<void>>(uint64_t offset, ByteView from)>;
  // `shared`, `errors` and `write` must live as long as this.
  WriteBehind(Loop& loop, Shared& shared, ErrorSeq& errors, const meta::Inode& inode, Write write);

  // Nothing waits to be written for the first time.
  bool empty() const { return buffers_.empty() && writing_ == 0; }
  // Takes the bytes over: a copy of them, or, of whole chunks, the share of their `keeper` if there
  // is one. While earlier bytes cannot be written it takes none, and ends with why, unless it
  // `must`.
  Task<Result<void>> add(uint64_t offset, ByteView from, std::shared_ptr<const void> keeper = {},
                         bool must = false);
  // What could not be written: nobody waits for it; attempts under way are waited for; one begins
  // if the last is long ago, or in any case.
  enum class Again : uint8_t { no, under_way, if_due, now };
  // All that was taken has been tried when this ends. Errc::interrupted: it has not.
  Task<Result<void>> flush(Again again);
  // Begins to write what has waited since before `before_ns` (steady), and again what is due.
  void start_old(int64_t before_ns);
  // No task is left; what is still there is lost.
  Task<void> close();

  // Of what could not be written. Why; nothing: there is none.
  std::optional<Error> trouble() const;
  bool keeps() const { return !kept_.empty(); }
  // Lays it over what storage has of that range.
  void lay_over(uint64_t offset, ByteSpan into) const;
  // The range was written or cut since. Right after a flush(), when no attempt is under way.
  void forget(uint64_t begin, uint64_t end);
  // Behind the last byte that is here.
  uint64_t end() const;

 private:
  struct Buffer {
    chain::Memory::Bytes memory;  // of a chunk; none: the bytes are somebody's else
    std::shared_ptr<const void> keeper = {};
    ByteView kept = {};
    Semaphore::Hold hold;
    uint64_t begin = 0;  // in the file
    uint64_t size = 0;
    int64_t since_ns = 0;
  };
  using Buffers = std::map<uint64_t, Buffer>;  // by chunk
  struct Kept;
  using KeptRef = std::shared_ptr<Kept>;

  Task<Result<void>> add_to(uint64_t chunk, uint64_t offset, ByteView from,
                            std::shared_ptr<const void> keeper);
  void start(Buffers::iterator at);
  void start_all();
  Task<Result<void>> drain(bool attempts);
  Task<Result<void>> turn(uint64_t chunk, uint64_t ticket);
  void end_turn(uint64_t chunk, size_t& of);
  Task<Result<void>> write_in_turn(uint64_t chunk, uint64_t ticket, ByteView from, uint64_t offset);
  Task<void> write(uint64_t chunk, uint64_t ticket, Buffer buffer);
  ByteView bytes_of(uint64_t chunk, const Buffer& buffer) const;
  bool due() const { return loop_.now_ns() - failed_ns_ >= kAgainNs; }
  void start_again();
  Task<Result<void>> write_kept(uint64_t chunk, uint64_t ticket, Kept& kept);
  Task<void> write_again(uint64_t chunk, uint64_t ticket, KeptRef kept);
  void failed(const Error& error);
  void keep(uint64_t chunk, Buffer buffer, const Error& why);
  KeptRef make_kept(uint64_t chunk, Buffer& buffer);
  void lose(uint64_t chunk, const Error& why);
  void lost(uint64_t begin, uint64_t end, const Error& why);
  void forget(Kept& kept, uint64_t begin, uint64_t end) const;

  static constexpr int64_t kAgainNs = 5 * kSecond;

  Loop& loop_;
  Shared& shared_;
  ErrorSeq& errors_;
  const meta::InodeId inode_;
  const uint64_t chunk_size_;
  const size_t units_;  // MiB of a chunk
  const Write write_;
  Buffers buffers_;
  std::map<uint64_t, KeptRef> kept_;  // by chunk
  uint64_t failures_ = 0;
  int64_t failed_ns_ = 0;  // the last of them
  bool closing_ = false;
  // Of a chunk that is being written: one after the other, in the order of their tickets.
  struct Turns {
    uint64_t given = 0;
    uint64_t done = 0;
  };
  std::map<uint64_t, Turns> turns_;
  size_t writing_ = 0;
  size_t trying_ = 0;  // again
  Event done_;         // for a moment, whenever one has been written
  Gate gate_;
};

}  // namespace ff::client
