// partition.cc: opening a partition, reads, scans.
#include "storage/kvstore/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/task_group.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::kvstore {

namespace {

constexpr size_t kMaxNotes = 1000;
constexpr size_t kLeftoverEntries = 20'000;  // looked at in one call
constexpr size_t kScanEntries = 20'000;      // likewise; parts may be many
constexpr size_t kPrefetched = 16;
constexpr size_t kLoadedInARow = 50'000;

}  // namespace

StoreMetrics::StoreMetrics(Metrics& metrics)
    : reads(metrics.counter("ff_kvstore_reads_total", "Keys read")),
      read_bytes(metrics.counter("ff_kvstore_read_bytes_total", "Bytes of values read")),
      changes(metrics.counter("ff_kvstore_changes_total", "Changes acknowledged")),
      commits(metrics.counter("ff_kvstore_commits_total", "Writes of one or more changes")),
      commit_bytes(metrics.counter("ff_kvstore_commit_bytes_total", "Bytes of these writes")),
      commit_errors(metrics.counter("ff_kvstore_commit_errors_total", "Writes that failed")),
      fenced(metrics.counter("ff_kvstore_fenced_total",
                             "Partitions that another process has taken over")),
      claims(metrics.counter("ff_kvstore_claims_total", "Partitions claimed")),
      given(metrics.counter("ff_kvstore_given_total",
                            "Partitions given to another process that has fewer")),
      evicted(metrics.counter("ff_kvstore_evicted_total", "Keys evicted by the size limit")),
      expired(metrics.counter("ff_kvstore_expired_total", "Keys removed after their expiry")),
      compacted(metrics.counter("ff_kvstore_compacted_total", "Segments compacted")),
      compacted_bytes(metrics.counter("ff_kvstore_compacted_bytes_total",
                                      "Bytes of records copied by compaction")),
      damaged(metrics.counter("ff_kvstore_damaged_total", "Damaged records and segments found")),
      commit_seconds(metrics.histogram("ff_kvstore_commit_seconds", "Time of a write of changes")),
      partitions(metrics.gauge("ff_kvstore_partitions", "Partitions owned by this process")),
      keys(metrics.gauge("ff_kvstore_keys", "Keys in owned partitions")),
      live_bytes(metrics.gauge("ff_kvstore_live_bytes", "Bytes of records that are in use")),
      file_bytes(metrics.gauge("ff_kvstore_file_bytes", "Bytes of segments")),
      index_bytes(metrics.gauge("ff_kvstore_index_bytes", "Memory of the index")) {}

void StoreContext::note_damage(std::string sentence) {
  metrics.damaged.add();
  log_warning("damaged", {{"what", sentence}});
  if (damage.size() < kMaxNotes) damage.push_back(std::move(sentence));
}

Partition::Partition(StoreContext& store, uint32_t number, std::shared_ptr<ClaimFolder> claims)
    : store_(store),
      number_(number),
      claims_(std::move(claims)),
      work_(store.loop),
      ended_(store.loop),
      committing_(store.loop, 1),
      maintaining_(store.loop, 1) {}

Task<Result<std::shared_ptr<Partition>>> Partition::open(StoreContext& store, uint32_t number,
                                                         std::shared_ptr<ClaimFolder> claims) {
  auto partition = std::make_shared<Partition>(store, number, std::move(claims));
  FF_CO_TRY(co_await partition->load());
  co_return partition;
}

uint32_t Partition::add_segment(std::shared_ptr<Segment> segment) {
  const auto free = std::find(segments_.begin(), segments_.end(), nullptr);
  const auto slot = static_cast<uint32_t>(free - segments_.begin());
  FF_CHECK(slot < TableEntry::kMaxSegments);
  if (free == segments_.end()) {
    segments_.push_back(std::move(segment));
  } else {
    *free = std::move(segment);
  }
  return slot;
}

