// Commands on lists. The ends of a list and any position in it are found in its tree; what looks
// for an element by its value walks.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/tree_value.h"

namespace ff::gateway {

namespace {

using ListPointer = std::unique_ptr<TreeValue>;
enum class ListEnd : uint8_t { left, right };

Error list_error(const char* text) { return Error{Errc::usage, text, {}}; }

Task<Result<ListPointer>> open_list(CommandCall& call, size_t key) {
  return TreeValue::open(call.view, call.word(key), ValueType::list);
}

ListPointer make_list(CommandCall& call, size_t key) {
  return TreeValue::make(call.view, call.word(key), ValueType::list, call.gateway.rng().next());
}

Task<Result<void>> push_element(TreeValue& list, ListEnd end, std::string element) {
  PageTree tree = list.tree();
  Page::Item item;
  item.value = std::move(element);
  co_return co_await tree.insert_at(end == ListEnd::left ? 0 : list.count(), std::move(item));
}

// Of a list that has one.
Task<Result<std::string>> pop_element(TreeValue& list, ListEnd end) {
  PageTree tree = list.tree();
  const uint64_t at = end == ListEnd::left ? 0 : list.count() - 1;
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_position(at));
  if (!cursor.valid()) co_return damaged_value();
  std::string element = cursor.item().value;
  FF_CO_TRY(co_await tree.erase_at(at));
  co_return element;
}

Task<Result<void>> push(CommandCall& call, ListEnd end, bool makes_list) {
  FF_CO_TRY(ListPointer list, co_await open_list(call, 1));
  if (list == nullptr && !makes_list) {
    call.reply.integer(0);
    co_return Result<void>();
  }
  if (list == nullptr) list = make_list(call, 1);
  for (size_t i = 2; i < call.size(); i++) {
    FF_CO_TRY(co_await push_element(*list, end, call.word(i)));
  }
  list->save();
  call.view.announce(call.word(1));
  call.reply.integer(static_cast<int64_t>(list->count()));
  co_return Result<void>();
}

Result<int64_t> parse_positive(const std::string& text) {
  const auto count = parse_integer(text);
  if (count && *count >= 0) return *count;
  return list_error("ERR value is out of range, must be positive");
}

Task<Result<void>> pop(CommandCall& call, ListEnd end) {
  if (call.size() > 3) co_return wrong_arity(call.row);
  std::optional<int64_t> most;
  if (call.size() == 3) {
    FF_CO_TRY(most, parse_positive(call.word(2)));
  }
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  if (list == nullptr) {
    if (most) {
      call.reply.null_array();
    } else {
      call.reply.null();
    }
    co_return Result<void>();
  }
  const auto count = std::min<uint64_t>(list->count(), static_cast<uint64_t>(most.value_or(1)));
  if (most) call.reply.array(count);
  for (uint64_t i = 0; i < count; i++) {
    FF_CO_TRY(const std::string element, co_await pop_element(*list, end));
    call.reply.bulk(element);
  }
  if (count > 0) list->save();
  co_return Result<void>();
}

// Positions from `first` to `last`, of which negative ones count from the end; empty: none.
struct ListRange {
  uint64_t first = 0, end = 0;
};
ListRange range_of(int64_t first, int64_t last, uint64_t size) {
  const auto count = static_cast<int64_t>(size);
  if (first < 0) first = std::max<int64_t>(first + count, 0);
  if (last < 0) last += count;
  last = std::min(last, count - 1);
  if (first > last || last < 0) return {};
  return {static_cast<uint64_t>(first), static_cast<uint64_t>(last) + 1};
}

struct RangeWords {
  int64_t first = 0, last = 0;
};
Result<RangeWords> parse_range(const CommandCall& call) {
  const auto first = parse_integer(call.word(2)), last = parse_integer(call.word(3));
  if (!first || !last) return not_an_integer();
  return RangeWords{*first, *last};
}

std::optional<uint64_t> position_of(int64_t index, uint64_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || static_cast<uint64_t>(index) >= size) return std::nullopt;
  return static_cast<uint64_t>(index);
}

