// log_file.cc: appends to the file, and rotates it when it is full.
#include "ops/devcluster/log_file.h"

#include <utility>

#include "platform/base/bytes.h"

namespace ff::devcluster {

LogFile::LogFile(io::Disk& disk, std::string path, uint64_t limit)
    : disk_(disk), path_(std::move(path)), limit_(limit) {}

void LogFile::write(std::string_view bytes) {
  if (!append(bytes)) file_.reset();  // reopened next time
}

Result<void> LogFile::append(std::string_view bytes) {
  if (file_ != nullptr && size_ > 0 && size_ + bytes.size() > limit_) {
    file_.reset();
    FF_TRY(disk_.rename(path_, path_ + ".1"));
  }
  if (file_ == nullptr) {
    FF_TRY(file_,
           disk_.open(path_, {.access = io::AccessMode::read_write, .create = true, .mode = 0600}));
    FF_TRY(const auto info, file_->info());
    size_ = info.size;
  }
  FF_TRY(file_->write_at(as_bytes(bytes), size_));
  size_ += bytes.size();
  return {};
}

}  // namespace ff::devcluster