void Partition::count_live(const TableEntry& entry) {
  segments_[entry.segment]->live_bytes += padded(entry.length);
  if (entry.removed != 0) return;
  if (!is_part(entry.role())) ++keys_;
  if (entry.role() != RecordRole::plain) fixed_bytes_ += padded(entry.length);
  live_bytes_ += padded(entry.length);
}

void Partition::uncount_live(const TableEntry& entry) {
  segments_[entry.segment]->live_bytes -= padded(entry.length);
  if (entry.removed != 0) return;
  if (!is_part(entry.role())) --keys_;
  if (entry.role() != RecordRole::plain) fixed_bytes_ -= padded(entry.length);
  live_bytes_ -= padded(entry.length);
}

// The segments that the newest base lists and those that its owner has written since; then a base
// of this epoch, before anything is served.
Task<Result<void>> Partition::load() {
  FF_CO_TRY(const Base base, claims_->newest_base());
  FF_CO_TRY(const auto names, claims_->segments());
  next_version_ = base.next_version;
  uint64_t first_number = base.first_number;
  std::map<SegmentName, uint64_t> limits;
  for (const Base::Valid& valid : base.segments) limits[valid.name] = valid.end;
  std::vector<SegmentName> ignored;
  for (const SegmentName& name : names) {
    first_number = std::max(first_number, name.number + 1);
    if (name.epoch == base.epoch && name.number >= base.first_number) limits[name] = UINT64_MAX;
    if (!limits.contains(name)) ignored.push_back(name);
  }
  std::vector<SegmentName> valid;
  for (const SegmentName& name : names) {
    if (limits.contains(name)) valid.push_back(name);
  }
  // Newest first: the header of a segment says how many bytes of the one before are valid.
  std::reverse(valid.begin(), valid.end());
  for (const SegmentName& name : valid) {
    FF_CO_TRY(co_await load_segment(name, limits[name]));
    const SegmentHead& newer = next_header_;
    for (auto& [older, limit] : limits) {
      if (older.epoch != name.epoch || older.number != newer.previous) continue;
      limit = std::min(limit, newer.previous_end);
    }
  }
  drop_needless_removals();
  Base own{.epoch = claims_->epoch(), .next_version = next_version_, .first_number = first_number};
  for (const auto& segment : segments_) own.segments.push_back({segment->name, segment->end});
  FF_CO_TRY(claims_->write_base(own));
  FF_CO_TRY(co_await claims_->check());
  next_header_ = {.epoch = own.epoch, .number = first_number};
  auto cleaned = claims_->remove_older();
  for (const SegmentName& name : ignored) {
    if (name.epoch >= own.epoch) continue;
    if (!cleaned) break;
    cleaned = store_.disk.remove(io::join(claims_->dir(), segment_file(name)));
  }
  if (!cleaned) log_warning("old files stay", {{"error", cleaned.error().message}});
  co_return {};
}

Task<Result<void>> Partition::load_segment(SegmentName name, uint64_t limit) {
  auto segment = std::make_shared<Segment>();
  segment->name = name;
  segment->path = io::join(claims_->dir(), segment_file(name));
  const io::OpenOptions options{.access = io::AccessMode::read_write};
  auto opened = store_.disk.open(segment->path, options);
  next_header_ = {};
  if (!opened && opened.error().code == Errc::not_found) co_return {};  // compacted meanwhile
  FF_CO_TRY(segment->file, std::move(opened));
  const auto header = co_await read_header(store_.queue, *segment);
  if (!header && header.error().code != Errc::corrupt) co_return header.error();
  // Without a header its creation has failed, or it is damaged.
  if (header) next_header_ = *header;
  FF_CO_TRY(auto index,
            co_await read_index(store_.queue, store_.loop, *segment, store_.secret, limit));
  if (!header && index.records.empty()) co_return {};
  for (std::string& sentence : index.damage) store_.note_damage(std::move(sentence));
  segment->end = index.end;
  segment->sealed = index.sealed;
  segment->damaged = !index.damage.empty();
  if (limit != UINT64_MAX && index.end < limit) {
    segment->damaged = true;
    store_.note_damage(
        fmt::format("{}: records from {} to {} cannot be read", segment->path, index.end, limit));
  }
  // What the former owner has not synced must be durable before others see it as acknowledged.
  if (store_.options.durable && !index.sealed) {
    FF_CO_TRY(co_await sync_segment(store_.queue, *segment));
  }
  const uint32_t slot = add_segment(segment);
  for (size_t i = 0; i < index.records.size(); ++i) {
    // Entries lie anywhere in the table.
    if (i + kPrefetched < index.records.size()) {
      table_.prefetch(index.records[i + kPrefetched].hash);
    }
    load_record(slot, index.records[i]);
    if (i % kLoadedInARow != kLoadedInARow - 1) continue;
    FF_CO_TRY(co_await YieldWait(store_.loop));  // the heartbeat must go on
  }
  co_return {};
}

