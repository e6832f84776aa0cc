// pickle.cc: the stack machine of pickles, without its calls.
#include "training/checkpoint/import/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/text.h"

namespace ff::checkpoint {

double Pickle::real(Id id) const { return std::bit_cast<double>(of(id, PickleKind::real).number); }

const std::vector<Pickle::Id>& Pickle::items(Id id) const {
  const PickleKind kind = values_[id].kind;
  FF_CHECK(kind == PickleKind::list || kind == PickleKind::tuple || kind == PickleKind::dict ||
           kind == PickleKind::set || kind == PickleKind::frozenset);
  return lists_[values_[id].number];
}

namespace {

constexpr unsigned kProtocolMax = 5;
constexpr uint64_t kLongBytesMax = uint64_t{64} << 10;
constexpr size_t kGlobalBytesMax = 512;
constexpr size_t kGlobalsMax = 4096;

// The opcodes, by the names that pickletools.py has for them.
enum PickleOpcode : uint8_t {
  kOpMark = '(',
  kOpStop = '.',
  kOpPop = '0',
  kOpPopMark = '1',
  kOpDup = '2',
  kOpNone = 'N',
  kOpNewTrue = 0x88,
  kOpNewFalse = 0x89,
  kOpBinInt = 'J',
  kOpBinInt1 = 'K',
  kOpBinInt2 = 'M',
  kOpLong1 = 0x8a,
  kOpLong4 = 0x8b,
  kOpBinFloat = 'G',
  kOpBinString = 'T',
  kOpShortBinString = 'U',
  kOpBinUnicode = 'X',
  kOpShortBinUnicode = 0x8c,
  kOpBinUnicode8 = 0x8d,
  kOpBinBytes = 'B',
  kOpShortBinBytes = 'C',
  kOpBinBytes8 = 0x8e,
  kOpByteArray8 = 0x96,
  kOpEmptyTuple = ')',
  kOpTuple = 't',
  kOpTuple1 = 0x85,
  kOpTuple2 = 0x86,
  kOpTuple3 = 0x87,
  kOpEmptyList = ']',
  kOpList = 'l',
  kOpAppend = 'a',
  kOpAppends = 'e',
  kOpEmptyDict = '}',
  kOpDict = 'd',
  kOpSetItem = 's',
  kOpSetItems = 'u',
  kOpEmptySet = 0x8f,
  kOpAddItems = 0x90,
  kOpFrozenSet = 0x91,
  kOpGlobal = 'c',
  kOpStackGlobal = 0x93,
  kOpReduce = 'R',
  kOpNewObject = 0x81,
  kOpBuild = 'b',
  kOpBinPersistentId = 'Q',
  kOpBinGet = 'h',
  kOpLongBinGet = 'j',
  kOpBinPut = 'q',
  kOpLongBinPut = 'r',
  kOpMemoize = 0x94,
  kOpProtocol = 0x80,
  kOpFrame = 0x95,
};

}  // namespace

class PickleMachine {
 public:
  PickleMachine(Pickle& made, const Pickle::Known& known) : made_(made), known_(known) {
    add(PickleKind::none);
    add(PickleKind::boolean, 0);
    add(PickleKind::boolean, 1);
    empty_tuple_ = add_list(PickleKind::tuple, {});
  }

  Result<void> run();

 private:
  using Id = Pickle::Id;
  static constexpr Id kNoneId = 0;

  Error damaged(std::string_view what) const {
    return fail(Errc::corrupt, "the pickle is damaged: {} (byte {})", what, at_);
  }
  Error too_large() const {
    return fail(Errc::failed, "the pickle has more values than ff reads (some {} million)",
                kPickleValuesMax >> 20);
  }

  // Of the bytes of the pickle.
  Result<uint64_t> number(unsigned bytes);
  Result<std::pair<uint64_t, uint32_t>> extent(uint64_t length);
  Result<std::string_view> line();

  // Makers of values.
  Id add(PickleKind kind, uint64_t number = 0, uint32_t length = 0) {
    made_.values_.push_back({.kind = kind, .length = length, .number = number});
    return static_cast<Id>(made_.values_.size() - 1);
  }
  Id add_list(PickleKind kind, std::vector<Id> items) {
    made_.lists_.push_back(std::move(items));
    return add(kind, made_.lists_.size() - 1);
  }
  Id add_integer(int64_t value);

