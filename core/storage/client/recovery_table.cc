// recovery_table.cc: the layout of the memory; adds, frees and finds records.
#include "storage/client/recovery_table.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "platform/base/log.h"
#include "platform/simd/crc32c.h"

namespace ff::client {

namespace {

constexpr uint64_t kRecoveryMagic = 0x6666'7265'636f'7631;
// A table without changes of delegations stays one of version 1, which older programs continue.
constexpr uint64_t kVersionWithChanges = 2;
constexpr uint64_t kVersionWithoutChanges = 1;
constexpr uint64_t kDataPerRecord = 4 * kKiB;
constexpr uint64_t kRecordsMin = 16 * 1024;
constexpr uint64_t kRecordsMax = 256 * 1024;

}  // namespace

struct RecoveryTable::Entry {
  std::atomic<Kind> kind;  // the commit word
  uint32_t checksum;
  uint64_t order;
  std::array<uint64_t, kFixedWords> fixed;
  uint32_t text_size;
  std::array<char, kTextMax> text;
  std::array<std::atomic<uint64_t>, kLiveWords> live;
};

struct RecoveryTable::Header {
  std::atomic<uint64_t> magic;  // written last
  uint64_t version;
  uint64_t records;
  uint64_t last_order;
  std::atomic<uint64_t> touched;  // records at and behind this index were never used
  std::atomic<uint64_t> root;     // written after its proof
  uint32_t root_proof_size;
  std::array<char, kTextMax> root_proof;
  alignas(64) meta::MetaClientState metadata;
};

uint64_t RecoveryTable::bytes_for(uint64_t data) {
  static_assert(sizeof(Entry) == 376 && std::is_standard_layout_v<Entry>);
  const uint64_t records = std::clamp(data / kDataPerRecord, kRecordsMin, kRecordsMax);
  return align_up(sizeof(Header), alignof(Header)) + records * sizeof(Entry);
}

Result<std::unique_ptr<RecoveryTable>> RecoveryTable::open(ByteSpan memory) {
  constexpr uint64_t kHeaderBytes = align_up(sizeof(Header), alignof(Header));
  if (memory.size() < kHeaderBytes + sizeof(Entry)) {
    return fail(Errc::usage, "{} bytes are too few for a recovery table", memory.size());
  }
  auto& header = *reinterpret_cast<Header*>(memory.data());
  const uint64_t records = (memory.size() - kHeaderBytes) / sizeof(Entry);
  const bool continues = header.magic.load(std::memory_order_acquire) != 0;
  if (!continues) {
    header.version = kVersionWithoutChanges;
    header.records = records;
    header.magic.store(kRecoveryMagic, std::memory_order_release);
  }
  const bool readable =
      header.version == kVersionWithoutChanges || header.version == kVersionWithChanges;
  if (header.magic.load() != kRecoveryMagic || !readable || header.records != records) {
    Error error = fail(Errc::unsupported,
                       "the process that served this mount before left recovery records of "
                       "version {}; this program reads up to version {}",
                       header.version, kVersionWithChanges);
    error.hint = std::string("Unmount the directory and mount it again.");
    return error;
  }
  std::unique_ptr<RecoveryTable> table(
      new RecoveryTable(header, {reinterpret_cast<Entry*>(memory.data() + kHeaderBytes), records}));
  table->continues_ = continues;
  table->scan();
  return table;
}

RecoveryTable::RecoveryTable(Header& header, std::span<Entry> records)
    : header_(header), records_(records) {}

uint32_t RecoveryTable::checksum_of(const Entry& entry, Kind kind) {
  const auto size = std::min<size_t>(entry.text_size, kTextMax);
  const auto* const from = reinterpret_cast<const std::byte*>(&entry.order);
  const size_t fixed = offsetof(Entry, text) - offsetof(Entry, order) + size;
  return simd::crc32c({from, fixed}, static_cast<uint32_t>(kind));
}

void RecoveryTable::scan() {
  const uint64_t touched = std::min<uint64_t>(header_.touched.load(), records_.size());
  for (uint64_t i = touched; i > 0; i--) {
    Entry& entry = records_[i - 1];
    const auto index = static_cast<uint32_t>(i - 1);
    const Kind kind = entry.kind.load(std::memory_order_acquire);
    if (kind != Kind::none && entry.checksum == checksum_of(entry, kind)) {
      left_.push_back(Record(*this, index));
      used_++;
      continue;
    }
    torn_ += kind == Kind::none ? 0 : 1;
    entry.kind.store(Kind::none);
    free_.push_back(index);
  }
  if (torn_ > 0) log_error("recovery records are damaged and dropped", {{"records", torn_}});
  std::ranges::sort(left_, {}, &Record::order);
}

RecoveryTable::Record RecoveryTable::add(const Content& content) {
  if (content.text.size() > kTextMax) return {};
  uint64_t index = header_.touched.load();
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (index < records_.size()) {
    header_.touched.store(index + 1);
  } else {
    return {};
  }
  if (content.kind == Kind::lease || content.kind == Kind::change) {
    header_.version = kVersionWithChanges;
  }
  Entry& entry = records_[index];
  entry.order = content.order != 0 ? content.order : ++header_.last_order;
  entry.fixed = content.fixed;
  entry.text_size = static_cast<uint32_t>(content.text.size());
  content.text.copy(entry.text.data(), entry.text.size());
  for (size_t i = 0; i < kLiveWords; i++) {
    entry.live[i].store(content.live[i], std::memory_order_relaxed);
  }
  entry.checksum = checksum_of(entry, content.kind);
  entry.kind.store(content.kind, std::memory_order_release);
  used_++;
  return {*this, static_cast<uint32_t>(index)};
}

void RecoveryTable::free_record(uint32_t index) {
  records_[index].kind.store(Kind::none, std::memory_order_release);
  free_.push_back(index);
  used_--;
}

std::vector<RecoveryTable::Record> RecoveryTable::take(Kind kind) {
  std::vector<Record> taken, rest;
  for (Record& record : left_) {
    const bool wanted = records_[record.index_].kind.load() == kind;
    (wanted ? taken : rest).push_back(std::move(record));
  }
  left_ = std::move(rest);
  return taken;
}

uint64_t RecoveryTable::Record::fixed(size_t word) const {
  return table_->records_[index_].fixed[word];
}

uint64_t RecoveryTable::Record::live(size_t word) const {
  return table_->records_[index_].live[word].load(std::memory_order_acquire);
}

void RecoveryTable::Record::set_live(size_t word, uint64_t value) {
  table_->records_[index_].live[word].store(value, std::memory_order_release);
}

std::string_view RecoveryTable::Record::text() const {
  const Entry& entry = table_->records_[index_];
  return {entry.text.data(), entry.text_size};
}

uint64_t RecoveryTable::Record::order() const { return table_->records_[index_].order; }

meta::MetaClientState& RecoveryTable::metadata() { return header_.metadata; }

uint64_t RecoveryTable::root() const { return header_.root.load(std::memory_order_acquire); }

std::string_view RecoveryTable::root_proof() const {
  return {header_.root_proof.data(), std::min<size_t>(header_.root_proof_size, kTextMax)};
}

void RecoveryTable::set_root(uint64_t inode, std::string_view proof) {
  header_.root_proof_size = static_cast<uint32_t>(std::min(proof.size(), kTextMax));
  proof.copy(header_.root_proof.data(), kTextMax);
  header_.root.store(inode, std::memory_order_release);
}

}  // namespace ff::client