// The record with the highest version counts; of equal ones, of which one is a copy, the one in the
// newer segment: a former owner may still remove the older one.
void Partition::load_record(uint32_t segment, const IndexedRecord& record) {
  next_version_ = std::max(next_version_, record.version + 1);
  TableEntry& entry = table_.insert(record.hash);
  if (entry.version != 0) {
    const Segment& has = *segments_[entry.segment];
    const auto newer = std::tuple(record.version, segments_[segment]->name.number, record.offset);
    if (newer < std::tuple(entry.version, has.name.number, entry.offset())) {
      if (record.kind == RecordKind::put) entry.add_dead();
      return;
    }
    if (entry.removed == 0) entry.add_dead();
    uncount_live(entry);
  }
  entry.set_record(segment, record);
  count_live(entry);
}

void Partition::drop_needless_removals() {
  std::vector<KeyHash> needless;
  for (const TableEntry* entry = table_.from(0); entry != nullptr; entry = table_.next(entry)) {
    if (entry->removed != 0 && entry->dead == 0) needless.push_back(entry->hash);
  }
  for (const KeyHash hash : needless) {
    uncount_live(*table_.find(hash));
    table_.erase(hash);
  }
}

Error Partition::stale(std::string_view why) const {
  return Error{.code = Errc::stale,
               .message = fmt::format("partition {}: {}", number_, why),
               .hint = "Ask the process that owns the partition now."};
}

Result<void> Partition::serving() const {
  if (lost_) return stale("another process has claimed it");
  if (store_.loop.now_ns() >= lease_until_ns_) return stale("the lease of this process has ended");
  return {};
}

void Partition::lose() {
  if (lost_) return;
  lost_ = true;
  store_.metrics.fenced.add();
  log_warning("partition lost", {{"partition", number_}});
  work_.set();
}

bool Partition::expired(const TableEntry& entry) const {
  return entry.expires_ms != 0 && entry.expires_ms <= store_.loop.clock().wall_ns() / kMillisecond;
}

const TableEntry* Partition::present(KeyHash hash) const {
  const TableEntry* const entry = table_.find(hash);
  return entry == nullptr || entry->removed != 0 ? nullptr : entry;
}

const TableEntry* Partition::visible(KeyHash hash) const {
  const TableEntry* const entry = present(hash);
  return entry == nullptr || expired(*entry) ? nullptr : entry;
}

KeyHash Partition::hash_of(const Change& change) const {
  return is_part(change.role) ? hash_part(store_.secret, change.key)
                              : hash_key(store_.secret, change.key);
}

std::optional<KeyInfo> Partition::info_of(const TableEntry* entry) {
  if (entry == nullptr) return std::nullopt;
  return KeyInfo{.version = entry->version,
                 .expires_ms = entry->expires_ms,
                 .value_bytes = entry->length - record_bytes(entry->key_bytes, 0),
                 .role = entry->role()};
}