Result<ListEnd> parse_end(const CommandCall& call, size_t at) {
  if (call.is_option(at, "LEFT")) return ListEnd::left;
  if (call.is_option(at, "RIGHT")) return ListEnd::right;
  return syntax_error();
}

// Moves an element between the lists at words 1 and 2, which may be one. False: there is none.
Task<Result<bool>> move_element(CommandCall& call, ListEnd from, ListEnd to) {
  FF_CO_TRY(const ListPointer source, co_await open_list(call, 1));
  if (source == nullptr) co_return false;
  const bool is_same = call.word(1) == call.word(2);
  ListPointer target;
  if (!is_same) {
    FF_CO_TRY(target, co_await open_list(call, 2));
    FF_CO_TRY(check_one_slot(keys_of(call.row, call.words)));
    if (target == nullptr) target = make_list(call, 2);
  }
  FF_CO_TRY(std::string element, co_await pop_element(*source, from));
  call.reply.bulk(element);
  FF_CO_TRY(co_await push_element(is_same ? *source : *target, to, std::move(element)));
  source->save();
  if (!is_same) target->save();
  call.view.announce(call.word(2));
  co_return true;
}

Task<Result<void>> move_or_null(CommandCall& call, ListEnd from, ListEnd to) {
  FF_CO_TRY(const bool moved, co_await move_element(call, from, to));
  if (!moved) call.reply.null();
  co_return Result<void>();
}

// Seconds with a fraction, as milliseconds.
Result<int64_t> parse_seconds(const CommandCall& call, size_t at) {
  constexpr long double kMsPerSecond = 1000;
  const auto seconds = parse_real(call.word(at));
  if (!seconds) return list_error("ERR timeout is not a float or out of range");
  const long double ms = std::ceil(*seconds * kMsPerSecond);
  if (ms > static_cast<long double>(INT64_MAX)) return list_error("ERR timeout is out of range");
  if (ms < 0) return list_error("ERR timeout is negative");
  if (static_cast<int64_t>(ms) > INT64_MAX - call.view.now_ms()) {
    return list_error("ERR timeout is out of range");
  }
  return static_cast<int64_t>(ms);
}

// The first of the keys that has an element.
Task<Result<void>> pop_or_wait(CommandCall& call, ListEnd end) {
  FF_CO_TRY(const int64_t wait_ms, parse_seconds(call, call.size() - 1));
  for (size_t i = 1; i + 1 < call.size(); i++) {
    FF_CO_TRY(const ListPointer list, co_await open_list(call, i));
    if (list == nullptr) continue;
    FF_CO_TRY(const std::string element, co_await pop_element(*list, end));
    list->save();
    call.reply.array(2);
    call.reply.bulk(call.word(i));
    call.reply.bulk(element);
    co_return Result<void>();
  }
  call.reply.null_array();
  call.wait_for_keys(wait_ms);
  co_return Result<void>();
}

Task<Result<void>> move_or_wait(CommandCall& call, ListEnd from, ListEnd to) {
  FF_CO_TRY(const int64_t wait_ms, parse_seconds(call, call.size() - 1));
  FF_CO_TRY(const bool moved, co_await move_element(call, from, to));
  if (moved) co_return Result<void>();
  if (call.wait == nullptr) {
    call.reply.null();
  } else {
    call.reply.null_array();
  }
  call.wait_for_keys(wait_ms);
  co_return Result<void>();
}

