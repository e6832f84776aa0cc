// backup.cc: the writer and the reader of backup files, and the restore.
#include "platform/kv/backup.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "platform/io/files.h"
#include "platform/kv/record_checksum.h"
#include "platform/simd/crc32c.h"

namespace ff::kv {

namespace {

constexpr uint32_t kMagic = 0x766b6666;  // "ffkv"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kEnd = 0xffffffff;
// Limit of a key or value: far more than a transaction can write.
constexpr uint32_t kSizeMax = 4 * kMiB;
// Entries per read from the store.
constexpr size_t kPage = 256;
constexpr size_t kBufferBytes = kMiB;
// Limits of one transaction of a restore, well below those of Txn.
constexpr size_t kBatchEntries = 64;
constexpr size_t kBatchBytes = kBytesMax / 2;

template <class Number>
Number number_at(std::string_view bytes, size_t at) {
  return load_le<Number>(as_bytes(bytes).data() + at);
}

// An entry, or the end, with its CRC.
void append_crc(std::string& to, size_t from) {
  append_le(to, simd::crc32c(as_bytes(std::string_view(to).substr(from))));
}

// All after `begin`.
Range all_from(std::string begin) {
  return {.begin = std::move(begin), .end = std::string(1, '\xff'), .limit = kPage};
}

// Writes the file under a temporary name until it is complete.
class Writer {
 public:
  Writer(io::Disk& disk, std::string path)
      : disk_(disk), path_(std::move(path)), unfinished_(path_ + ".tmp") {}
  ~Writer() {
    if (file_ != nullptr) (void)disk_.remove(unfinished_);
  }

  // Starts, or starts over.
  Result<void> begin() {
    FF_TRY(file_,
           disk_.open(
               unfinished_,
               {.access = io::AccessMode::write, .create = true, .truncate = true, .mode = 0600}));
    buffer_.clear();
    report_ = {};
    append_le(buffer_, kMagic);
    append_le(buffer_, kVersion);
    return {};
  }
  Result<void> add(const Entry& entry) {
    if (is_damaged(entry.key)) {
      report_.left_out.push_back(key_text(stored_key(entry.key)));
      return {};
    }
    const size_t from = buffer_.size();
    append_le(buffer_, static_cast<uint32_t>(entry.key.size()));
    append_le(buffer_, static_cast<uint32_t>(entry.value.size()));
    buffer_ += entry.key;
    buffer_ += entry.value;
    append_crc(buffer_, from);
    report_.entries++;
    return buffer_.size() < kBufferBytes ? Result<void>() : write_out();
  }
  Result<BackupReport> finish() {
    const size_t from = buffer_.size();
    append_le(buffer_, kEnd);
    append_le(buffer_, uint32_t{0});
    append_le(buffer_, report_.entries);
    append_crc(buffer_, from);
    FF_TRY(write_out());
    FF_TRY(file_->sync());
    FF_TRY(disk_.link(unfinished_, path_));
    FF_TRY(disk_.remove(unfinished_));
    file_.reset();
    FF_TRY(disk_.sync_dir(io::parent(path_)));
    return report_;
  }

 private:
  Result<void> write_out() {
    FF_TRY(file_->write_at(as_bytes(buffer_), report_.bytes));
    report_.bytes += buffer_.size();
    buffer_.clear();
    return {};
  }

  io::Disk& disk_;
  const std::string path_;
  const std::string unfinished_;
  std::unique_ptr<io::File> file_;
  std::string buffer_;
  BackupReport report_;
};

class Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(io::Disk& disk, const std::string& path) {
    FF_TRY(auto file, disk.open(path, {}));
    std::unique_ptr<Reader> reader(new Reader(std::move(file)));
    FF_TRY(const std::string head, reader->take(8));
    if (number_at<uint32_t>(head, 0) != kMagic) return reader->damaged("no backup of a store");
    const auto version = number_at<uint32_t>(head, 4);
    if (version == 0) return reader->damaged("format 0");
    if (version > kVersion) {
      return Error{Errc::newer_format,
                   fmt::format("{}: format {} is newer than {}, the newest this ff knows", path,
                               version, kVersion),
                   "Use the ff that made it, or a newer one."};
    }
    return reader;
  }