Result<std::optional<KeyInfo>> Partition::find(std::string_view key) {
  FF_TRY(serving());
  return info_of(visible(hash_key(store_.secret, key)));
}

Result<std::optional<KeyInfo>> Partition::find_part(std::string_view name) {
  FF_TRY(serving());
  return info_of(visible(hash_part(store_.secret, name)));
}

// The bytes of the record, or its header and key; empty if the key does not exist any more. While
// the read is under way, compaction may move the record and remove the file.
Task<Result<std::string>> Partition::read_record(TableEntry entry, bool whole, bool expired_too) {
  for (;;) {
    const std::shared_ptr<Segment> segment = segments_[entry.segment];
    const std::shared_ptr<io::File> file = segment->file;
    std::string bytes(whole ? entry.length : record_bytes(entry.key_bytes, 0), '\0');
    const auto got = co_await store_.queue.read(*file, writable(bytes), entry.offset());
    if (got && *got == bytes.size()) {
      const ParsedRecord parsed = parse_record(as_bytes(bytes));
      const bool valid = parsed.state == ParsedRecord::State::whole
                             ? parsed.record.version == entry.version
                             : !whole && parse_key(as_bytes(bytes)).has_value();
      if (valid) co_return bytes;
    }
    const TableEntry* const now = expired_too ? present(entry.hash) : visible(entry.hash);
    if (now == nullptr) co_return std::string();
    if (now->is_at(entry.segment, entry.offset()) && segments_[now->segment] == segment) {
      if (!got) co_return got.error();
      co_return fail(Errc::corrupt, "{}: the record at {} is damaged", segment->path,
                     entry.offset());
    }
    entry = *now;
  }
}

Task<Result<std::optional<Entry>>> Partition::get(std::string key) {
  const KeyHash hash = hash_key(store_.secret, key);
  return read_entry(hash, std::move(key), false);
}

Task<Result<std::optional<Entry>>> Partition::get_part(std::string name) {
  const KeyHash hash = hash_part(store_.secret, name);
  return read_entry(hash, std::move(name), false);
}

Result<std::optional<KeyInfo>> Partition::find_owner(std::string_view key) {
  FF_TRY(serving());
  const TableEntry* const entry = present(hash_key(store_.secret, key));
  const bool is_owner = entry != nullptr && entry->role() == RecordRole::owner;
  return info_of(is_owner ? entry : nullptr);
}

Task<Result<std::optional<Entry>>> Partition::get_owner(std::string key) {
  FF_CO_TRY(const auto info, find_owner(key));
  std::optional<Entry> none;
  if (!info) co_return none;
  const KeyHash hash = hash_key(store_.secret, key);
  co_return co_await read_entry(hash, std::move(key), true);
}

Task<Result<std::optional<Entry>>> Partition::read_entry(KeyHash hash, std::string key,
                                                         bool expired_too) {
  FF_CO_TRY(serving());
  std::optional<Entry> none;
  store_.metrics.reads.add();
  const TableEntry* const entry = expired_too ? present(hash) : visible(hash);
  if (entry == nullptr) co_return none;
  if (TableEntry* const used = table_.find(hash)) table_.use(*used);
  auto read = co_await read_record(*entry, true, expired_too);
  if (!read && read.error().code == Errc::corrupt) {
    store_.note_damage(fmt::format("{}; key: {}", read.error().message, printable(key)));
  }
  FF_CO_TRY(std::string bytes, std::move(read));
  if (bytes.empty()) co_return none;
  const ParsedRecord parsed = parse_record(as_bytes(bytes));
  if (parsed.record.key != key) {
    co_return fail(Errc::corrupt, "partition {}: key {} has the hash of another key", number_,
                   printable(key));
  }
  Entry found{.expires_ms = parsed.record.expires_ms,
              .version = parsed.record.version,
              .role = parsed.record.role};
  bytes.resize(parsed.length);
  bytes.erase(0, record_bytes(key.size(), 0));
  found.value = std::move(bytes);
  store_.metrics.read_bytes.add(found.value.size());
  co_return std::optional(std::move(found));
}

