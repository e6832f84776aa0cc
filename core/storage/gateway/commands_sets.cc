// Commands on sets. Members lie in the order of their hashes, which is the order of all replies.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/scan_options.h"
#include "storage/gateway/tree_value.h"

namespace ff::gateway {

namespace {

using SetPointer = std::unique_ptr<TreeValue>;
using Members = std::vector<std::string>;

Error set_error(const char* text) { return Error{Errc::usage, text, {}}; }

Task<Result<SetPointer>> open_set(CommandCall& call, size_t key) {
  return TreeValue::open(call.view, call.word(key), ValueType::set);
}

SetPointer make_set(CommandCall& call, size_t key) {
  return TreeValue::make(call.view, call.word(key), ValueType::set, call.gateway.rng().next());
}

Task<Result<bool>> has_member(TreeValue& set, std::string member) {
  PageTree tree = set.tree();
  FF_CO_TRY(const Page::Item* const found, co_await tree.find(member_key(member)));
  co_return found != nullptr;
}

Task<Result<bool>> add_member(TreeValue& set, std::string member) {
  PageTree tree = set.tree();
  Page::Item item;
  item.key = member_key(member);
  co_return co_await tree.put(std::move(item));
}

Task<Result<bool>> remove_member(TreeValue& set, std::string member) {
  PageTree tree = set.tree();
  co_return co_await tree.erase(member_key(member));
}

Task<Result<Members>> read_members(TreeValue& set) {
  Members members;
  PageTree tree = set.tree();
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_first());
  while (cursor.valid()) {
    members.emplace_back(member_of_key(cursor.item().key));
    FF_CO_TRY(co_await cursor.next());
  }
  co_return members;
}

Task<Result<std::string>> member_at(TreeValue& set, uint64_t position) {
  PageTree tree = set.tree();
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_position(position));
  if (!cursor.valid()) co_return damaged_value();
  co_return std::string(member_of_key(cursor.item().key));
}

void reply_members(RespWriter& reply, const Members& members) {
  reply.set(members.size());
  for (const std::string& member : members) reply.bulk(member);
}

enum class Algebra : uint8_t { intersection, union_of, difference };

// Sets of the keys at words [first, end); null: a missing one.
Task<Result<std::vector<SetPointer>>> open_sets(CommandCall& call, size_t first, size_t end) {
  std::vector<SetPointer> sets;
  for (size_t i = first; i < end; i++) {
    FF_CO_TRY(auto set, co_await open_set(call, i));
    sets.push_back(std::move(set));
  }
  co_return sets;
}

Task<Result<Members>> unite(std::vector<SetPointer>& sets) {
  std::set<std::string> all;
  for (const SetPointer& set : sets) {
    if (set == nullptr) continue;
    FF_CO_TRY(const Members members, co_await read_members(*set));
    all.insert(members.begin(), members.end());
  }
  co_return Members(all.begin(), all.end());
}

// The members of the first set that all others have, or that none of them has; `most` of them.
Task<Result<Members>> filter(std::vector<SetPointer>& sets, bool others_have, uint64_t most) {
  Members kept;
  if (sets.front() == nullptr) co_return kept;
  FF_CO_TRY(Members members, co_await read_members(*sets.front()));
  for (std::string& member : members) {
    if (kept.size() == most) break;
    bool fits = true;
    for (size_t i = 1; i < sets.size() && fits; i++) {
      bool has = false;
      if (sets[i] != nullptr) {
        FF_CO_TRY(has, co_await has_member(*sets[i], member));
      }
      fits = has == others_have;
    }
    if (fits) kept.push_back(std::move(member));
  }
  co_return kept;
}

Task<Result<Members>> intersect(std::vector<SetPointer>& sets, uint64_t most) {
  // The smallest one has fewest to look for.
  const auto size = [](const SetPointer& set) { return set == nullptr ? 0 : set->count(); };
  std::ranges::sort(sets, {}, size);
  co_return co_await filter(sets, true, most);
}

Task<Result<Members>> combine(CommandCall& call, size_t first, Algebra algebra) {
  FF_CO_TRY(auto sets, co_await open_sets(call, first, call.size()));
  if (algebra == Algebra::union_of) co_return co_await unite(sets);
  if (algebra == Algebra::difference) co_return co_await filter(sets, false, UINT64_MAX);
  co_return co_await intersect(sets, UINT64_MAX);
}

Task<Result<void>> reply_combined(CommandCall& call, Algebra algebra) {
  FF_CO_TRY(const Members members, co_await combine(call, 1, algebra));
  reply_members(call.reply, members);
  co_return Result<void>();
}

