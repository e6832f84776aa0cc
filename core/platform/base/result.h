// Errors are values (compare absl::StatusOr). An Error names the object, the cause and the next
// step; a Result<T> is a T or an Error, and FF_TRY returns the error to the caller. Bugs are not
// errors: they abort the process (check.h). The exit code of a command follows from the error code
// alone (exit_code below).
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

// A code exists only where some caller acts on it; every other error is `failed`.
enum class Errc : unsigned char {
  failed,        // any error without a code of its own
  usage,         // wrong usage or configuration
  corrupt,       // stored data does not match its checksum or its format
  incomplete,    // a part could not run or could not be checked
  refused,       // not allowed: permission, key, or a rule that protects data
  deadline,      // the deadline has passed
  interrupted,   // Ctrl-C or SIGTERM
  not_found,     // no such file, run, step, tensor
  exists,        // exclusive creation failed: the name is taken
  disk_full,     // no space, or over quota
  newer_format,  // written by a newer ff than this one
  unsupported,   // the kernel, file system or peer does not offer this; callers fall back
  unreachable,  // no connection to the peer, or it was lost: the call may have been executed or not
  busy,         // a limit is exhausted; a retry may succeed later
  fault,        // a check found a defect
  stale,        // the request was based on outdated state: refresh it and retry
};
constexpr size_t kErrcCount = static_cast<size_t>(Errc::stale) + 1;

// The name of a code in JSON ("disk_full"), and the exit code of a command that fails with it.
std::string_view errc_name(Errc code);
std::optional<Errc> errc_from_name(std::string_view name);
int exit_code(Errc code);

struct [[nodiscard]] Error {
  Errc code = Errc::failed;
  std::string message;  // object and cause: "/data/x.safetensors: No such file or directory"
  std::string hint;     // next step, a full sentence or a command; may be empty
  int sys = 0;          // the errno to return to a kernel (FUSE); 0: derive it from the code

  // Prepends context to the message: "save step 3: " + message.
  Error&& with_context(std::string_view context) &&;
};

// Error with a formatted message: fail(Errc::corrupt, "{}: bad magic", path).
template <class... A>
Error fail(Errc code, fmt::format_string<A...> text, A&&... args) {
  return Error{code, fmt::format(text, std::forward<A>(args)...), {}};
}

// The error of a failed system call: message "WHAT: strerror(err)", `err` as its errno, a hint
// where one is known, and a code: ENOENT -> not_found, ENOSPC and EDQUOT -> disk_full, EACCES,
// EPERM and EROFS -> refused, EEXIST -> exists, ESTALE -> stale, ENOSYS and EOPNOTSUPP ->
// unsupported, any other -> failed.
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

// FF_TRY(expr);            returns the error of a Result<void> or Result<T> (T is dropped)
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
