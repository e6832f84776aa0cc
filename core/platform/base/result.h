// Errors are values. An Error names the thing, the cause and the next step; a Result<T> is a T or
// an Error, and FF_TRY passes the error up. Bugs do not come this way: they stop the process
// (check.h). Exit codes of the command line follow from the code alone (exit_code below).
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "platform/base/check.h"

namespace ff {

// A code exists only where some caller acts on it; everything else is `failed`.
enum class Errc : unsigned char {
  failed,        // could not be done
  usage,         // wrong usage or configuration
  corrupt,       // stored data does not match its checksum or its format
  incomplete,    // some part could not run or be checked
  refused,       // not allowed: permission, key, or a rule that protects data
  deadline,      // the time given has passed
  interrupted,   // Ctrl-C or SIGTERM
  not_found,     // no such file, run, step, tensor
  exists,        // exclusive creation lost
  disk_full,     // no space, or over quota
  newer_format,  // written by a newer ff than this one
  unsupported,   // the kernel, file system or peer does not offer this; callers fall back
  unreachable,   // no connection to the peer, or lost: what was asked may or may not have been done
  busy,          // a limit is exhausted; the same may work later
  fault,         // what was looked at is not as it should be
  stale,         // asked for under a state of things that no longer holds: look, and ask again
};
constexpr size_t kErrcs = static_cast<size_t>(Errc::stale) + 1;

// The name used in JSON ("disk_full") and the exit code of cli.md for a code.
std::string_view errc_name(Errc code);
std::optional<Errc> errc_from_name(std::string_view name);
int exit_code(Errc code);

struct [[nodiscard]] Error {
  Errc code = Errc::failed;
  std::string message;  // thing and cause: "/data/x.safetensors: No such file or directory"
  std::string hint;     // next step, a full sentence or a command; may be empty
  int sys = 0;          // the errno of it, for those who answer a kernel; 0: none in particular

  // The same error with words in front: "save step 3: " + message.
  Error&& within(std::string_view context) &&;
};

// Error with a formatted message: fail(Errc::corrupt, "{}: bad magic", path).
template <class... A>
Error fail(Errc code, fmt::format_string<A...> text, A&&... args) {
  return Error{code, fmt::format(text, std::forward<A>(args)...), {}};
}

// "WHAT: strerror(err)" with the code a caller can act on (ENOENT -> not_found, ENOSPC and EDQUOT
// -> disk_full, EACCES/EPERM/EROFS -> refused, EEXIST -> exists, ESTALE -> stale), `err` as its
// errno, and a hint where one is known.
Error errno_error(int err, std::string_view what);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    FF_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    FF_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    FF_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & {
    FF_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  const Error& error() const& {
    FF_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    FF_CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const { FF_CHECK(ok()); }

  Error& error() & {
    FF_CHECK(!ok());
    return *error_;
  }
  const Error& error() const& {
    FF_CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    FF_CHECK(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace ff

// FF_TRY(expr);            returns the error of a Result<void> (drops the value of another)
// FF_TRY(auto x, expr);    declares x from the value, or returns the error
#define FF_TRY(...) FF_TRY_PICK(__VA_ARGS__, FF_TRY_BIND, FF_TRY_DROP)(__VA_ARGS__)
#define FF_TRY_PICK(a, b, name, ...) name
#define FF_TRY_CAT2(a, b) a##b
#define FF_TRY_CAT(a, b) FF_TRY_CAT2(a, b)
#define FF_TRY_DROP(expr)                      \
  do {                                         \
    if (auto ff_result = (expr); !ff_result) { \
      return std::move(ff_result).error();     \
    }                                          \
  } while (false)
#define FF_TRY_BIND(declaration, expr)                          \
  auto FF_TRY_CAT(ff_result_, __LINE__) = (expr);               \
  if (!FF_TRY_CAT(ff_result_, __LINE__)) {                      \
    return std::move(FF_TRY_CAT(ff_result_, __LINE__)).error(); \
  }                                                             \
  declaration = std::move(FF_TRY_CAT(ff_result_, __LINE__)).value()