Task<Result<void>> store_combined(CommandCall& call, Algebra algebra) {
  FF_CO_TRY(check_one_slot(keys_of(call.row, call.words)));
  FF_CO_TRY(const Members members, co_await combine(call, 2, algebra));
  const SetPointer set = make_set(call, 1);
  for (const std::string& member : members) FF_CO_TRY(co_await add_member(*set, member));
  if (members.empty()) {
    call.view.remove(call.word(1));
  } else {
    set->save();
    call.view.announce(call.word(1));
  }
  call.reply.integer(static_cast<int64_t>(members.size()));
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> run_sadd(CommandCall& call) {
  FF_CO_TRY(SetPointer set, co_await open_set(call, 1));
  if (set == nullptr) set = make_set(call, 1);
  int64_t added = 0;
  for (size_t i = 2; i < call.size(); i++) {
    FF_CO_TRY(const bool is_new, co_await add_member(*set, call.word(i)));
    if (is_new) added++;
  }
  if (added > 0) set->save();
  call.reply.integer(added);
  co_return Result<void>();
}

Task<Result<void>> run_srem(CommandCall& call) {
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  int64_t removed = 0;
  for (size_t i = 2; i < call.size() && set != nullptr; i++) {
    FF_CO_TRY(const bool was_there, co_await remove_member(*set, call.word(i)));
    if (was_there) removed++;
  }
  if (removed > 0) set->save();
  call.reply.integer(removed);
  co_return Result<void>();
}

Task<Result<void>> run_smembers(CommandCall& call) {
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  Members members;
  if (set != nullptr) {
    FF_CO_TRY(members, co_await read_members(*set));
  }
  reply_members(call.reply, members);
  co_return Result<void>();
}

Task<Result<void>> run_sismember(CommandCall& call) {
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  bool has = false;
  if (set != nullptr) {
    FF_CO_TRY(has, co_await has_member(*set, call.word(2)));
  }
  call.reply.integer(has ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_smismember(CommandCall& call) {
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  call.reply.array(call.size() - 2);
  for (size_t i = 2; i < call.size(); i++) {
    bool has = false;
    if (set != nullptr) {
      FF_CO_TRY(has, co_await has_member(*set, call.word(i)));
    }
    call.reply.integer(has ? 1 : 0);
  }
  co_return Result<void>();
}

Task<Result<void>> run_scard(CommandCall& call) {
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  call.reply.integer(set == nullptr ? 0 : static_cast<int64_t>(set->count()));
  co_return Result<void>();
}

Task<Result<void>> run_spop(CommandCall& call) {
  if (call.size() > 3) co_return syntax_error();
  int64_t most = 1;
  const bool has_count = call.size() == 3;
  if (has_count) {
    const auto count = parse_integer(call.word(2));
    if (!count || *count < 0) {
      co_return set_error("ERR value is out of range, must be positive");
    }
    most = *count;
  }
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  Members popped;
  while (set != nullptr && set->count() > 0 && static_cast<int64_t>(popped.size()) < most) {
    const uint64_t position = call.gateway.rng().next() % set->count();
    FF_CO_TRY(std::string member, co_await member_at(*set, position));
    FF_CO_TRY(co_await remove_member(*set, member));
    popped.push_back(std::move(member));
  }
  if (!popped.empty()) set->save();
  if (has_count) {
    reply_members(call.reply, popped);
  } else if (popped.empty()) {
    call.reply.null();
  } else {
    call.reply.bulk(popped.front());
  }
  co_return Result<void>();
}

namespace {

// As many as asked for: each once, or, of a negative number, each drawn anew.
Task<Result<Members>> draw_members(TreeValue& set, int64_t count, Rng& rng) {
  Members drawn;
  const bool anew = count < 0;
  const auto wanted = static_cast<uint64_t>(std::abs(count));
  if (!anew && wanted >= set.count()) co_return co_await read_members(set);
  std::set<uint64_t> positions;
  while (drawn.size() < wanted) {
    const uint64_t position = rng.next() % set.count();
    if (!anew && !positions.insert(position).second) continue;
    FF_CO_TRY(std::string member, co_await member_at(set, position));
    drawn.push_back(std::move(member));
  }
  co_return drawn;
}

}  // namespace

Task<Result<void>> run_srandmember(CommandCall& call) {
  constexpr int64_t kDrawnMax = int64_t{1} << 20;
  if (call.size() > 3) co_return syntax_error();
  std::optional<int64_t> count;
  if (call.size() == 3) {
    count = parse_integer(call.word(2));
    if (!count) co_return not_an_integer();
    if (*count < -kDrawnMax) {
      co_return fail(Errc::usage, "ERR value is out of range, at most {} members are drawn",
                     kDrawnMax);
    }
  }
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  Members drawn;
  if (set != nullptr) {
    FF_CO_TRY(drawn, co_await draw_members(*set, count.value_or(1), call.gateway.rng()));
  }
  if (count) {
    call.reply.array(drawn.size());
    for (const std::string& member : drawn) call.reply.bulk(member);
  } else if (drawn.empty()) {
    call.reply.null();
  } else {
    call.reply.bulk(drawn.front());
  }
  co_return Result<void>();
}

Task<Result<void>> run_smove(CommandCall& call) {
  FF_CO_TRY(const SetPointer source, co_await open_set(call, 1));
  if (source == nullptr) {
    call.reply.integer(0);
    co_return Result<void>();
  }
  FF_CO_TRY(SetPointer target, co_await open_set(call, 2));
  FF_CO_TRY(const bool was_there, co_await has_member(*source, call.word(3)));
  call.reply.integer(was_there ? 1 : 0);
  if (!was_there || call.word(1) == call.word(2)) co_return Result<void>();
  FF_CO_TRY(check_one_slot(keys_of(call.row, call.words)));
  if (target == nullptr) target = make_set(call, 2);
  FF_CO_TRY(co_await remove_member(*source, call.word(3)));
  FF_CO_TRY(co_await add_member(*target, call.word(3)));
  source->save();
  target->save();
  co_return Result<void>();
}

Task<Result<void>> run_sinter(CommandCall& call) {
  return reply_combined(call, Algebra::intersection);
}
Task<Result<void>> run_sunion(CommandCall& call) { return reply_combined(call, Algebra::union_of); }
Task<Result<void>> run_sdiff(CommandCall& call) {
  return reply_combined(call, Algebra::difference);
}
Task<Result<void>> run_sintercard(CommandCall& call) {
  const auto keys = parse_integer(call.word(1));
  if (!keys || *keys < 1) co_return set_error("ERR numkeys should be greater than 0");
  if (static_cast<uint64_t>(*keys) > call.size() - 2) {
    co_return set_error("ERR Number of keys can't be greater than number of args");
  }
  const size_t end = 2 + static_cast<size_t>(*keys);
  int64_t limit = 0;  // none
  for (size_t i = end; i < call.size(); i += 2) {
    if (!call.is_option(i, "LIMIT") || i + 1 == call.size()) co_return syntax_error();
    const auto number = parse_integer(call.word(i + 1));
    if (!number || *number < 0) co_return set_error("ERR LIMIT can't be negative");
    limit = *number;
  }
  FF_CO_TRY(auto sets, co_await open_sets(call, 2, end));
  const uint64_t most = limit == 0 ? UINT64_MAX : static_cast<uint64_t>(limit);
  FF_CO_TRY(const Members members, co_await intersect(sets, most));
  call.reply.integer(static_cast<int64_t>(members.size()));
  co_return Result<void>();
}

Task<Result<void>> run_sinterstore(CommandCall& call) {
  return store_combined(call, Algebra::intersection);
}
Task<Result<void>> run_sunionstore(CommandCall& call) {
  return store_combined(call, Algebra::union_of);
}
Task<Result<void>> run_sdiffstore(CommandCall& call) {
  return store_combined(call, Algebra::difference);
}

// A cursor is the hash of the next member: those with one hash are in one page.
Task<Result<void>> run_sscan(CommandCall& call) {
  FF_CO_TRY(const ScanOptions options, parse_scan_options(call, 2, false));
  FF_CO_TRY(const SetPointer set, co_await open_set(call, 1));
  Members found;
  uint64_t next = 0;
  if (set != nullptr) {
    PageTree tree = set->tree();
    PageTree::Cursor cursor(tree);
    FF_CO_TRY(co_await cursor.to_lower(key_of_member_hash(options.cursor)));
    uint64_t last = 0;
    for (size_t seen = 0; cursor.valid(); seen++) {
      const uint64_t hash = hash_of_member_key(cursor.item().key);
      if (seen >= options.count && hash != last) {
        next = hash;
        break;
      }
      last = hash;
      const std::string member(member_of_key(cursor.item().key));
      if (!options.pattern || matches_pattern(*options.pattern, member)) found.push_back(member);
      FF_CO_TRY(co_await cursor.next());
    }
  }
  call.reply.array(2);
  call.reply.bulk(std::to_string(next));
  call.reply.array(found.size());
  for (const std::string& member : found) call.reply.bulk(member);
  co_return Result<void>();
}

}  // namespace ff::gateway
