// logged_rows.cc: the difference of two states of a chunk, in rows.
#include "storage/chunk/logged_rows.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

namespace ff::chunk {
namespace {

// The data of one unit in the log.
struct UnitData {
  std::optional<LoggedUnit> committed;
  std::optional<LoggedUnit> pending;  // as `committed` when there is no pending version
  bool operator==(const UnitData&) const = default;
  bool any() const { return committed || pending; }
};

using LoggedUnits = std::vector<LoggedUnit>;

// Those of the pending version; without one, those of the committed version.
const LoggedUnits& newest_units(const ChunkVersions& versions) {
  return versions.pending ? versions.pending->version.logged : versions.committed.logged;
}

// Units at the front and at the back of lists that all lists have in common.
struct CommonUnits {
  size_t front = 0;
  size_t back = 0;
};

// An update of a chunk with hundreds of units in the log changes a few of them.
CommonUnits common_units(const LoggedUnits& first, std::initializer_list<const LoggedUnits*> rest) {
  CommonUnits common{.front = first.size(), .back = first.size()};
  size_t shortest = first.size();
  for (const LoggedUnits* const other : rest) {
    if (other == &first) continue;
    shortest = std::min(shortest, other->size());
    common.front = std::min(common.front, shortest);
    common.back = std::min(common.back, shortest);
    const auto differ = std::mismatch(first.begin(), first.begin() + common.front, other->begin());
    common.front = differ.first - first.begin();
    const auto rdiffer =
        std::mismatch(first.rbegin(), first.rbegin() + common.back, other->rbegin());
    common.back = rdiffer.first - first.rbegin();
  }
  common.back = std::min(common.back, shortest - common.front);
  return common;
}

// Walks over the units of a chunk in ascending order, except those in common.
class Cursor {
 public:
  Cursor(const ChunkVersions& versions, const CommonUnits& skipped)
      : committed_(without(versions.committed.logged, skipped)),
        pending_(without(newest_units(versions), skipped)) {}

  // The next unit that is in the log; kChecksumUnitsMax at the end.
  uint64_t unit() const {
    uint64_t next = kChecksumUnitsMax;
    if (!committed_.empty()) next = committed_.front().unit;
    if (!pending_.empty()) next = std::min<uint64_t>(next, pending_.front().unit);
    return next;
  }
  // The data of `unit`, which is at most unit(); moves on behind it.
  UnitData take(uint64_t unit) {
    return {.committed = take(committed_, unit), .pending = take(pending_, unit)};
  }

 private:
  using Units = std::span<const LoggedUnit>;

  static Units without(const LoggedUnits& all, const CommonUnits& skipped) {
    return Units(all).subspan(skipped.front, all.size() - skipped.front - skipped.back);
  }
  static std::optional<LoggedUnit> take(Units& from, uint64_t unit) {
    if (from.empty() || from.front().unit != unit) return std::nullopt;
    const LoggedUnit taken = from.front();
    from = from.subspan(1);
    return taken;
  }

  Units committed_;
  Units pending_;
};

LoggedRecord row_record(const UnitData& unit, const ChunkVersions& versions) {
  LoggedRecord record{.committed = unit.committed, .pending = {}};
  if (unit.pending == unit.committed) return record;
  record.pending = LoggedRecord::Pending{.version = versions.pending->version.state.version,
                                         .data = unit.pending};
  return record;
}

// What a row means for a chunk with these versions.
UnitData meaning(const LoggedRecord& record, const ChunkVersions& versions) {
  UnitData unit{.committed = record.committed, .pending = record.committed};
  if (!record.pending) return unit;
  const uint64_t version = record.pending->version;
  if (version <= versions.committed.state.version) unit.committed = record.pending->data;
  const bool its = versions.pending && version == versions.pending->version.state.version;
  unit.pending = its ? record.pending->data : unit.committed;
  return unit;
}

// Whether the row that `record` stands for may stay when its unit becomes `is`. A row without
// meaning must not: version numbers may be used again after a pending version was dropped, or the
// chunk was erased.
bool may_stay(const LoggedRecord& record, const UnitData& is, const ChunkVersions& versions) {
  const uint64_t committed = versions.committed.state.version;
  const bool dropped =
      record.pending && record.pending->version > committed &&
      !(versions.pending && record.pending->version == versions.pending->version.state.version);
  return is.any() && !dropped && meaning(record, versions) == is;
}

std::string key_of_unit(TargetId target, const ChunkId& id, uint64_t unit) {
  return key_of(RowKind::logged, {target, id.inode, id.index, unit});
}

bool none(const ChunkVersions& versions) {
  return versions.committed.logged.empty() &&
         (!versions.pending || versions.pending->version.logged.empty());
}

Result<void> add(const std::optional<LoggedUnit>& data, ChunkVersion& version) {
  if (!data) return {};
  const bool fits = version.block && data->unit < version.units();
  if (!fits) return fail(Errc::corrupt, "a unit in the log is not one of its chunk");
  version.logged.push_back(*data);
  return {};
}

}  // namespace

RowChange erase_logged_rows(TargetId target, const ChunkId& first,
                            const std::optional<ChunkId>& end) {
  return {.key = key_of(RowKind::logged, {target, first.inode, first.index}),
          .body = std::nullopt,
          .end = end ? key_of(RowKind::logged, {target, end->inode, end->index})
                     : key_of_unit(target, {UINT64_MAX, UINT64_MAX}, UINT64_MAX)};
}

void append_logged_rows(RowChanges& changes, TargetId target, const ChunkId& id,
                        const ChunkVersions& before, const ChunkVersions& after) {
  if (none(after)) {
    if (!none(before)) changes.push_back(erase_logged_rows(target, id, next(id)));
    return;
  }
  // The row of a unit that is the same in all versions names no pending version, and stays.
  const CommonUnits common =
      common_units(before.committed.logged,
                   {&newest_units(before), &after.committed.logged, &newest_units(after)});
  Cursor old(before, common);
  Cursor fresh(after, common);
  for (;;) {
    const uint64_t unit = std::min(old.unit(), fresh.unit());
    if (unit == kChecksumUnitsMax) return;
    const UnitData was = old.take(unit);
    const UnitData is = fresh.take(unit);
    if (was.any() && may_stay(row_record(was, before), is, after)) continue;
    RowChange row{.key = key_of_unit(target, id, unit), .body = std::nullopt};
    if (is.any()) row.body = encode(row_record(is, after));
    changes.push_back(std::move(row));
  }
}

Result<void> load_logged(const LoggedRecord& unit, ChunkVersions& versions) {
  const UnitData data = meaning(unit, versions);
  FF_TRY(add(data.committed, versions.committed));
  if (!versions.pending) return {};
  return add(data.pending, versions.pending->version);
}

}  // namespace ff::chunk
