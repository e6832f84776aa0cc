// An open file: its bytes over the chains of its stripe. Owned by the loop of its FileSystem, and
// any number of reads and writes may be under way at once.
//
// Errors carry the errno for whoever answers a kernel (Error::sys); ESTALE: the file is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/io/disk.h"
#include "storage/chain/client.h"
#include "storage/client/inode_state.h"
#include "storage/client/write_behind.h"
#include "storage/cluster/routing.h"
#include "storage/meta/meta_client.h"

namespace ff::client {

class FileSystem;

class File : public std::enable_shared_from_this<File> {
 public:
  // By FileSystem alone.
  File(FileSystem& of, meta::Seen seen, std::vector<cluster::ChainId> chains,
       std::optional<meta::SessionId> session);

  // Behind the last byte that storage has: from there on it reads as zeros, however long it is.
  Task<Result<uint64_t>> stored_end();

  const meta::Seen& seen() const { return seen_; }
  // What a server has just said of it.
  void heard(meta::Seen seen);
  // As last heard of; the length at least as long as what was written here.
  const meta::Inode& inode() const { return seen_.inode; }
  meta::Ref ref() const { return seen_.ref(); }
  uint64_t chunk_size() const { return seen_.inode.layout.chunk_size; }
  // How often others were told that something was written here: each counts in Inode::changes.
  uint64_t times_told() const { return times_told_; }

  // Fewer bytes than asked for at the end of the file; what was never written reads as zeros. The
  // memory is nobody's again when this ends. What write_behind() holds is written before.
  Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into);
  // Many at once: one call to each target that has some of them. A result each.
  struct Extent {
    uint64_t offset = 0;
    ByteSpan into = {};
    bool holes = true;  // false: ENODATA where something was never written
  };
  Task<std::vector<Result<uint64_t>>> read_many(std::vector<Extent> extents);
  // Returns once storage has acknowledged all of it, on all replicas (not durable: sync()).
  Task<Result<void>> write(uint64_t offset, ByteView from);
  // Returns once the bytes are taken over; they are written soon, the latest with flush(), sync()
  // or close(). What cannot be written is tried again (client/write_behind.h), and its error told
  // by sync() and close() alone. While it cannot, no more is taken, unless it `must`. `keeper`:
  // keeps `from` as it is while it is held; then whole chunks need not be copied.
  using Keeper = std::shared_ptr<const void>;
  Task<Result<void>> write_behind(uint64_t offset, ByteView from, Keeper keeper = {},
                                  bool must = false);
  // What was taken has been tried: no error is told. Errc::interrupted: it has not.
  Task<Result<void>> flush();
  // The same; and others hear how long the file is, and that it was written.
  Task<Result<void>> publish();
  // The file is at least so long from now on.
  Task<Result<void>> extend(uint64_t length);
  // What lies there reads as zeros, and whole chunks take no space any more: those of the bytes
  // that the file has when this begins; what others append meanwhile stays.
  Task<Result<void>> clear(uint64_t offset, uint64_t size);
  // The first stretch that is stored and ends behind `offset`, or does not reach there: one without
  // a byte, at the end of the file, if nothing is. Chunks are told apart, no more.
  Task<Result<io::DataRange>> next_data(uint64_t offset);
  // At the end of the file, wherever that is by then: two who append never write the same place.
  // Where they are.
  Task<Result<uint64_t>> append(ByteView from);
  // What was written is durable, by all who have the inode open in this client, and its length
  // known to everybody. Or the newest error that this one was not told of yet: of what could not be
  // written, of what storage or a metadata server has lost (client/error_seq.h).
  Task<Result<void>> sync() { return sync(told_); }
  // Of one of several open file descriptions that share the file: where it is among the errors.
  Task<Result<void>> sync(ErrorSeq::Cursor& told);
  ErrorSeq::Cursor cursor() const { return state_->errors.open(); }
  // The same for nobody in particular: errors that come late are not told.
  Task<Result<void>> make_durable();
  // What cannot be written now; or the newest error since the cursor was opened, which stays.
  Result<void> late_error(const ErrorSeq::Cursor& told) const;
  // For close(2) of one: publish(), and the error that its sync() would tell, which stays.
  Task<Result<void>> publish_of(const ErrorSeq::Cursor& told);
  Task<Result<void>> truncate(uint64_t length);
  // Somebody cuts it by its name: what could not be written behind that is no longer wanted.
  void cutting(uint64_t length) { behind_.forget(length, UINT64_MAX); }
  // The inode as it is for everybody, with what was written here.
  Task<Result<meta::Inode>> look();
  // Takes the file's advisory lock, until close(). False: another has it, or had it and has not
  // been silent for meta::kLockLapseNs.
  Task<Result<bool>> try_lock(meta::Caller caller);
  // What was written is acknowledged, and its length known to everybody; or the error that sync()
  // would tell. What still cannot be written is lost. Once.
  Task<Result<void>> close();

 private:
  friend class FileSystem;
  struct Part;
  std::vector<Part> parts(uint64_t offset, uint64_t size) const;
  void writing_now();
  Result<void> check_write(uint64_t offset, uint64_t size) const;
  Task<Result<void>> write_part(Part part, ByteView from);
  Task<Result<std::string>> capability();
  Task<Result<void>> check_there(bool hole, int64_t began_ns);
  Task<Result<std::string>> before_reading(const std::vector<Extent>& extents, int64_t began_ns);
  Task<Result<void>> tell(bool closed);
  Task<Result<void>> tell_durably();
  bool all_told() const { return !untold_ && telling_ == 0; }
  Task<Result<bool>> ask_for_lock();
  Task<void> unlock();
  struct Run;
  Task<Result<void>> find_run(size_t turn, uint64_t from, std::optional<Run>& run);
  Task<Result<void>> clear_on(cluster::ChainId chain, uint64_t begin, uint64_t end);
  Task<Result<void>> update(cluster::ChainId chain, chunk::Update update);
  Task<Result<void>> write_parts(uint64_t offset, ByteView from);
  Task<Result<void>> sync_chain(cluster::ChainId chain, uint64_t count);

  FileSystem& of_;
  meta::Seen seen_;
  const std::vector<cluster::ChainId> chains_;
  const std::optional<meta::SessionId> session_;  // open for writing
  int64_t capability_ns_;                         // when it was given
  int64_t seen_ns_;  // when it was last known that the inode is there, and how long
  bool closed_ = false;
  uint64_t end_ = 0;        // behind what was written here since it was last told
  bool untold_ = false;     // something was written since
  int64_t written_ns_ = 0;  // when it was, on the wall clock
  uint64_t times_told_ = 0;
  size_t telling_ = 0;  // calls under way that tell, and may fail
  const std::shared_ptr<InodeState> state_;
  ErrorSeq::Cursor told_;
  // While the lock is held.
  struct Lock {
    meta::SessionId owner;
    meta::Caller caller;
    int64_t asked_ns = 0;  // when it was asked for what was last granted
    bool lost = false;     // another may have had it since
  };
  std::optional<Lock> lock_;
  WriteBehind behind_;
};

}  // namespace ff::client
