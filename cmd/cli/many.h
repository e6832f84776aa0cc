// Commands about many things at once: an error of one does not keep them from the others, and lists
// may be longer than a document tree should be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cmd/cli/output.h"
#include "platform/base/result.h"

namespace ff::cmd {

// Errors of one command that goes on with the rest: each is a warning, and the command fails in the
// end.
class Failures {
 public:
  explicit Failures(Output& out) : out_(out) {}
  // False, and the error is returned by end(), where there is no going on: an interruption.
  bool add(Error error);
  uint64_t count() const { return count_; }
  // Of so much as one error, that error itself; of several, their count.
  Result<void> end() const;

 private:
  Output& out_;
  uint64_t count_ = 0;
  std::optional<Error> first_;
  std::optional<Error> last_;  // no going on
};

// Objects of a list that may be too long for a document tree.
class JsonList {
 public:
  // `name`: of the list in the envelope's data. Nothing is kept unless --json is given.
  JsonList(Output& out, std::string name) : out_(out), text_("{\"" + std::move(name) + "\":[") {}
  void add(const Json& entry);
  // Gives it to the envelope.
  void end();

 private:
  Output& out_;
  std::string text_;
  bool any_ = false;
};

}  // namespace ff::cmd
