// ended_logs.cc: measures folders, and removes them.
#include "ops/scheduler/ended_logs.h"

#include <set>
#include <vector>

#include "ops/scheduler/attempt_record.h"
#include "ops/scheduler/untrusted_dir.h"
#include "platform/io/files.h"

namespace ff::scheduler {
namespace {

constexpr uint64_t kFileUnit = 4 * kKiB;       // small files take a block, too
constexpr uint32_t kNobodyKnown = UINT32_MAX;  // the owner of a folder without attempt.json

}  // namespace

std::optional<KeptRecords<std::string>::Record> EndedLogs::measure(const std::string& name) const {
  const std::string dir = io::join(dir_, name);
  const auto info = disk_.info(dir);
  const auto entries = disk_.list(dir);
  if (!info) return std::nullopt;
  Records::Record record{
      .uid = kNobodyKnown, .ended_ns = info->mtime_ns, .key = name, .bytes = kFileUnit};
  if (!entries) return record;  // a file
  for (const io::DirEntry& entry : *entries) {
    const auto file = disk_.info(io::join(dir, entry.name));
    if (file) record.bytes += (file->size + kFileUnit - 1) / kFileUnit * kFileUnit;
  }
  const auto text = io::read_file(disk_, io::join(dir, kAttemptFile), kAttemptRecordBytesMax);
  if (!text) return record;
  const auto attempt = parse_attempt(*text);
  if (attempt) record.uid = attempt->uid;
  return record;
}

void EndedLogs::forget(const std::string& name) {
  const auto found = known_.find(name);
  if (found == known_.end()) return;
  kept_.remove(found->second);
  known_.erase(found);
}

void EndedLogs::add(const std::string& name) {
  forget(name);
  const auto record = measure(name);
  if (!record) return;
  kept_.add(*record);
  known_.emplace(name, *record);
}

void EndedLogs::scan() {
  const auto entries = disk_.list(dir_);
  if (!entries) return;
  std::set<std::string> present;
  for (const io::DirEntry& entry : *entries) {
    present.insert(entry.name);
    if (!known_.contains(entry.name)) add(entry.name);
  }
  std::vector<std::string> gone;
  for (const auto& [name, record] : known_) {
    if (!present.contains(name)) gone.push_back(name);
  }
  for (const std::string& name : gone) forget(name);
}

void EndedLogs::remove(const Records::Record& record) {
  (void)remove_untrusted_dir(io::join(dir_, record.key));
  forget(record.key);
}

void EndedLogs::prune() {
  const int64_t oldest_ns = clock_.wall_ns() - limits_.keep_ns;
  for (;;) {
    std::optional<Records::Record> next = kept_.oldest();
    if (!next) return;
    if (next->ended_ns >= oldest_ns) {
      const auto largest = kept_.oldest_of_largest(Records::Measure::bytes);
      if (kept_.count() > limits_.attempts) {
        next = kept_.oldest_of_largest(Records::Measure::records);
      } else if (kept_.bytes_of(largest->uid) > limits_.user_bytes ||
                 kept_.bytes() > limits_.bytes()) {
        next = largest;
      } else {
        return;
      }
    }
    // A copy: forget() changes what it is a part of.
    const Records::Record record = *next;
    remove(record);
  }
}

}  // namespace ff::scheduler
