// follower.cc: one round of a refresh, and reads of single records.
#include "storage/kvstore/follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "platform/base/task_group.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::kvstore {

namespace {

constexpr int kMaxRounds = 100;  // of one refresh, and of one read
constexpr uint64_t kSweepEntries = 10'000;
constexpr uint64_t kDirectRead = 64 * kKiB;  // values from here on are read to where they belong

// Those that are in the folder and count; true: of the owner that has written the base, which may
// still add to the last one.
std::map<SegmentName, bool> valid_segments(const Base& base,
                                           const std::vector<SegmentName>& listed) {
  std::set<SegmentName> named;
  for (const Base::Valid& valid : base.segments) named.insert(valid.name);
  std::map<SegmentName, bool> valid;
  for (const SegmentName& name : listed) {
    const bool own = name.epoch == base.epoch && name.number >= base.first_number;
    if (own || named.contains(name)) valid[name] = own;
  }
  return valid;
}

}  // namespace

Follower::Follower(FollowerContext& store, uint32_t number, std::string dir)
    : store_(store),
      number_(number),
      claims_(store.disk, store.queue, std::move(dir)),
      view_(std::make_shared<View>()),
      refreshing_(store.loop, 1) {}

Task<Result<void>> Follower::refresh(int64_t since_ns) {
  if (refreshed_ns_ > since_ns) co_return {};  // one that is under way need not end
  FF_CO_TRY(const auto permit, co_await refreshing_.acquire(1));
  if (refreshed_ns_ > since_ns) co_return {};
  auto view = view_;
  for (int round = 0; round < kMaxRounds; ++round) {
    const int64_t began_ns = store_.loop.now_ns();
    FF_CO_TRY(const Outcome outcome, co_await follow(*view));
    if (outcome == Outcome::rebuild) view = std::make_shared<View>();
    if (outcome != Outcome::complete) continue;
    view_ = std::move(view);
    refreshed_ns_ = began_ns;
    co_return {};
  }
  co_return fail(Errc::busy, "{}: its files change too often to be read", claims_.dir());
}

// The base is mostly the one that was read last.
Result<Follower::FolderState> Follower::read_folder() {
  FolderState state;
  FF_TRY(state.listing, claims_.list());
  const uint64_t epoch = state.listing.base;
  if (epoch == 0) return state;
  Result<bool> current = base_.base.epoch == epoch;
  if (*current) current = claims_.is_current(base_);
  if (current && !*current) {
    auto opened = claims_.open_base(epoch);
    if (opened) base_ = std::move(*opened);
    current = opened ? Result<bool>(true) : Result<bool>(opened.error());
  }
  state.replaced = !current && current.error().code == Errc::not_found;
  if (!current && !state.replaced) return current.error();
  state.base = base_.base;
  return state;
}

Task<Result<Follower::FolderState>> Follower::look() {
  if (store_.threads.empty()) co_return read_folder();
  WorkerThread& thread = *store_.threads[number_ % store_.threads.size()];
  const std::function<Result<FolderState>()> reading = [this] { return read_folder(); };
  co_return co_await thread.run<FolderState>(store_.loop, reading);
}

Task<Result<Follower::Outcome>> Follower::follow(View& view) {
  auto looked = co_await look();
  const bool is_missing = !looked && looked.error().code == Errc::not_found;
  if (is_missing && view.segments.empty()) co_return Outcome::complete;  // as of a new store
  FF_CO_TRY(const FolderState state, std::move(looked));
  if (state.replaced) co_return Outcome::again;
  if (!state.base) co_return Outcome::complete;
  const Base& base = *state.base;
  const std::map<SegmentName, bool> valid = valid_segments(base, state.listing.segments);
  Outcome outcome = Outcome::complete;
  for (const auto& [name, own] : valid) {
    if (view.slots.contains(name)) continue;
    const bool may_be_new = own && name == valid.rbegin()->first;
    FF_CO_TRY(const Outcome opened, co_await open_segment(view, name, may_be_new));
    outcome = std::max(outcome, opened);
  }
  set_limits(view, base);
  if (has_what_does_not_count(view, valid)) co_return Outcome::rebuild;
  // In the order in which records were written.
  const auto slots = view.slots;
  for (const auto& [name, slot] : slots) {
    if (!valid.contains(name)) continue;
    FF_CO_TRY(const Outcome caught_up, co_await catch_up(view, slot));
    outcome = std::max(outcome, caught_up);
  }
  if (outcome == Outcome::complete) drop_segments(view, valid);
  co_return outcome;
}

