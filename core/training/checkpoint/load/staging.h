// A staging directory for restored files: the destination never has partial files. For an absent
// destination it is a sibling that is renamed at the end; for an existing empty directory it is
// inside, and its entries are renamed out at the end.
//
// The store may be hostile, and others may write where the destination is. So files are written
// through disk(), which leads nowhere but below the staging directory that this program has made
// (Disk::beneath), and renamed through the same for the directory around it.
#pragma once

#include <memory>
#include <string>

#include "training/checkpoint/format/context.h"

namespace ff::checkpoint {

class Staging {
 public:
  // Follows symbolic links in `dest`. Errc::refused when it exists and is not an empty directory.
  static Result<Staging> open(Context& context, const std::string& dest);
  // Removes what was not committed.
  ~Staging();
  Staging(Staging&& other) noexcept = default;
  Staging& operator=(Staging&&) = delete;

  const std::string& dir() const { return dir_; }
  // All that is below dir(), and nothing else.
  io::Disk& disk() const { return *disk_; }
  // Moves the content to the destination, durably.
  Result<void> commit();

 private:
  Staging(std::unique_ptr<io::Disk> around, std::string dest, std::string dir, bool inside)
      : around_(std::move(around)), dest_(std::move(dest)), dir_(std::move(dir)), inside_(inside) {}
  static Result<Staging> make(std::unique_ptr<io::Disk> around, std::string dest, std::string dir,
                              bool inside);

  std::unique_ptr<io::Disk> around_;  // the directory that dir_ is in; null: moved from, committed
  std::unique_ptr<io::Disk> disk_;    // dir_
  std::string dest_;
  std::string dir_;
  bool inside_;
};

}  // namespace ff::checkpoint
