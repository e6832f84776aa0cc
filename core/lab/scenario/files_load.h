// A load generator for the file system: some tasks change names, in few directories and with few
// names, so that they conflict; others write and read files. The results are checked at once, or
// recorded and checked at the end (names_model.h).
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

// The expected state, shared by all programs of the test.
struct FilesOracle {
  std::function<int64_t()> now_ns;
  std::function<void(std::string)> report_violation;
  meta::Inode names_dir = {};  // directory for name changes
  meta::Inode data_dir = {};   // directory of written files
  meta::Inode log = {};        // file that all programs append to

  std::vector<NameStep> steps;
  std::set<uint64_t> dirs;  // names_dir and all directories observed below it

  // A file with known content: `written` bytes generated from the seed, then zeros.
  struct KnownFile {
    uint64_t inode = 0;
    uint64_t seed = 0;
    uint64_t written = 0;  // bytes generated from the seed
    uint64_t length = 0;   // length of the file
  };
  std::map<std::string, KnownFile> files;  // by name in data_dir
  std::set<std::string> busy;              // files being changed; not read meanwhile
  std::map<std::string, int> read;         // number of readers

  // Acknowledged records in the log, and appends with unknown result.
  std::map<uint64_t, uint64_t> logged;  // number -> offset
  std::set<uint64_t> perhaps_logged;
  uint64_t cleared_to = 0;  // records before this offset may be gone
  uint64_t next_record = 1;
  uint64_t next_together = 1;  // files_load_writers.h
  uint64_t changes = 0;
  uint64_t reads = 0;
};
// A record of the log repeats its number.
constexpr size_t kRecordBytes = 1000;
std::string record_bytes(uint64_t number);
std::string content_of(const FilesOracle::KnownFile& file);

// Creates the directories for the programs, in a new directory `below` of the root (empty: in the
// root itself).
Task<Result<void>> make_dirs(client::FileSystem& files, FilesOracle& oracle, std::string below);
Task<Result<std::string>> read_log(client::FileSystem& files, const FilesOracle& oracle);
// The first contradiction between the results and the file system; empty: none. Call it when all
// programs are idle.
std::optional<std::string> contradiction(const FilesOracle& oracle, const std::string& log);

class FilesLoad {
 public:
  // All arguments must outlive it.
  FilesLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers,
            FilesOracle& oracle);
  ~FilesLoad();
  void stop() { working_ = false; }
  bool busy() const { return in_flight_ > 0; }
  Task<void> close();
  client::FileSystem& files() { return files_; }

 private:
  Task<void> start();
  Task<void> change_names();
  Task<void> step();
  NameStep random_step();
  Task<Result<meta::InodeView>> execute(const NameStep& step);
  Task<void> list(NameStep step);
  void record(NameStep step, const Result<meta::InodeView>& seen);

  Task<void> work_on_files();
  Task<void> work_together();
  Task<void> make(std::string name);
  Task<Result<void>> write(std::string name, FilesOracle::KnownFile& file);
  Task<void> cut(std::string name);
  Task<Result<void>> grow(client::File& open, FilesOracle::KnownFile& file);
  Task<void> remove(std::string name);
  Task<void> read(std::string name);
  Task<void> append();
  Task<void> clear_log();
  bool check_failure(const Error& error);
  meta::Caller caller() const { return {}; }

  rpc::ClientContext& context_;
  Rng& rng_;
  FilesOracle& oracle_;
  client::FileSystem files_;
  bool working_ = true;
  int in_flight_ = 0;
  Gate gate_;
};

}  // namespace ff::scenario::files_parts