// `may_be_new`: its owner may be writing its header.
Task<Result<Follower::Outcome>> Follower::open_segment(View& view, SegmentName name,
                                                       bool may_be_new) {
  if (view.segments.size() == TableEntry::kMaxSegments) co_return Outcome::rebuild;
  auto followed = std::make_shared<Followed>();
  Segment& segment = followed->segment;
  segment.name = name;
  segment.path = io::join(claims_.dir(), segment_file(name));
  const io::OpenOptions options;
  auto opened = store_.disk.open(segment.path, options);
  if (!opened && opened.error().code == Errc::not_found) co_return Outcome::again;
  FF_CO_TRY(segment.file, std::move(opened));
  const auto header = co_await read_header(store_.queue, segment);
  if (!header && is_gone(*followed)) co_return Outcome::again;
  if (!header && header.error().code != Errc::corrupt) co_return header.error();
  if (!header && may_be_new) co_return Outcome::complete;
  if (header) followed->header = *header;
  view.slots[name] = static_cast<uint32_t>(view.segments.size());
  view.segments.push_back(std::move(followed));
  co_return Outcome::complete;
}

// What the base says, or the header of the next segment.
void Follower::set_limits(View& view, const Base& base) {
  const auto limit_to = [&view](SegmentName name, uint64_t end) {
    const auto slot = view.slots.find(name);
    if (slot == view.slots.end()) return;
    uint64_t& limit = view.segments[slot->second]->limit;
    limit = std::min(limit, end);
  };
  for (const Base::Valid& valid : base.segments) limit_to(valid.name, valid.end);
  for (const auto& [name, slot] : view.slots) {
    const auto& header = view.segments[slot]->header;
    if (!header || header->previous == 0) continue;
    limit_to({.epoch = name.epoch, .number = header->previous}, header->previous_end);
  }
}

// Or may have: of a segment that is gone, nobody says any more which of its last records counted.
bool Follower::has_what_does_not_count(const View& view, const std::map<SegmentName, bool>& valid) {
  return std::any_of(view.slots.begin(), view.slots.end(), [&](const auto& named) {
    const Followed& followed = *view.segments[named.second];
    const bool unknown = !followed.finished && followed.limit == UINT64_MAX;
    return followed.segment.end > followed.limit || (unknown && !valid.contains(named.first));
  });
}

bool Follower::is_gone(const Followed& followed) const {
  const auto info = store_.disk.info(followed.segment.path);
  return !info && info.error().code == Errc::not_found;
}

Task<Result<Follower::Outcome>> Follower::catch_up(View& view, uint32_t slot) {
  const std::shared_ptr<Followed> followed = view.segments[slot];
  Segment& segment = followed->segment;
  const uint64_t limit = followed->limit;
  if (followed->finished) co_return Outcome::complete;
  const bool first = segment.end == 0;
  auto reading =
      first ? read_index(store_.queue, store_.loop, segment, store_.secret, limit)
            : read_growth(store_.queue, store_.loop, segment, store_.secret, segment.end, limit);
  auto read = co_await std::move(reading);
  const bool short_of_limit = read && limit != UINT64_MAX && read->end < limit;
  if ((!read || short_of_limit) && is_gone(*followed)) co_return Outcome::again;
  FF_CO_TRY(const SegmentIndex index, std::move(read));
  followed->finished = limit != UINT64_MAX || index.sealed;
  segment.end = followed->finished ? std::max(index.end, segment.end) : index.intact_end;
  for (const IndexedRecord& record : index.records) apply_record(view, slot, record);
  co_return Outcome::complete;
}

// Records of one key come in the order of their versions, a copy after what it is a copy of. So no
// removal needs to be kept.
void Follower::apply_record(View& view, uint32_t slot, const IndexedRecord& record) {
  if (is_part(record.role)) return;
  const auto uncount = [&view](const TableEntry& entry) {
    const auto& from = view.segments[entry.segment];
    --(from != nullptr ? from->entries : view.gone_entries);
  };
  TableEntry* const found = view.table.find(record.hash);
  if (found != nullptr && found->version > record.version) return;
  if (found != nullptr) uncount(*found);
  if (record.kind == RecordKind::remove) {
    if (found != nullptr) view.table.erase(record.hash);
    return;
  }
  TableEntry& entry = found != nullptr ? *found : view.table.insert(record.hash);
  entry.set_record(slot, record);
  ++view.segments[slot]->entries;
}

// What the index still has of them was removed, and the removal, too.
void Follower::drop_segments(View& view, const std::map<SegmentName, bool>& valid) {
  for (auto at = view.slots.begin(); at != view.slots.end();) {
    if (valid.contains(at->first)) {
      ++at;
      continue;
    }
    view.gone_entries += view.segments[at->second]->entries;
    view.segments[at->second] = nullptr;
    at = view.slots.erase(at);
  }
  if (view.gone_entries > kSweepEntries && view.gone_entries > view.table.size() / 4) sweep(view);
}

void Follower::sweep(View& view) {
  std::vector<KeyHash> gone;
  const KeyTable& table = view.table;
  for (const TableEntry* entry = table.from(0); entry != nullptr; entry = table.next(entry)) {
    if (view.segments[entry->segment] == nullptr) gone.push_back(entry->hash);
  }
  for (const KeyHash hash : gone) view.table.erase(hash);
  view.gone_entries = 0;
}