// LMPOP and BLMPOP: the keys at words [first, end).
struct MultiPop {
  size_t first = 0, end = 0;
  ListEnd from = ListEnd::left;
  int64_t count = 1;
};
// `at`: the word with the number of keys.
Result<MultiPop> parse_multi_pop(const CommandCall& call, size_t at) {
  const auto keys = parse_integer(call.word(at));
  if (!keys || *keys < 1) return list_error("ERR numkeys should be greater than 0");
  if (static_cast<uint64_t>(*keys) >= call.size() - at - 1) return syntax_error();
  MultiPop wanted{.first = at + 1, .end = at + 1 + static_cast<size_t>(*keys)};
  FF_TRY(wanted.from, parse_end(call, wanted.end));
  const size_t option = wanted.end + 1;
  if (option == call.size()) return wanted;
  if (!call.is_option(option, "COUNT") || option + 1 == call.size()) return syntax_error();
  const auto count = parse_integer(call.word(option + 1));
  if (!count || *count < 1) return list_error("ERR count should be greater than 0");
  if (option + 2 < call.size()) return syntax_error();
  wanted.count = *count;
  return wanted;
}

// False: no list has an element.
Task<Result<bool>> pop_of_first_list(CommandCall& call, MultiPop wanted) {
  for (size_t i = wanted.first; i < wanted.end; i++) {
    FF_CO_TRY(const ListPointer list, co_await open_list(call, i));
    if (list == nullptr) continue;
    const auto count = std::min(list->count(), static_cast<uint64_t>(wanted.count));
    call.reply.array(2);
    call.reply.bulk(call.word(i));
    call.reply.array(count);
    for (uint64_t popped = 0; popped < count; popped++) {
      FF_CO_TRY(const std::string element, co_await pop_element(*list, wanted.from));
      call.reply.bulk(element);
    }
    list->save();
    co_return true;
  }
  call.reply.null_array();
  co_return false;
}

// The position of the first element that is equal; empty: none.
Task<Result<std::optional<uint64_t>>> find_element(TreeValue& list, std::string element) {
  PageTree tree = list.tree();
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_first());
  for (uint64_t at = 0; cursor.valid(); at++) {
    if (cursor.item().value == element) co_return std::optional(at);
    FF_CO_TRY(co_await cursor.next());
  }
  co_return std::optional<uint64_t>();
}

}  // namespace

Task<Result<void>> run_lpush(CommandCall& call) { return push(call, ListEnd::left, true); }
Task<Result<void>> run_rpush(CommandCall& call) { return push(call, ListEnd::right, true); }
Task<Result<void>> run_lpushx(CommandCall& call) { return push(call, ListEnd::left, false); }
Task<Result<void>> run_rpushx(CommandCall& call) { return push(call, ListEnd::right, false); }
Task<Result<void>> run_lpop(CommandCall& call) { return pop(call, ListEnd::left); }
Task<Result<void>> run_rpop(CommandCall& call) { return pop(call, ListEnd::right); }
Task<Result<void>> run_blpop(CommandCall& call) { return pop_or_wait(call, ListEnd::left); }
Task<Result<void>> run_brpop(CommandCall& call) { return pop_or_wait(call, ListEnd::right); }

Task<Result<void>> run_lmpop(CommandCall& call) {
  FF_CO_TRY(const MultiPop wanted, parse_multi_pop(call, 1));
  FF_CO_TRY(co_await pop_of_first_list(call, wanted));
  co_return Result<void>();
}

Task<Result<void>> run_blmpop(CommandCall& call) {
  FF_CO_TRY(const MultiPop wanted, parse_multi_pop(call, 2));
  FF_CO_TRY(const int64_t wait_ms, parse_seconds(call, 1));
  FF_CO_TRY(const bool popped, co_await pop_of_first_list(call, wanted));
  if (!popped) call.wait_for_keys(wait_ms);
  co_return Result<void>();
}

Task<Result<void>> run_rpoplpush(CommandCall& call) {
  return move_or_null(call, ListEnd::right, ListEnd::left);
}

Task<Result<void>> run_brpoplpush(CommandCall& call) {
  return move_or_wait(call, ListEnd::right, ListEnd::left);
}

Task<Result<void>> run_lmove(CommandCall& call) {
  FF_CO_TRY(const ListEnd from, parse_end(call, 3));
  FF_CO_TRY(const ListEnd to, parse_end(call, 4));
  co_return co_await move_or_null(call, from, to);
}