  // The stack.
  Result<void> push(Id id);
  Result<Id> pop();
  Result<Id> top();
  Result<std::vector<Id>> pop_to_mark();

  // Groups of opcodes; false: it is of another group.
  Result<bool> scalar(uint8_t opcode);
  Result<bool> string(uint8_t opcode);
  Result<bool> container(uint8_t opcode);
  Result<bool> call(uint8_t opcode);
  Result<bool> memory(uint8_t opcode);
  Result<bool> stack(uint8_t opcode);

  Result<void> push_string(PickleKind kind, unsigned length_bytes);
  Result<void> push_long(unsigned length_bytes);
  Result<void> push_tuple(size_t count);
  Result<void> push_global(std::string_view module, std::string_view name);
  Result<void> push_call();
  Result<void> put_items(PickleKind kind, std::vector<Id> items);
  Result<void> put_pairs(std::vector<Id> pairs);
  Result<void> build();
  Result<void> memoize(uint64_t index);

  Pickle& made_;
  const Pickle::Known& known_;
  uint64_t at_ = 0;
  size_t pushes_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::vector<Id> memo_;
  std::map<int64_t, Id> small_;                     // integers that are there already
  std::map<std::string, Id, std::less<>> globals_;  // by name
  Id empty_tuple_ = 0;
};

Result<uint64_t> PickleMachine::number(unsigned bytes) {
  const std::string& from = made_.bytes_;
  if (from.size() - at_ < bytes) return damaged("it ends too soon");
  uint64_t value = 0;
  for (unsigned i = 0; i < bytes; i++) {
    value |= uint64_t{static_cast<uint8_t>(from[at_ + i])} << (8 * i);
  }
  at_ += bytes;
  return value;
}

// Where the next bytes are; goes on behind them.
Result<std::pair<uint64_t, uint32_t>> PickleMachine::extent(uint64_t length) {
  if (made_.bytes_.size() - at_ < length) return damaged("it ends too soon");
  const uint64_t begin = at_;
  at_ += length;
  return std::pair(begin, static_cast<uint32_t>(length));
}

Result<std::string_view> PickleMachine::line() {
  const size_t end = made_.bytes_.find('\n', at_);
  if (end == std::string::npos || end - at_ > kGlobalBytesMax) return damaged("a name has no end");
  const auto found = std::string_view(made_.bytes_).substr(at_, end - at_);
  at_ = end + 1;
  return found;
}

PickleMachine::Id PickleMachine::add_integer(int64_t value) {
  constexpr int64_t kSmall = 1024;
  if (value < 0 || value > kSmall) {
    return add(PickleKind::integer, static_cast<uint64_t>(value));
  }
  const auto [found, is_new] = small_.try_emplace(value, 0);
  if (is_new) found->second = add(PickleKind::integer, static_cast<uint64_t>(value));
  return found->second;
}

Result<void> PickleMachine::push(Id id) {
  if (++pushes_ > kPicklePushesMax || made_.values_.size() > kPickleValuesMax) return too_large();
  stack_.push_back(id);
  return {};
}

Result<PickleMachine::Id> PickleMachine::top() {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) {
    return damaged("an opcode lacks a value");
  }
  return stack_.back();
}

Result<PickleMachine::Id> PickleMachine::pop() {
  FF_TRY(const Id id, top());
  stack_.pop_back();
  return id;
}