const TableEntry* Follower::visible(const View& view, KeyHash hash) const {
  const TableEntry* const entry = view.table.find(hash);
  if (entry == nullptr || view.segments[entry->segment] == nullptr) return nullptr;
  const bool over =
      entry->expires_ms != 0 && entry->expires_ms <= store_.loop.clock().wall_ns() / kMillisecond;
  return over ? nullptr : entry;
}

std::optional<KeyInfo> Follower::find(KeyHash hash) const {
  const TableEntry* const entry = visible(*view_, hash);
  if (entry == nullptr) return std::nullopt;
  return KeyInfo{.version = entry->version,
                 .expires_ms = entry->expires_ms,
                 .value_bytes = entry->length - record_bytes(entry->key_bytes, 0),
                 .role = entry->role()};
}

Counts Follower::counts() const {
  Counts counts{.keys = view_->table.size() - view_->gone_entries,
                .index_bytes = view_->table.memory_bytes()};
  for (const auto& followed : view_->segments) {
    if (followed != nullptr) counts.file_bytes += followed->segment.end;
  }
  return counts;
}

Task<Result<std::optional<KeyInfo>>> Follower::read(KeyHash hash, std::string_view key,
                                                    ByteSpan into) {
  std::optional<KeyInfo> none;
  for (int round = 0;; ++round) {
    const std::shared_ptr<View> view = view_;
    const TableEntry* const entry = visible(*view, hash);
    if (entry == nullptr) co_return none;
    const auto info = find(hash);
    if (info->value_bytes > into.size()) co_return info;
    const TableEntry at = *entry;
    const SegmentName segment = view->segments[at.segment]->segment.name;
    const ByteSpan place = into.first(info->value_bytes);
    const auto got = co_await read_value(view->segments[at.segment], at, key, place);
    if (got) co_return info;
    FF_CO_TRY(co_await refresh(INT64_MAX));
    const TableEntry* const now = visible(*view_, hash);
    const bool same = now != nullptr && now->offset() == at.offset() &&
                      view_->segments[now->segment]->segment.name == segment;
    if (same || round == kMaxRounds) co_return got.error();
  }
}

Result<void> Follower::check_record(const Followed& from, const TableEntry& entry,
                                    std::string_view key, ByteView head, ByteView value,
                                    ByteSpan copy) const {
  const auto record = join_record(head, value, copy);
  if (!record || record->version != entry.version) {
    return fail(Errc::corrupt, "{}: the record at {} is damaged; key: {}", from.segment.path,
                entry.offset(), printable(key));
  }
  if (record->key == key) return {};
  return fail(Errc::corrupt, "partition {}: key {} has the hash of another key", number_,
              printable(key));
}

// The whole record to memory of its own, and the value from there.
Task<Result<void>> Follower::read_value(std::shared_ptr<Followed> from, TableEntry entry,
                                        std::string_view key, ByteSpan into) {
  const bool large = into.size() >= kDirectRead;
  const bool buffered = store_.buffers != nullptr && entry.length <= TransferBuffers::kBytes;
  if (large && !buffered) co_return co_await read_apart(std::move(from), entry, key, into);
  std::optional<TransferBuffers::Taken> taken;
  std::string own;
  if (large) {
    FF_CO_TRY(auto buffer, co_await store_.buffers->take());
    taken.emplace(std::move(buffer));
  } else {
    own.resize(entry.length);
  }
  const ByteSpan bytes = taken ? taken->memory().first(entry.length) : writable(own);
  FF_CO_TRY(co_await read_part(*from->segment.file, bytes, entry.offset()));
  const uint64_t head = record_bytes(entry.key_bytes, 0);
  co_return check_record(*from, entry, key, bytes.first(head), bytes.subspan(head), into);
}

// Header and key, and beside that the value to where it belongs.
Task<Result<void>> Follower::read_apart(std::shared_ptr<Followed> from, TableEntry entry,
                                        std::string_view key, ByteSpan into) {
  std::string head(record_bytes(entry.key_bytes, 0), '\0');
  io::File& file = *from->segment.file;
  TaskGroup reads(store_.loop);
  reads.add(read_part(file, into, entry.offset() + head.size()));
  reads.add(read_part(file, writable(head), entry.offset()));
  FF_CO_TRY(co_await reads.join());
  co_return check_record(*from, entry, key, as_bytes(head), into, ByteSpan());
}

Task<Result<void>> Follower::read_part(io::File& file, ByteSpan into, uint64_t offset) {
  FF_CO_TRY(const size_t got, co_await store_.queue.read(file, into, offset));
  if (got == into.size()) co_return {};
  co_return fail(Errc::corrupt, "{}: it ends within the record at {}", file.path(), offset);
}

}  // namespace ff::kvstore