Task<Result<void>> run_blmove(CommandCall& call) {
  FF_CO_TRY(const ListEnd from, parse_end(call, 3));
  FF_CO_TRY(const ListEnd to, parse_end(call, 4));
  co_return co_await move_or_wait(call, from, to);
}

Task<Result<void>> run_llen(CommandCall& call) {
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  call.reply.integer(list == nullptr ? 0 : static_cast<int64_t>(list->count()));
  co_return Result<void>();
}

Task<Result<void>> run_lrange(CommandCall& call) {
  FF_CO_TRY(const RangeWords words, parse_range(call));
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  if (list == nullptr) {
    call.reply.array(0);
    co_return Result<void>();
  }
  const ListRange range = range_of(words.first, words.last, list->count());
  call.reply.array(range.end - range.first);
  PageTree tree = list->tree();
  PageTree::Cursor cursor(tree);
  if (range.end > 0) FF_CO_TRY(co_await cursor.to_position(range.first));
  for (uint64_t i = range.first; i < range.end; i++) {
    if (!cursor.valid()) co_return damaged_value();
    call.reply.bulk(cursor.item().value);
    FF_CO_TRY(co_await cursor.next());
  }
  co_return Result<void>();
}

Task<Result<void>> run_lindex(CommandCall& call) {
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  if (list == nullptr) {
    call.reply.null();
    co_return Result<void>();
  }
  const auto index = parse_integer(call.word(2));
  if (!index) co_return not_an_integer();
  PageTree tree = list->tree();
  PageTree::Cursor cursor(tree);
  const auto at = position_of(*index, list->count());
  if (at) FF_CO_TRY(co_await cursor.to_position(*at));
  if (cursor.valid()) {
    call.reply.bulk(cursor.item().value);
  } else {
    call.reply.null();
  }
  co_return Result<void>();
}

