// Python's pickles as plain data. A pickle is a program for a small stack machine, whose opcodes
// can call any function of Python; this reader builds the values that it describes, and records a
// call as a value of its own: the name of the function and its arguments. It calls nothing,
// whatever the pickle says, and refuses names that its caller does not know.
//
// Protocols 2 to 5 (Python's Lib/pickletools.py describes each opcode). Memory is bounded: a pickle
// has at most 256 MiB and some 16 million values, and the reader does not recurse.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"

namespace ff::checkpoint {

constexpr uint64_t kPickleBytesMax = uint64_t{1} << 28;
constexpr size_t kPickleValuesMax = size_t{1} << 24;
constexpr size_t kPicklePushesMax = size_t{1} << 26;  // values that opcodes push on the stack

enum class PickleKind : uint8_t {
  none,
  boolean,
  integer,
  big_integer,  // beyond 64 bits
  real,
  text,
  bytes,
  bytearray,
  list,
  tuple,
  dict,
  set,
  frozenset,
  global,      // a function or a class of a module
  call,        // what a function returns, or an object of a class
  persistent,  // what the program that has pickled it knows under an id
};

class Pickle {
 public:
  using Id = uint32_t;  // of a value

  // What a function was called with, and what was put into the result after that.
  struct Call {
    Id function = 0;
    Id arguments = 0;       // a tuple
    Id state = 0;           // of BUILD; 0, which is None, without one
    std::vector<Id> items;  // as of a list or set
    std::vector<Id> pairs;  // as of a dict: key, value, key, value, ...
  };

  // Whether "MODULE.NAME" may occur.
  using Known = std::function<bool(std::string_view name)>;

  // Errc::corrupt: no pickle, or a damaged one; refused: a name that is not known; failed: larger
  // than the limits, or of protocol 0 or 1.
  static Result<Pickle> parse(std::string pickled, const Known& known);

  Id top() const { return top_; }
  PickleKind kind(Id id) const { return values_[id].kind; }
  bool is(Id id, PickleKind kind) const { return values_[id].kind == kind; }

  // Each for values of its kind only (FF_CHECK).
  bool boolean(Id id) const { return of(id, PickleKind::boolean).number != 0; }
  int64_t integer(Id id) const { return static_cast<int64_t>(of(id, PickleKind::integer).number); }
  double real(Id id) const;
  std::string_view text(Id id) const { return view(of(id, PickleKind::text)); }
  // Of bytes and bytearray; of a big_integer: two's complement, the lowest byte first.
  std::string_view bytes(Id id) const { return view(values_[id]); }
  // Elements of a list, tuple, set or frozenset; of a dict: key, value, key, value, ...
  const std::vector<Id>& items(Id id) const;
  // "MODULE.NAME"
  std::string_view global(Id id) const { return globals_[of(id, PickleKind::global).number]; }
  const Call& call(Id id) const { return calls_[of(id, PickleKind::call).number]; }
  Id persistent(Id id) const { return static_cast<Id>(of(id, PickleKind::persistent).number); }

  // The name of the function of a call, or "" if the value is no call.
  std::string_view function(Id id) const {
    return is(id, PickleKind::call) ? global(call(id).function) : std::string_view();
  }

 private:
  friend class PickleMachine;
  struct Value {
    PickleKind kind = PickleKind::none;
    uint32_t length = 0;  // of text and bytes
    uint64_t number = 0;  // the number; else where it is: in bytes_, lists_, globals_, calls_
  };
  const Value& of(Id id, PickleKind kind) const {
    FF_CHECK(values_[id].kind == kind);
    return values_[id];
  }
  std::string_view view(const Value& value) const {
    return std::string_view(bytes_).substr(value.number, value.length);
  }

  std::string bytes_;  // of the pickle, in which texts lie
  std::vector<Value> values_;
  std::vector<std::vector<Id>> lists_;
  std::vector<std::string> globals_;
  std::vector<Call> calls_;
  Id top_ = 0;
};

}  // namespace ff::checkpoint