  // The next entry; nothing at the end.
  Result<std::optional<Entry>> next() {
    FF_TRY(std::string bytes, take(8));
    const auto key_size = number_at<uint32_t>(bytes, 0);
    const auto value_size = number_at<uint32_t>(bytes, 4);
    const bool end = key_size == kEnd;
    if (!end && (key_size > kSizeMax || value_size > kSizeMax))
      return damaged("an entry with an invalid size");
    FF_TRY(const std::string rest, take((end ? 8 : size_t{key_size} + value_size) + 4));
    bytes += rest;
    const auto crc = number_at<uint32_t>(bytes, bytes.size() - 4);
    bytes.resize(bytes.size() - 4);
    if (simd::crc32c(as_bytes(bytes)) != crc) return damaged("CRC32C mismatch");
    if (end) {
      if (number_at<uint64_t>(bytes, 8) != report_.entries) return damaged("entries are missing");
      return std::optional<Entry>();
    }
    Entry entry{bytes.substr(8, key_size), bytes.substr(8 + key_size)};
    if (report_.entries > 0 && entry.key <= last_) return damaged("keys out of order");
    last_ = entry.key;
    report_.entries++;
    return std::optional(std::move(entry));
  }
  const BackupReport& report() const { return report_; }

 private:
  explicit Reader(std::unique_ptr<io::File> file) : file_(std::move(file)) {}

  Error damaged(std::string_view what) const {
    return Error{Errc::corrupt,
                 fmt::format("{}: {} at byte {}", file_->path(), what, report_.bytes),
                 "Take another backup."};
  }
  Result<std::string> take(size_t size) {
    while (buffer_.size() - at_ < size) {
      buffer_.erase(0, at_);
      at_ = 0;
      const size_t held = buffer_.size();
      buffer_.resize(held + std::max(size, kBufferBytes));
      const ByteSpan into = std::as_writable_bytes(std::span(buffer_)).subspan(held);
      FF_TRY(const size_t got, file_->read_at(into, offset_));
      offset_ += got;
      buffer_.resize(held + got);
      if (got == 0) return damaged("the file ends in the middle");
    }
    std::string taken = buffer_.substr(at_, size);
    at_ += size;
    report_.bytes += size;
    return taken;
  }

  std::unique_ptr<io::File> file_;
  uint64_t offset_ = 0;  // file offset of the end of the buffer
  std::string buffer_;
  size_t at_ = 0;
  std::string last_;
  BackupReport report_;
};

Result<BackupReport> check_file(io::Disk& disk, const std::string& path) {
  FF_TRY(const auto reader, Reader::open(disk, path));
  for (;;) {
    FF_TRY(const auto entry, reader->next());
    if (!entry) return reader->report();
  }
}

Task<Result<void>> write_batch(Engine& engine, std::vector<Entry> batch, int64_t deadline_ns) {
  auto running = engine.run(
      [&batch](Txn& txn) -> Task<Result<void>> {
        for (const Entry& entry : batch) txn.put(entry.key, entry.value);
        co_return Result<void>();
      },
      deadline_ns);
  co_return co_await std::move(running);
}

// The first entries of the store, and whether it has the key kRestoring.
Task<Result<std::vector<Entry>>> read_first_entries(Engine& engine, bool& restoring,
                                                    int64_t deadline_ns) {
  std::vector<Entry> entries;
  auto viewing = engine.view(
      [&](Txn& txn) -> Task<Result<void>> {
        FF_CO_TRY(const auto found, co_await txn.get(kRestoring));
        restoring = found.has_value();
        Range range = all_from(std::string());
        range.limit = kBatchEntries;
        FF_CO_TRY(entries, co_await txn.range(std::move(range), std::string()));
        co_return Result<void>();
      },
      deadline_ns);
  FF_CO_TRY(co_await std::move(viewing));
  co_return entries;
}

// Puts kRestoring into an empty store; empties a store that has it already. No other process may
// use the store meanwhile.
Task<Result<void>> prepare_store(Engine& engine, std::string path, int64_t deadline_ns) {
  for (;;) {
    bool restoring = false;
    FF_CO_TRY(auto entries, co_await read_first_entries(engine, restoring, deadline_ns));
    if (!restoring && !entries.empty()) {
      Error error =
          fail(Errc::exists, "the store is not empty, {} cannot be restored into it", path);
      error.hint =
          "Restore into a new folder, a new prefix in etcd, or a new database of PostgreSQL.";
      co_return error;
    }
    if (restoring && entries.size() == 1) co_return Result<void>();
    auto running = engine.run(
        [&entries](Txn& txn) -> Task<Result<void>> {
          for (const Entry& entry : entries) txn.erase(entry.key);
          txn.put(kRestoring, "");
          co_return Result<void>();
        },
        deadline_ns);
    FF_CO_TRY(co_await std::move(running));
  }
}

}  // namespace