Result<std::vector<PickleMachine::Id>> PickleMachine::pop_to_mark() {
  if (marks_.empty()) return damaged("an opcode lacks a mark");
  const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
  std::vector<Id> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

Result<void> PickleMachine::push_string(PickleKind kind, unsigned length_bytes) {
  FF_TRY(const uint64_t length, number(length_bytes));
  FF_TRY(const auto place, extent(length));
  const auto content = std::string_view(made_.bytes_).substr(place.first, place.second);
  if (kind == PickleKind::text && !valid_utf8(content)) {
    return fail(Errc::failed, "the pickle has a text that is not UTF-8 (byte {})", place.first);
  }
  return push(add(kind, place.first, place.second));
}

Result<void> PickleMachine::push_long(unsigned length_bytes) {
  FF_TRY(const uint64_t length, number(length_bytes));
  if (length > kLongBytesMax) return too_large();
  if (length > sizeof(int64_t)) {
    FF_TRY(const auto place, extent(length));
    return push(add(PickleKind::big_integer, place.first, place.second));
  }
  FF_TRY(uint64_t value, number(static_cast<unsigned>(length)));
  const unsigned unused = static_cast<unsigned>(8 * (sizeof(int64_t) - length));
  if (length > 0) {  // extend the sign
    value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  }
  return push(add_integer(static_cast<int64_t>(value)));
}

Result<bool> PickleMachine::scalar(uint8_t opcode) {
  switch (opcode) {
    case kOpNone: FF_TRY(push(kNoneId)); return true;
    case kOpNewFalse: FF_TRY(push(1)); return true;
    case kOpNewTrue: FF_TRY(push(2)); return true;
    case kOpBinInt: {
      FF_TRY(const uint64_t value, number(4));
      FF_TRY(push(add_integer(static_cast<int32_t>(value))));
      return true;
    }
    case kOpBinInt1:
    case kOpBinInt2: {
      FF_TRY(const uint64_t value, number(opcode == kOpBinInt1 ? 1 : 2));
      FF_TRY(push(add_integer(static_cast<int64_t>(value))));
      return true;
    }
    case kOpLong1: FF_TRY(push_long(1)); return true;
    case kOpLong4: FF_TRY(push_long(4)); return true;
    case kOpBinFloat: {
      FF_TRY(const uint64_t value, number(8));
      FF_TRY(push(add(PickleKind::real, __builtin_bswap64(value))));
      return true;
    }
    default: return false;
  }
}

Result<bool> PickleMachine::string(uint8_t opcode) {
  switch (opcode) {
    case kOpShortBinString:
    case kOpShortBinUnicode: FF_TRY(push_string(PickleKind::text, 1)); return true;
    case kOpBinString:
    case kOpBinUnicode: FF_TRY(push_string(PickleKind::text, 4)); return true;
    case kOpBinUnicode8: FF_TRY(push_string(PickleKind::text, 8)); return true;
    case kOpShortBinBytes: FF_TRY(push_string(PickleKind::bytes, 1)); return true;
    case kOpBinBytes: FF_TRY(push_string(PickleKind::bytes, 4)); return true;
    case kOpBinBytes8: FF_TRY(push_string(PickleKind::bytes, 8)); return true;
    case kOpByteArray8: FF_TRY(push_string(PickleKind::bytearray, 8)); return true;
    default: return false;
  }
}

Result<void> PickleMachine::push_tuple(size_t count) {
  std::vector<Id> items(count);
  for (size_t i = count; i > 0; i--) {
    FF_TRY(items[i - 1], pop());
  }
  return push(add_list(PickleKind::tuple, std::move(items)));
}

// Into the list, set or object on top of the stack.
Result<void> PickleMachine::put_items(PickleKind kind, std::vector<Id> items) {
  FF_TRY(const Id into, top());
  std::vector<Id>* list = nullptr;
  if (made_.is(into, kind)) list = &made_.lists_[made_.values_[into].number];
  if (made_.is(into, PickleKind::call)) list = &made_.calls_[made_.values_[into].number].items;
  if (list == nullptr) return damaged("elements are added to what is no list or set");
  list->insert(list->end(), items.begin(), items.end());
  return {};
}

Result<void> PickleMachine::put_pairs(std::vector<Id> pairs) {
  FF_TRY(const Id into, top());
  std::vector<Id>* list = nullptr;
  if (made_.is(into, PickleKind::dict)) list = &made_.lists_[made_.values_[into].number];
  if (made_.is(into, PickleKind::call)) list = &made_.calls_[made_.values_[into].number].pairs;
  if (list == nullptr) return damaged("keys are set in what is no dict");
  if (pairs.size() % 2 != 0) return damaged("a key has no value");
  list->insert(list->end(), pairs.begin(), pairs.end());
  return {};
}

Result<bool> PickleMachine::container(uint8_t opcode) {
  switch (opcode) {
    case kOpEmptyTuple: FF_TRY(push(empty_tuple_)); return true;
    case kOpTuple1: FF_TRY(push_tuple(1)); return true;
    case kOpTuple2: FF_TRY(push_tuple(2)); return true;
    case kOpTuple3: FF_TRY(push_tuple(3)); return true;
    case kOpEmptyList: FF_TRY(push(add_list(PickleKind::list, {}))); return true;
    case kOpEmptyDict: FF_TRY(push(add_list(PickleKind::dict, {}))); return true;
    case kOpEmptySet: FF_TRY(push(add_list(PickleKind::set, {}))); return true;
    case kOpTuple:
    case kOpList:
    case kOpFrozenSet: {
      FF_TRY(auto items, pop_to_mark());
      const PickleKind kind = opcode == kOpTuple  ? PickleKind::tuple
                              : opcode == kOpList ? PickleKind::list
                                                  : PickleKind::frozenset;
      FF_TRY(push(add_list(kind, std::move(items))));
      return true;
    }
    case kOpDict: {
      FF_TRY(auto pairs, pop_to_mark());
      FF_TRY(push(add_list(PickleKind::dict, {})));
      FF_TRY(put_pairs(std::move(pairs)));
      return true;
    }
    case kOpAppend: {
      FF_TRY(const Id item, pop());
      FF_TRY(put_items(PickleKind::list, {item}));
      return true;
    }
    case kOpAppends:
    case kOpAddItems: {
      FF_TRY(auto items, pop_to_mark());
      FF_TRY(
          put_items(opcode == kOpAppends ? PickleKind::list : PickleKind::set, std::move(items)));
      return true;
    }
    case kOpSetItem: {
      FF_TRY(const Id value, pop());
      FF_TRY(const Id key, pop());
      FF_TRY(put_pairs({key, value}));
      return true;
    }
    case kOpSetItems: {
      FF_TRY(auto pairs, pop_to_mark());
      FF_TRY(put_pairs(std::move(pairs)));
      return true;
    }
    default: return false;
  }
}

Result<void> PickleMachine::push_global(std::string_view module, std::string_view name) {
  const std::string whole = fmt::format("{}.{}", module, name);
  if (whole.size() > kGlobalBytesMax) return damaged("a name is too long");
  const auto there = globals_.find(whole);
  if (there != globals_.end()) return push(there->second);
  if (!known_(whole)) {
    return Error{Errc::refused,
                 fmt::format("the pickle needs {}, which could run code or is of a class that ff "
                             "does not know",
                             printable(whole)),
                 "Save tensors, numbers, texts and containers of them (state_dict()), or import "
                 "without such values: --skip-unknown."};
  }
  if (globals_.size() == kGlobalsMax) return too_large();
  made_.globals_.push_back(whole);
  const Id id = add(PickleKind::global, made_.globals_.size() - 1);
  globals_.emplace(whole, id);
  return push(id);
}

Result<void> PickleMachine::push_call() {
  Pickle::Call call;
  FF_TRY(call.arguments, pop());
  FF_TRY(call.function, pop());
  if (!made_.is(call.arguments, PickleKind::tuple)) return damaged("a call without arguments");
  if (!made_.is(call.function, PickleKind::global)) {
    return Error{Errc::refused, "the pickle calls what another call has returned",
                 "Save tensors, numbers, texts and containers of them (state_dict())."};
  }
  made_.calls_.push_back(std::move(call));
  return push(add(PickleKind::call, made_.calls_.size() - 1));
}

Result<void> PickleMachine::build() {
  FF_TRY(const Id state, pop());
  FF_TRY(const Id object, top());
  if (!made_.is(object, PickleKind::call)) return damaged("a state of what is no object");
  made_.calls_[made_.values_[object].number].state = state;
  return {};
}

Result<bool> PickleMachine::call(uint8_t opcode) {
  switch (opcode) {
    case kOpGlobal: {
      FF_TRY(const auto module, line());
      FF_TRY(const auto name, line());
      FF_TRY(push_global(module, name));
      return true;
    }
    case kOpStackGlobal: {
      FF_TRY(const Id name, pop());
      FF_TRY(const Id module, pop());
      if (!made_.is(name, PickleKind::text) || !made_.is(module, PickleKind::text)) {
        return damaged("a name is no text");
      }
      FF_TRY(push_global(made_.text(module), made_.text(name)));
      return true;
    }
    case kOpReduce:
    case kOpNewObject: FF_TRY(push_call()); return true;
    case kOpBuild: FF_TRY(build()); return true;
    case kOpBinPersistentId: {
      FF_TRY(const Id id, pop());
      FF_TRY(push(add(PickleKind::persistent, id)));
      return true;
    }
    default: return false;
  }
}

Result<void> PickleMachine::memoize(uint64_t index) {
  FF_TRY(const Id id, top());
  if (index >= pushes_) return too_large();  // each index is that of a value that was pushed
  if (index >= memo_.size()) memo_.resize(index + 1, UINT32_MAX);
  memo_[index] = id;
  return {};
}

Result<bool> PickleMachine::memory(uint8_t opcode) {
  switch (opcode) {
    case kOpBinPut:
    case kOpLongBinPut: {
      FF_TRY(const uint64_t index, number(opcode == kOpBinPut ? 1 : 4));
      FF_TRY(memoize(index));
      return true;
    }
    case kOpMemoize: FF_TRY(memoize(memo_.size())); return true;
    case kOpBinGet:
    case kOpLongBinGet: {
      FF_TRY(const uint64_t index, number(opcode == kOpBinGet ? 1 : 4));
      if (index >= memo_.size() || memo_[index] == UINT32_MAX) {
        return damaged("it refers to a value that is not there");
      }
      FF_TRY(push(memo_[index]));
      return true;
    }
    default: return false;
  }
}

Result<bool> PickleMachine::stack(uint8_t opcode) {
  switch (opcode) {
    case kOpMark:
      if (++pushes_ > kPicklePushesMax) return too_large();
      marks_.push_back(stack_.size());
      return true;
    case kOpPop:
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
        return true;
      }
      FF_TRY(pop());
      return true;
    case kOpPopMark: FF_TRY(pop_to_mark()); return true;
    case kOpDup: {
      FF_TRY(const Id id, top());
      FF_TRY(push(id));
      return true;
    }
    case kOpFrame: FF_TRY(number(8)); return true;  // how much to read at a time
    case kOpProtocol: {
      FF_TRY(const uint64_t protocol, number(1));
      if (protocol <= kProtocolMax) return true;
      return fail(Errc::failed, "the pickle has protocol {}; ff reads 2 to {}", protocol,
                  kProtocolMax);
    }
    default: return false;
  }
}