// Leaves `key` empty if the key does not exist any more, or if it is damaged.
Task<Result<void>> Partition::read_key(TableEntry entry, std::optional<std::string>& key) {
  const auto bytes = co_await read_record(entry, false, false);
  if (!bytes && bytes.error().code != Errc::corrupt) co_return bytes.error();
  if (!bytes) {
    store_.note_damage(bytes.error().message);
  } else if (!bytes->empty()) {
    key = parse_key(as_bytes(*bytes));
  }
  co_return {};
}

Task<Result<ScanPage>> Partition::scan(uint64_t cursor, size_t limit) {
  FF_CO_TRY(serving());
  std::vector<TableEntry> entries;
  ScanPage page;
  std::optional<uint64_t> last;
  size_t seen = 0;
  for (const TableEntry* at = table_.from(cursor); at != nullptr; at = table_.next(at)) {
    const bool full = entries.size() >= std::max<size_t>(limit, 1) || seen >= kScanEntries;
    // Keys that differ in the low half of the hash only are on one page.
    if (full && at->hash.high != last) {
      page.next = at->hash.high;
      break;
    }
    last = at->hash.high;
    ++seen;
    if (at->removed == 0 && !is_part(at->role()) && !expired(*at)) entries.push_back(*at);
  }
  std::vector<std::optional<std::string>> keys(entries.size());
  TaskGroup reads(store_.loop);
  for (size_t i = 0; i < entries.size(); ++i) {
    reads.add(read_key(entries[i], keys[i]));
  }
  FF_CO_TRY(co_await reads.join());
  for (auto& key : keys) {
    if (key) page.keys.push_back(std::move(*key));
  }
  co_return page;
}

// Damaged ones stay: nobody knows which parts they had.
Task<Result<void>> Partition::read_leftover(KeyHash hash, std::vector<Leftover>& found) {
  const TableEntry* const entry = present(hash);
  if (entry == nullptr) co_return {};  // removed while others were read
  const auto bytes = co_await read_record(*entry, true, true);
  if (!bytes && bytes.error().code != Errc::corrupt) co_return bytes.error();
  if (!bytes || bytes->empty()) co_return {};
  const ParsedRecord parsed = parse_record(as_bytes(*bytes));
  Leftover one;
  one.key = parsed.record.key;
  one.entry.value = parsed.record.value;
  one.entry.expires_ms = parsed.record.expires_ms;
  one.entry.version = parsed.record.version;
  one.entry.role = parsed.record.role;
  found.push_back(std::move(one));
  co_return {};
}

Task<Result<std::vector<Leftover>>> Partition::leftovers(size_t limit) {
  FF_CO_TRY(serving());
  std::vector<KeyHash> hashes;
  const TableEntry* at = table_.from(leftover_cursor_);
  for (size_t seen = 0; at != nullptr && seen < kLeftoverEntries; ++seen) {
    const bool over = at->role() == RecordRole::owner && expired(*at);
    const bool is_left = at->removed == 0 && (over || at->role() == RecordRole::leftover);
    if (is_left && hashes.size() >= limit) break;
    if (is_left) hashes.push_back(at->hash);
    at = table_.next(at);
  }
  leftover_cursor_ = at == nullptr ? 0 : at->hash.high;
  std::vector<Leftover> found;
  for (const KeyHash hash : hashes) FF_CO_TRY(co_await read_leftover(hash, found));
  co_return found;
}

Counts Partition::counts() const {
  Counts counts{.keys = keys_, .live_bytes = live_bytes_, .index_bytes = table_.memory_bytes()};
  for (const auto& segment : segments_) {
    if (segment != nullptr) counts.file_bytes += segment->end;
  }
  return counts;
}

}  // namespace ff::kvstore
