// acked_position.cc: one record of fixed size, written in place.
#include "storage/chunk/acked_position.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "platform/base/log.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::chunk {

namespace {

constexpr uint32_t kAckedMagic = 0x32616666;         // "ffa2"
constexpr uint32_t kAckedMagicFormat1 = 0x31616666;  // "ffa1"
constexpr size_t kAckedBytes = 28;
constexpr size_t kAckedCrcAt = kAckedBytes - sizeof(uint32_t);

}  // namespace

AckedPosition::AckedPosition(io::Disk& disk, const std::string& dir, const DiskIdentity& identity,
                             const std::string& boot_id)
    : boot_(simd::crc32c(as_bytes(std::string_view(boot_id)))) {
  const std::string path = io::join(
      dir, fmt::format("ff-disk-{}-{}-{}", identity.cluster, identity.node, identity.disk));
  auto file = disk.open(
      path,
      {.access = io::AccessMode::read_write, .create = true, .no_follow = true, .mode = 0600});
  if (!file) {
    log_warning("cannot tell whether the disk loses acknowledged changes while the machine runs",
                {{"disk", identity.disk}, {"cause", file.error().message}});
    return;
  }
  file_ = std::move(*file);
  std::array<std::byte, kAckedBytes> record;
  const auto got = file_->read_at(record, 0);
  const std::byte* const at = record.data();
  if (!got || *got != kAckedBytes) return;
  const bool format1 = load_le<uint32_t>(at) == kAckedMagicFormat1;
  if ((!format1 && load_le<uint32_t>(at) != kAckedMagic) || load_le<uint32_t>(at + 8) != boot_ ||
      load_le<uint32_t>(at + kAckedCrcAt) != simd::crc32c(ByteView(record).first(kAckedCrcAt))) {
    return;
  }
  found_ = static_cast<State>(load_le<uint32_t>(at + 4));
  if (format1) {
    found_format1_ = {.salt = load_le<uint64_t>(at + 16), .pages = load_le<uint32_t>(at + 12)};
  } else {
    found_at_ = load_le<uint64_t>(at + 16);
  }
}

bool AckedPosition::is_behind(uint64_t now) const {
  return found_ == State::open && now < found_at_;
}

bool AckedPosition::is_behind(const db::LogPosition& now) const {
  if (found_ != State::open || found_format1_.pages == 0) return false;
  if (now.salt == found_format1_.salt) return now.pages < found_format1_.pages;
  // The earlier process may have ended after it began the log anew and before it recorded that.
  return now.generation() != found_format1_.generation() + 1;
}

void AckedPosition::begin(uint64_t now) {
  const std::lock_guard lock(mutex_);
  state_ = State::open;
  at_ = now;
  store();
}

void AckedPosition::advance(uint64_t now) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::open) return;
  at_ = now;
  store();
}

void AckedPosition::end(State state) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::open) return;
  state_ = state;
  store();
}

void AckedPosition::store() {
  if (file_ == nullptr) return;
  std::string record;
  append_le(record, kAckedMagic);
  append_le(record, static_cast<uint32_t>(state_));
  append_le(record, boot_);
  append_le(record, uint32_t{0});
  append_le(record, at_);
  append_le(record, simd::crc32c(as_bytes(std::string_view(record))));
  (void)file_->write_at(as_bytes(std::string_view(record)), 0);
}

}  // namespace ff::chunk
