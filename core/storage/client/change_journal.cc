// change_journal.cc: a change is serialized into as many records as it needs; a successor drops a
// change that is not complete, because it was not answered.
#include "storage/client/change_journal.h"

#include <algorithm>
#include <string>
#include <utility>

#include "platform/base/log.h"

namespace ff::client {

namespace {

using RecordKind = RecoveryTable::Kind;

constexpr size_t kInodesKept = 3;  // fixed words behind the first three

uint64_t session_number(const ChangeJournal::Operation& operation) {
  using Operation = ChangeJournal::Operation;
  switch (operation.what_case()) {
    case Operation::kMake: return operation.make().session().number();
    case Operation::kOpen: return operation.open().session().number();
    case Operation::kUnlink: return operation.unlink().holder().number();
    case Operation::kRename: return operation.rename().holder().number();
    default: return 0;
  }
}

// The parts of one change, in the order in which they were written.
std::optional<ChangeJournal::Change> read_change(
    const std::vector<RecoveryTable::Record>& records) {
  const RecoveryTable::Record& first = records.front();
  if (records.size() != first.fixed(1) >> 32) return std::nullopt;
  ChangeJournal::Change change{.number = first.fixed(0), .origin = first.fixed(2)};
  for (size_t i = 0; i < kInodesKept; i++) {
    if (first.fixed(3 + i) != 0) change.inodes.push_back(first.fixed(3 + i));
  }
  std::string text;
  for (const RecoveryTable::Record& record : records) text += record.text();
  if (!change.operation.ParseFromString(text) || change.inodes.empty()) return std::nullopt;
  return change;
}

}  // namespace

bool ChangeJournal::begin_lease(uint64_t lease) {
  if (table_ == nullptr) return true;
  if (!has_room()) return false;
  // The new record first: a successor takes the later one.
  lease_ = table_->add({.kind = RecordKind::lease, .fixed = {lease}, .live = {applied_}});
  return true;
}

void ChangeJournal::end_lease() {
  // Their requests can still come again.
  std::erase_if(entries_,
                [this](const auto& one) { return one.first > applied_ || one.second.origin == 0; });
  lease_ = RecoveryTable::Record();
}

void ChangeJournal::add(const Change& change) {
  if (table_ == nullptr) return;
  const std::string text = change.operation.SerializeAsString();
  const size_t size = RecoveryTable::kTextMax;
  const uint64_t parts = std::max<uint64_t>(1, (text.size() + size - 1) / size);
  Entry entry{.origin = change.origin};
  for (uint64_t part = 0; part < parts; part++) {
    RecoveryTable::Content content{.kind = RecordKind::change,
                                   .fixed = {change.number, part | parts << 32, change.origin},
                                   .text = std::string_view(text).substr(part * size, size)};
    const size_t count = std::min(change.inodes.size(), kInodesKept);
    std::copy_n(change.inodes.begin(), count, content.fixed.begin() + 3);
    entry.records.push_back(table_->add(content));
  }
  if (change.origin != 0) by_origin_.emplace(change.origin, change.number);
  entries_.emplace(change.number, std::move(entry));
}

void ChangeJournal::applied(uint64_t number) {
  if (table_ == nullptr || number <= applied_) return;
  applied_ = number;
  if (lease_) lease_.set_live(0, number);
  const auto end = entries_.upper_bound(number);
  for (auto at = entries_.begin(); at != end;) {
    at = at->second.origin == 0 ? entries_.erase(at) : std::next(at);
  }
}

void ChangeJournal::end_origin(uint64_t origin) {
  const auto [first, end] = by_origin_.equal_range(origin);
  for (auto at = first; at != end; ++at) {
    const auto entry = entries_.find(at->second);
    if (entry == entries_.end()) continue;
    entry->second.origin = 0;
    if (entry->first <= applied_) entries_.erase(entry);
  }
  by_origin_.erase(first, end);
  if (!restored_.empty()) restored_.erase(origin);
}

void ChangeJournal::end_restored_origins() {
  while (!restored_.empty()) end_origin(restored_.begin()->first);
}

ChangeJournal::Left ChangeJournal::take() {
  Left left;
  if (table_ == nullptr) return left;
  for (RecoveryTable::Record& record : table_->take(RecordKind::lease)) lease_ = std::move(record);
  if (lease_) left.lease = lease_.fixed(0);
  std::map<uint64_t, std::vector<RecoveryTable::Record>> records;
  for (RecoveryTable::Record& record : table_->take(RecordKind::change)) {
    records[record.fixed(0)].push_back(std::move(record));
  }
  const uint64_t last = records.empty() ? 0 : records.rbegin()->first;
  applied_ = left.applied = lease_ ? lease_.live(0) : last;
  for (auto& [number, of_change] : records) {
    auto change = read_change(of_change);
    // The last one may be incomplete: its program got no answer.
    if (!change) {
      if (number != last) log_error("a recorded change is damaged", {{"change", number}});
      continue;
    }
    if (change->origin != 0) {
      const Answered answer{.inode = change->inodes.back(),
                            .session = session_number(change->operation),
                            .now_ns = change->operation.now_ns()};
      restored_.emplace(change->origin, Restored{change->operation.what_case(), answer});
      by_origin_.emplace(change->origin, number);
    }
    if (number <= applied_ && change->origin == 0) continue;
    entries_.emplace(number, Entry{.origin = change->origin, .records = std::move(of_change)});
    if (number > applied_) left.changes.push_back(std::move(*change));
  }
  return left;
}

std::optional<ChangeJournal::Answered> ChangeJournal::answered(uint64_t origin,
                                                               Operation::WhatCase what) const {
  if (origin == 0 || restored_.empty()) return std::nullopt;
  const auto [first, end] = restored_.equal_range(origin);
  for (auto at = first; at != end; ++at) {
    if (at->second.what == what) return at->second.answer;
  }
  return std::nullopt;
}

uint64_t ChangeJournal::session_of(uint64_t origin) const {
  const auto [first, end] = restored_.equal_range(origin);
  for (auto at = first; at != end; ++at) {
    if (origin != 0 && at->second.answer.session != 0) return at->second.answer.session;
  }
  return 0;
}

bool ChangeJournal::awaits(uint64_t session) const {
  return std::ranges::any_of(
      restored_, [session](const auto& one) { return one.second.answer.session == session; });
}

}  // namespace ff::client