Task<Result<void>> run_lset(CommandCall& call) {
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  if (list == nullptr) co_return list_error("ERR no such key");
  const auto index = parse_integer(call.word(2));
  if (!index) co_return not_an_integer();
  const auto at = position_of(*index, list->count());
  if (!at) co_return list_error("ERR index out of range");
  PageTree tree = list->tree();
  FF_CO_TRY(co_await tree.replace_at(*at, call.word(3)));
  list->save();
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_lrem(CommandCall& call) {
  const auto count = parse_integer(call.word(2));
  if (!count) co_return not_an_integer();
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  std::vector<uint64_t> found;  // from the first to the last, or back
  if (list != nullptr) {
    const auto magnitude = static_cast<uint64_t>(*count < 0 ? -(*count + 1) : *count - 1);
    const uint64_t most = *count == 0 ? UINT64_MAX : magnitude + 1;
    const bool back = *count < 0;
    PageTree tree = list->tree();
    PageTree::Cursor cursor(tree);
    if (back) {
      FF_CO_TRY(co_await cursor.to_last());
    } else {
      FF_CO_TRY(co_await cursor.to_first());
    }
    for (uint64_t i = 0; cursor.valid() && found.size() < most; i++) {
      if (cursor.item().value == call.word(3)) found.push_back(back ? list->count() - 1 - i : i);
      if (back) {
        FF_CO_TRY(co_await cursor.previous());
      } else {
        FF_CO_TRY(co_await cursor.next());
      }
    }
    if (!back) std::ranges::reverse(found);
    for (const uint64_t at : found) FF_CO_TRY(co_await tree.erase_at(at));
    if (!found.empty()) list->save();
  }
  call.reply.integer(static_cast<int64_t>(found.size()));
  co_return Result<void>();
}

Task<Result<void>> run_ltrim(CommandCall& call) {
  FF_CO_TRY(const RangeWords words, parse_range(call));
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  if (list != nullptr) {
    const uint64_t before = list->count();
    const ListRange range = range_of(words.first, words.last, before);
    PageTree tree = list->tree();
    while (list->count() > range.end) FF_CO_TRY(co_await tree.erase_at(list->count() - 1));
    for (uint64_t i = 0; i < range.first; i++) FF_CO_TRY(co_await tree.erase_at(0));
    if (list->count() < before) list->save();
  }
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_linsert(CommandCall& call) {
  const bool is_before = call.is_option(2, "BEFORE");
  if (!is_before && !call.is_option(2, "AFTER")) co_return syntax_error();
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  if (list == nullptr) {
    call.reply.integer(0);
    co_return Result<void>();
  }
  FF_CO_TRY(const auto pivot, co_await find_element(*list, call.word(3)));
  if (!pivot) {
    call.reply.integer(-1);
    co_return Result<void>();
  }
  PageTree tree = list->tree();
  Page::Item item;
  item.value = call.word(4);
  FF_CO_TRY(co_await tree.insert_at(is_before ? *pivot : *pivot + 1, std::move(item)));
  list->save();
  call.reply.integer(static_cast<int64_t>(list->count()));
  co_return Result<void>();
}

namespace {

struct PositionOptions {
  int64_t rank = 1;
  std::optional<int64_t> count = {};
  int64_t most = 0;  // elements to look at; 0: all
};

Result<PositionOptions> parse_position_options(const CommandCall& call) {
  PositionOptions options;
  for (size_t i = 3; i < call.size(); i += 2) {
    const bool has_more = i + 1 < call.size();
    const auto number = has_more ? parse_integer(call.word(i + 1)) : std::nullopt;
    const bool is_positive = number && *number >= 0;
    if (call.is_option(i, "RANK") && has_more) {
      if (!number) return not_an_integer();
      options.rank = *number;
      if (*number == INT64_MIN) {
        return list_error(
            "ERR value is out of range, value must between -9223372036854775807 and "
            "9223372036854775807");
      }
      if (*number == 0) {
        return list_error(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or "
            "use negative to start from the end of the list");
      }
    } else if (call.is_option(i, "COUNT") && has_more) {
      if (!is_positive) return list_error("ERR COUNT can't be negative");
      options.count = *number;
    } else if (call.is_option(i, "MAXLEN") && has_more) {
      if (!is_positive) return list_error("ERR MAXLEN can't be negative");
      options.most = *number;
    } else {
      return syntax_error();
    }
  }
  return options;
}

Task<Result<std::vector<int64_t>>> find_positions(TreeValue& list, std::string element,
                                                  PositionOptions options) {
  std::vector<int64_t> found;
  const bool back = options.rank < 0;
  const int64_t skipped = std::abs(options.rank) - 1;
  const int64_t most = options.count.value_or(1);
  PageTree tree = list.tree();
  PageTree::Cursor cursor(tree);
  if (back) {
    FF_CO_TRY(co_await cursor.to_last());
  } else {
    FF_CO_TRY(co_await cursor.to_first());
  }
  int64_t matches = 0;
  for (int64_t i = 0; cursor.valid() && (options.most == 0 || i < options.most); i++) {
    if (cursor.item().value == element && ++matches > skipped) {
      found.push_back(back ? static_cast<int64_t>(list.count()) - 1 - i : i);
      if (most != 0 && static_cast<int64_t>(found.size()) == most) break;
    }
    if (back) {
      FF_CO_TRY(co_await cursor.previous());
    } else {
      FF_CO_TRY(co_await cursor.next());
    }
  }
  co_return found;
}

}  // namespace

Task<Result<void>> run_lpos(CommandCall& call) {
  FF_CO_TRY(const PositionOptions options, parse_position_options(call));
  FF_CO_TRY(const ListPointer list, co_await open_list(call, 1));
  std::vector<int64_t> found;
  if (list != nullptr) {
    FF_CO_TRY(found, co_await find_positions(*list, call.word(2), options));
  }
  if (options.count) {
    call.reply.array(found.size());
    for (const int64_t position : found) call.reply.integer(position);
  } else if (found.empty()) {
    call.reply.null();
  } else {
    call.reply.integer(found.front());
  }
  co_return Result<void>();
}

}  // namespace ff::gateway
