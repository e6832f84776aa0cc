// An open file: it reads and writes chunks on the chains of the stripe. Owned by the loop of its
// FileSystem; any number of reads and writes may run at once.
//
// Errors carry the errno (Error::sys). ESTALE: the file is removed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/io/disk.h"
#include "storage/chain/chain_client.h"
#include "storage/client/file_parts.h"
#include "storage/client/inode_state.h"
#include "storage/client/write_behind.h"
#include "storage/cluster/routing.h"
#include "storage/meta/meta_client.h"

namespace ff::client {

class FileSystem;

class File : public std::enable_shared_from_this<File> {
 public:
  // Called by FileSystem only.
  File(FileSystem& of, meta::Caller caller, meta::InodeView view,
       std::vector<cluster::ChainId> chains, std::optional<meta::SessionId> session,
       RecoveryTable::Record record = {});

  // The offset behind the last stored byte. The file reads as zeros from there to its length.
  Task<Result<uint64_t>> stored_length();

  const meta::InodeView& view() const { return view_; }
  // Takes the attributes that a server has returned for a request of `asked_ns` (loop clock). They
  // are dropped if they are from before a truncation that this file knows since.
  void on_update(meta::InodeView view, int64_t asked_ns);
  // The last known attributes. The length includes what was written here.
  const meta::Inode& inode() const { return view_.inode; }
  meta::InodeRef ref() const { return view_.ref(); }
  uint64_t chunk_size() const { return view_.inode.layout.chunk_size; }
  // How many length reports with new data were sent; each increments Inode::data_version.
  uint64_t reported_writes() const { return reported_writes_; }

  // Returns fewer bytes than asked for only at the end of the file. Holes read as zeros. The memory
  // must stay valid until this returns. Flushes write-behind first.
  Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into);
  // Reads many extents with one call per target. Returns one result per extent.
  struct Extent {
    uint64_t offset = 0;
    ByteSpan into = {};
    bool holes = true;  // false: a hole is an error (ENODATA)
  };
  Task<std::vector<Result<uint64_t>>> read_many(std::vector<Extent> extents);
  // Lets other threads read the file, if storage has all its bytes (client/read_snapshot.h). Of the
  // files of an inode, call it only for the one that gets all writes of this client.
  void publish_snapshot();
  // Returns after all replicas have acknowledged the bytes. They are durable after sync().
  Task<Result<void>> write(uint64_t offset, ByteView from);
  // Buffers the bytes and returns. They are written soon, at the latest by flush(), sync() or
  // close(). Failed writes are retried (client/write_behind.h); only sync() and close() report
  // their error. Until the retry succeeds, further writes fail unless `force`. `owner` keeps `from`
  // unchanged while it is held, so that whole chunks need no copy.
  using BufferOwner = std::shared_ptr<const void>;
  Task<Result<void>> write_behind(uint64_t offset, ByteView from, BufferOwner owner = nullptr,
                                  bool force = false);
  // Writes all buffered bytes, or tries to. Reports no write error. Errc::interrupted: not all were
  // tried.
  Task<Result<void>> flush();
  // flush(), then reports the length and the change to the metadata service.
  Task<Result<void>> publish_length();
  // Later changes of the times must not be undone by earlier writes: publish_length(), or, if the
  // bytes may be stored after close(2) (client/deferred_closes.h), only tells the metadata client.
  Task<Result<void>> publish_times();
  // Extends the file to at least `length` bytes.
  Task<Result<void>> extend(uint64_t length);
  // Makes the range read as zeros and frees whole chunks, like FALLOC_FL_PUNCH_HOLE. Only bytes
  // that the file has at the start; bytes that others append meanwhile stay.
  Task<Result<void>> punch_hole(uint64_t offset, uint64_t size);
  // The first data range that ends behind `offset`, at the granularity of chunks. If there is none:
  // an empty range at the end of the file.
  Task<Result<io::DataRange>> next_data(uint64_t offset);
  // Appends atomically: concurrent appends never overlap. Returns the offset. `origin`: as
  // meta::Caller::origin.
  Task<Result<uint64_t>> append(ByteView from, uint64_t origin = 0);
  // Makes all writes of this client to the inode durable, and publishes the length. Returns the
  // newest writeback error that this description has not seen (client/error_seq.h).
  Task<Result<void>> sync() { return sync(error_cursor_); }
  // The same for one of several open file descriptions that share this File.
  Task<Result<void>> sync(ErrorSeq::Cursor& cursor);
  ErrorSeq::Cursor cursor() const { return state_->errors.sample(); }
  // The same without a check of writeback errors.
  Task<Result<void>> commit();
  // The error of writes that still fail, or the newest error since the cursor was opened. fsync
  // still reports it.
  Result<void> writeback_error(const ErrorSeq::Cursor& cursor) const;
  // For close(2): publish_length(), then the error that sync() would report. sync() still reports
  // it.
  Task<Result<void>> flush_on_close(const ErrorSeq::Cursor& cursor);
  Task<Result<void>> truncate(uint64_t length, uint64_t origin = 0);
  // The file is truncated by name: drops unwritten bytes behind `length`.
  void discard_unwritten(uint64_t length) { behind_.discard(length, UINT64_MAX); }
  // The current attributes, including what was written here.
  Task<Result<meta::Inode>> refresh();
  // Acquires the advisory lock of the file until close(). False: another owner holds it, or has not
  // been silent for meta::kLockExpiryNs yet.
  Task<Result<bool>> try_lock(meta::Caller caller);
  // close() of a small new file, whose bytes are stored before servers get its length
  // (client/deferred_closes.h). False: not possible.
  Task<Result<bool>> defer_close();
  // Drops the file and keeps its session at the server. It must have no buffered bytes.
  void abandon();
  std::optional<meta::SessionId> session() const { return session_; }
  // Writes everything, reports the length and ends the session. Returns the error that sync() would
  // report. Bytes that still cannot be written are lost. Only the first call has an effect.
  Task<Result<void>> close();