Task<Result<BackupReport>> write_backup(Engine& engine, io::Disk& disk, std::string path,
                                        int64_t deadline_ns) {
  FF_CO_TRY(const bool exists_already, io::exists(disk, path));
  if (exists_already) co_return fail(Errc::exists, "{}: already exists", path);
  Writer writer(disk, path);
  auto viewing = engine.view(
      [&writer](Txn& txn) -> Task<Result<void>> {
        FF_CO_TRY(writer.begin());
        for (std::string begin;;) {
          Range range = all_from(begin);
          FF_CO_TRY(const auto entries,
                    co_await txn.range(std::move(range), std::string(kIncludeDamaged)));
          for (const Entry& entry : entries) FF_CO_TRY(writer.add(entry));
          if (entries.size() < kPage) co_return Result<void>();
          begin = std::string(stored_key(entries.back().key)) + '\0';
        }
      },
      deadline_ns);
  FF_CO_TRY(co_await std::move(viewing));
  co_return writer.finish();
}

Result<void> read_backup(io::Disk& disk, const std::string& path,
                         const std::function<void(const Entry&)>& visit) {
  FF_TRY(const auto reader, Reader::open(disk, path));
  for (;;) {
    FF_TRY(const auto entry, reader->next());
    if (!entry) return {};
    visit(*entry);
  }
}

Task<Result<BackupReport>> restore_backup(Engine& engine, io::Disk& disk, std::string path,
                                          int64_t deadline_ns, TxnFunction at_end) {
  FF_CO_TRY(const BackupReport checked, check_file(disk, path));
  FF_CO_TRY(co_await prepare_store(engine, path, deadline_ns));
  FF_CO_TRY(const auto reader, Reader::open(disk, path));
  std::vector<Entry> batch;
  size_t bytes = 0;
  for (bool more = true; more;) {
    FF_CO_TRY(auto entry, reader->next());
    more = entry.has_value();
    if (entry) {
      bytes += entry->key.size() + entry->value.size();
      batch.push_back(std::move(*entry));
    }
    if (batch.empty() || (more && batch.size() < kBatchEntries && bytes < kBatchBytes)) continue;
    auto writing = write_batch(engine, std::exchange(batch, {}), deadline_ns);
    FF_CO_TRY(co_await std::move(writing));
    bytes = 0;
  }
  auto running = engine.run(
      [&at_end](Txn& txn) -> Task<Result<void>> {
        txn.erase(kRestoring);
        if (!at_end) co_return Result<void>();
        co_return co_await at_end(txn);
      },
      deadline_ns);
  FF_CO_TRY(co_await std::move(running));
  co_return checked;
}

}  // namespace ff::kv
