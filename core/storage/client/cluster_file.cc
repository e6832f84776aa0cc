// cluster_file.cc: calls from any thread on a file owned by the loop.
#include "storage/client/cluster_file.h"

#include <cerrno>
#include <utility>

#include "storage/client/file_system.h"

namespace ff::client {

Error error_with_path(const std::string& path, Error error) {
  const Error plain = errno_error(error.sys, path);
  if (error.sys != 0 && error.code == Errc::usage) error.code = plain.code;
  const std::string_view cause = std::string_view(plain.message).substr(path.size());
  if (error.sys != 0 && error.message.ends_with(cause)) {
    error.message = plain.message;
    if (error.hint.empty()) error.hint = plain.hint;
    return error;
  }
  return std::move(error).with_context(path + ": ");
}

io::FileKind kind_of(meta::InodeType kind) {
  switch (kind) {
    case meta::InodeType::file: return io::FileKind::regular;
    case meta::InodeType::directory: return io::FileKind::directory;
    case meta::InodeType::symlink: return io::FileKind::symlink;
    default: return io::FileKind::other;
  }
}

io::FileInfo file_info(const meta::Inode& inode) {
  return {.kind = kind_of(inode.kind),
          .mode = inode.mode,
          .uid = inode.uid,
          .gid = inode.gid,
          .size = inode.length,
          .allocated = inode.length,
          .mtime_ns = inode.mtime_ns,
          .device = 0,
          .inode = inode.id};
}

ClusterFile::ClusterFile(LoopExecutor& calls, std::shared_ptr<client::File> file, std::string path,
                         io::AccessMode access, bool direct, meta::Caller caller)
    : io::File(std::move(path)),
      calls_(calls),
      file_(std::move(file)),
      access_(access),
      direct_(direct),
      caller_(std::move(caller)) {}

// Closing a file without unpublished length or lock need not be waited for.
ClusterFile::~ClusterFile() {
  if (length_unpublished_ || locked_) {
    (void)calls_.call<void>([this] { return file_->close(); });
  } else {
    calls_.start([file = file_] { return close_later(file); });
  }
}

Task<void> ClusterFile::close_later(std::shared_ptr<client::File> file) {
  (void)co_await file->close();
}

Result<void> ClusterFile::check_writes() const {
  if (access_ == io::AccessMode::read) return errno_error(EBADF, path());
  return {};
}

Task<Result<size_t>> ClusterFile::read(ByteSpan into, uint64_t offset) {
  if (access_ == io::AccessMode::write) co_return errno_error(EBADF, path());
  auto got = co_await file_->read(offset, into);
  if (!got) co_return error_with_path(path(), std::move(got).error());
  co_return static_cast<size_t>(*got);
}

Task<Result<size_t>> ClusterFile::write(ByteView from, uint64_t offset) {
  FF_CO_TRY(check_writes());
  length_unpublished_ = true;
  auto written = co_await file_->write(offset, from);
  if (!written) co_return error_with_path(path(), std::move(written).error());
  co_return from.size();
}

Task<Result<size_t>> ClusterFile::flush() {
  length_unpublished_ = false;
  auto synced = co_await file_->sync();
  if (!synced) {
    length_unpublished_ = true;
    co_return error_with_path(path(), std::move(synced).error());
  }
  co_return size_t{0};
}

Result<size_t> ClusterFile::read_at(ByteSpan into, uint64_t offset) {
  return calls_.call<size_t>([&] { return read(into, offset); });
}

Result<void> ClusterFile::write_at(ByteView from, uint64_t offset) {
  FF_TRY(calls_.call<size_t>([&] { return write(from, offset); }));
  return {};
}

Result<bool> ClusterFile::read_cached(ByteSpan, uint64_t) { return false; }

Result<void> ClusterFile::sync() {
  FF_TRY(calls_.call<size_t>([&] { return flush(); }));
  return {};
}

Result<void> ClusterFile::truncate(uint64_t size) {
  FF_TRY(check_writes());
  auto cut = calls_.call<void>([&] { return file_->truncate(size); });
  if (!cut) return error_with_path(path(), std::move(cut).error());
  return {};
}

Result<void> ClusterFile::reserve(uint64_t, uint64_t) { return check_writes(); }

Result<void> ClusterFile::punch_hole(uint64_t, uint64_t) {
  FF_TRY(check_writes());
  return fail(Errc::unsupported, "{}: files in a cluster do not support punching holes here",
              path());
}

Result<io::DataRange> ClusterFile::next_data(uint64_t offset) {
  FF_TRY(const auto now, info());
  return io::DataRange{.begin = std::min(offset, now.size), .end = now.size};
}

Result<io::FileInfo> ClusterFile::info() {
  auto view = calls_.call<meta::Inode>([&] { return file_->refresh(); });
  if (!view) return error_with_path(path(), std::move(view).error());
  return file_info(*view);
}

Result<bool> ClusterFile::try_lock() {
  locked_ = true;
  auto held = calls_.call<bool>([&] { return file_->try_lock(caller_); });
  if (!held) return error_with_path(path(), std::move(held).error());
  return held;
}

}  // namespace ff::client