Result<void> PickleMachine::run() {
  if (made_.bytes_.size() > kPickleBytesMax) {
    return fail(Errc::failed, "the pickle has {} bytes; ff reads {}", made_.bytes_.size(),
                kPickleBytesMax);
  }
  while (true) {
    FF_TRY(const uint64_t read, number(1));
    const auto opcode = static_cast<uint8_t>(read);
    if (opcode == kOpStop) break;
    bool done = false;
    for (const auto group :
         {&PickleMachine::memory, &PickleMachine::scalar, &PickleMachine::string,
          &PickleMachine::container, &PickleMachine::call, &PickleMachine::stack}) {
      FF_TRY(done, (this->*group)(opcode));
      if (done) break;
    }
    if (!done) {
      return Error{Errc::failed,
                   fmt::format("the pickle has an opcode 0x{:02x} that ff does not read (byte {})",
                               opcode, at_ - 1),
                   "ff reads what Python's pickle writes with protocol 2 to 5: save it again with "
                   "torch.save()."};
    }
  }
  FF_TRY(made_.top_, pop());
  if (!stack_.empty() || !marks_.empty()) return damaged("values are left over");
  if (at_ != made_.bytes_.size()) return damaged("bytes follow its end");
  return {};
}

Result<Pickle> Pickle::parse(std::string pickled, const Known& known) {
  Pickle made;
  made.bytes_ = std::move(pickled);
  PickleMachine machine(made, known);
  FF_TRY(machine.run());
  return made;
}

}  // namespace ff::checkpoint