 private:
  friend class FileSystem;
  friend class DeferredCloses;
  std::vector<FilePart> parts(uint64_t offset, uint64_t size) const;
  void withdraw_snapshot();
  void mark_written();
  void save_length();
  Result<void> check_write(uint64_t offset, uint64_t size) const;
  Task<Result<void>> write_part(FilePart part, ByteView from);
  Task<Result<std::string>> capability();
  // Whether the call that failed with this error is to be made again with a new capability.
  bool capability_ended(const Error& error);
  Task<Result<void>> check_exists(bool hole, int64_t began_ns);
  Task<Result<std::string>> prepare_read(const std::vector<Extent>& extents, int64_t began_ns);
  Task<Result<void>> flush_length(bool closed);
  Task<Result<void>> report_buffered_length(bool closed);
  Task<Result<void>> commit_length();
  bool length_published() const { return !length_dirty_ && length_flushes_ == 0; }
  Task<Result<bool>> renew_lock();
  Task<void> unlock();
  struct Run;
  Task<Result<void>> find_run(size_t turn, uint64_t from, std::optional<Run>& run);
  Task<Result<void>> punch_hole_on(cluster::ChainId chain, uint64_t begin, uint64_t end);
  Task<Result<void>> update(cluster::ChainId chain, chunk::Update update);
  Task<Result<void>> write_parts(uint64_t offset, ByteView from);
  Task<Result<void>> sync_chain(cluster::ChainId chain, uint64_t count);

  FileSystem& of_;
  meta::InodeView view_;
  const std::vector<cluster::ChainId> chains_;
  const std::optional<meta::SessionId> session_;  // open for writing
  const meta::Caller caller_;                     // for whom it was opened
  int64_t capability_ns_;                         // when it was issued
  uint64_t renewals_ = 0;                         // of the capability; the last one counts
  int64_t refreshed_ns_;                          // when the attributes were last confirmed
  int64_t cut_ns_ = INT64_MIN;                    // when it was last told of a truncation
  bool closed_ = false;
  uint64_t end_ = 0;           // end of the writes since the last report
  bool length_dirty_ = false;  // bytes were written or stored since the last report
  bool time_dirty_ = false;    // only `length_dirty_`: the report says meta::Namespace::kSameTime
  int64_t written_ns_ = 0;     // time of the last write, wall clock
  uint64_t reported_writes_ = 0;
  meta::InodeId dir_ = 0;         // in which it was created through this File, or before a restart
  std::string name_;              // as which it was created
  size_t length_flushes_ = 0;     // reports in flight, which may fail
  RecoveryTable::Record record_;  // of the session
  const std::shared_ptr<InodeState> state_;
  ErrorSeq::Cursor error_cursor_;
  // Set while the lock is held.
  struct Lock {
    meta::SessionId owner;
    meta::Caller caller;
    int64_t asked_ns = 0;  // when the last successful renewal started
    bool lost = false;     // another owner may have had it since
  };
  std::optional<Lock> lock_;
  WriteBehind behind_;
};

}  // namespace ff::client
