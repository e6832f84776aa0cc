// Programs that use the file system: some change names, all in a few directories and with a few
// names, so that they meet; some write files, others read them. What they were told is kept, and
// looked at in the end (names_model.h) or at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lab/scenario/names_model.h"
#include "platform/base/gate.h"
#include "storage/client/file_system.h"

namespace ff::scenario::files_parts {

// What all programs know: the test's own memory, not theirs.
struct FilesTruth {
  std::function<int64_t()> now_ns;
  std::function<void(std::string)> broken;
  meta::Inode names_dir = {};  // where names change
  meta::Inode data_dir = {};   // where files are written
  meta::Inode log = {};        // that all append to

  std::vector<NameStep> steps;
  std::set<uint64_t> dirs;  // that somebody has seen in names_dir, and itself

  // A file whose content is known: so many bytes of its seed, the last of them perhaps zeros.
  struct Known {
    uint64_t inode = 0;
    uint64_t seed = 0;
    uint64_t written = 0;  // bytes of the seed
    uint64_t length = 0;   // of the file
  };
  std::map<std::string, Known> files;  // by name in data_dir
  std::set<std::string> busy;          // being changed: nobody reads it
  std::map<std::string, int> read;     // by so many

  // Records in the log that were acknowledged, and those of which nobody knows.
  std::map<uint64_t, uint64_t> logged;  // where
  std::set<uint64_t> perhaps_logged;
  uint64_t cleared_to = 0;  // up to here records may be gone
  uint64_t next_record = 1;
  uint64_t next_together = 1;  // files_load_writers.h
  uint64_t changes = 0;
  uint64_t reads = 0;
};
// Of the log: its number, again and again.
constexpr size_t kRecordBytes = 1000;
std::string record_bytes(uint64_t number);
std::string content_of(const FilesTruth::Known& file);

// Makes where programs work, below a new directory of the root (none: in the root itself).
Task<Result<void>> make_dirs(client::FileSystem& files, FilesTruth& truth, std::string below);
Task<Result<std::string>> read_log(client::FileSystem& files, const FilesTruth& truth);
// What nobody can have been told, or has been written, if all is well. Once all is quiet.
std::optional<std::string> contradiction(const FilesTruth& truth, const std::string& log);

class FilesLoad {
 public:
  // All outlive it.
  FilesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers,
            FilesTruth& truth);
  ~FilesLoad();
  void stop() { working_ = false; }
  bool works() const { return under_way_ > 0; }
  Task<void> close();
  client::FileSystem& files() { return files_; }

 private:
  Task<void> start();
  Task<void> change_names();
  Task<void> step();
  NameStep some_step();
  Task<Result<meta::Seen>> carry_out(const NameStep& step);
  Task<void> list(NameStep step);
  void note(NameStep step, const Result<meta::Seen>& seen);

  Task<void> work_on_files();
  Task<void> work_together();
  Task<void> make(std::string name);
  Task<Result<void>> write(std::string name, FilesTruth::Known& file);
  Task<void> cut(std::string name);
  Task<Result<void>> grow(client::File& open, FilesTruth::Known& file);
  Task<void> remove(std::string name);
  Task<void> read(std::string name);
  Task<void> append();
  Task<void> clear_log();
  bool check_failure(const Error& error);
  meta::Caller caller() const { return {}; }

  rpc::ClientContext& context_;
  Rng& rng_;
  FilesTruth& truth_;
  client::FileSystem files_;
  bool working_ = true;
  int under_way_ = 0;
  Gate gate_;
};

}  // namespace ff::scenario::files_parts
