// A staging directory for restored files: the destination never has partial files. For an absent
// destination it is a sibling that is renamed at the end; for an existing empty directory it is
// inside, and its entries are renamed out at the end.
#pragma once

#include <string>

#include "training/checkpoint/format/context.h"

namespace ff::checkpoint {

class Staging {
 public:
  // Errc::refused when `dest` exists and is not an empty directory.
  static Result<Staging> open(Context& context, const std::string& dest);
  // Removes what was not committed.
  ~Staging();
  Staging(Staging&& other) noexcept;
  Staging& operator=(Staging&&) = delete;

  const std::string& dir() const { return dir_; }
  // Moves the content to the destination, durably.
  Result<void> commit();

 private:
  Staging(Context& context, std::string dest, std::string dir, bool inside)
      : context_(&context), dest_(std::move(dest)), dir_(std::move(dir)), inside_(inside) {}

  Context* context_;
  std::string dest_;
  std::string dir_;
  bool inside_;
};

}  // namespace ff::checkpoint
