// This machine's files as an end of a copy: direct I/O where the file system has it, what is in the
// page cache taken from there. Operations on names block, as the Disk's do.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "platform/io/async.h"
#include "storage/client/tree.h"

namespace ff::client {

class LocalTree final : public Tree {
 public:
  // Both outlive it, and all that it opens. `unit`: of reads and writes, a multiple of a page.
  LocalTree(io::Disk& disk, io::AsyncQueue& queue, uint64_t unit)
      : disk_(disk), queue_(queue), unit_(unit) {}

  Task<Result<std::optional<Node>>> look(std::string path, bool follow) override;
  Task<Result<std::vector<Entry>>> list(std::string dir, std::string after) override;
  Task<Result<std::unique_ptr<OpenFile>>> open(std::string path, Node node) override;
  Task<Result<std::unique_ptr<OpenFile>>> create(std::string path, uint32_t mode,
                                                 bool keep) override;
  Task<Result<void>> make_dir(std::string path, uint32_t mode) override;
  Task<Result<void>> make_link(std::string target, std::string path) override;
  Task<Result<void>> remove(std::string path) override;
  Task<Result<void>> rename(std::string from, std::string to) override;
  Task<Result<void>> set(std::string path, Attributes attributes) override;
  Task<Result<void>> settle() override;
  // In a file beside it, PATH.note.
  Task<Result<std::string>> note(std::string path) override;
  Task<Result<void>> set_note(std::string path, std::string words) override;
  std::string shown(std::string_view path) const override { return std::string(path); }

 private:
  io::Disk& disk_;
  io::AsyncQueue& queue_;
  const uint64_t unit_;
  std::set<std::string> unsettled_;  // directories
};

}  // namespace ff::client
