// For commands with many operands: an error of one operand does not stop the others, and JSON lists
// may be too long for a document tree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cmd/cli/output.h"
#include "platform/base/result.h"

namespace ff::cmd {

// Collects the errors of a command that continues after them: ff prints each as a warning, and the
// command fails at the end.
class Failures {
 public:
  explicit Failures(Output& out) : out_(out) {}
  // False if the command must stop at this error (interruption, deadline); result() returns it.
  bool add(Error error);
  uint64_t count() const { return count_; }
  // The error itself if there was one; their number if there were several.
  Result<void> result() const;

 private:
  Output& out_;
  uint64_t count_ = 0;
  std::optional<Error> first_;
  std::optional<Error> fatal_;  // stopped the command
};

// A JSON list that may be too long for a document tree.
class JsonList {
 public:
  // `name`: of the list in the envelope's data. Without --json, add() does nothing.
  JsonList(Output& out, std::string name) : out_(out), text_("{\"" + std::move(name) + "\":[") {}
  void add(const Json& entry);
  // Passes the list to the envelope.
  void finish();

 private:
  Output& out_;
  std::string text_;
  bool any_ = false;
};

}  // namespace ff::cmd
