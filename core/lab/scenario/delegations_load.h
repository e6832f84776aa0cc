// A load generator that holds directory delegations and records what it saw of each name, and of
// the small files that programs write there. It calls the client as a mount does: one request of
// the kernel at a time, which a successor of the process gets again if it was not answered.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/name_history.h"
#include "lab/scenario/small_files.h"
#include "platform/base/gate.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/client/file_system.h"

namespace ff::scenario::delegation_parts {

// Shared by all programs of the test.
struct DelegationsOracle {
  using Name = std::pair<meta::InodeId, std::string>;  // directory and name
  std::function<void(std::string)> report_violation;
  std::function<int64_t()> now_ns;
  std::vector<meta::InodeId> dirs;
  // Of each program: directories that no other program uses; their files have different layouts.
  std::vector<std::array<meta::InodeId, 2>> own_dirs;
  std::map<Name, NameHistory> names;
  SmallFiles files;
  uint64_t calls = 0;
  uint64_t losses = 0;
  uint64_t held = 0;  // calls that began while the program held a delegation
};

class DelegationsLoad {
 public:
  // All arguments must outlive it.
  DelegationsLoad(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                  size_t program, DelegationsOracle& oracle);

  // The process dies, and another one starts. `keeper`: it continues from the recovery table, and
  // nothing is lost.
  void kill(bool keeper);
  // Answered changes that no server has applied.
  size_t pending_changes() const { return files_->pending_changes(); }
  // Closed files whose bytes wait for room in storage.
  size_t waiting_files() const { return files_->waiting_files(); }
  // Successful calls of fsync(2).
  uint64_t syncs() const { return syncs_; }
  // The load ends with a last successful sync.
  void stop() { working_ = false; }
  bool ended() const { return ended_; }

 private:
  using Name = DelegationsOracle::Name;
  using Answer = Result<meta::InodeView>;

  enum class Kind : uint8_t { create, write, create_dir, remove, rename, lookup, sync };
  // Of a file: which request of the kernel comes next.
  enum class Step : uint8_t { create, write, close, release };
  // What a program does: requests of the kernel.
  struct Request {
    Kind kind = Kind::lookup;
    Name name = {};
    Name to = {};
    uint64_t size = 0;  // bytes to write
    Step step = Step::create;
    meta::InodeId inode = 0;  // that was created
    int64_t created_ns = 0;
  };
  void start();
  Task<void> work();
  Task<void> work_beside();
  Task<void> call_beside();
  Task<bool> restore();
  Request some_request();
  Task<void> call(Request request);
  void next_origin();
  Task<void> create_dir(Name name);
  Task<void> create(Name name);
  Task<void> write_file();
  Task<bool> create_file(Request& request);
  Task<void> read(meta::InodeId inode, int64_t began_ns);
  Task<void> sync_file(Name name);
  Task<void> remove(Name name);
  Task<void> rename(Name from, Name to);
  Task<std::optional<meta::Inode>> lookup(Name name);
  Task<void> travel();
  Task<bool> sync();
  Name some_name();
  void begin(Name name);
  void end(const Name& name, NameHistory::Call call);
  void end_failed(const std::vector<Name>& names, const Error& error, NameHistory::Call call);
  void note_change(const Name& name);
  void on_lost(meta::InodeId inode, const Error& error);
  void check_lost_lease();
  void end_sync(const std::map<Name, int64_t>& before, uint64_t losses);
  void lose_unsynced();
  meta::MetaClient& names() { return files_->metadata(); }
  int64_t now_ns() const { return oracle_.now_ns(); }
  meta::Caller caller() const;

  rpc::ClientContext& context_;
  const std::vector<net::Address> servers_;
  Rng& rng_;
  const size_t program_;
  DelegationsOracle& oracle_;
  // What outlives the process.
  struct Memory {
    chunk::AlignedBuffer records, data;
    static std::unique_ptr<Memory> make();
  };
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<client::RecoveryTable> table_;
  std::unique_ptr<client::FileSystem> files_;
  std::shared_ptr<client::File> file_;     // that is being written
  client::ErrorSeq::Cursor cursor_;        // of it
  std::optional<Request> request_;         // without an answer
  uint64_t origin_ = 1;                    // its number
  std::map<Name, meta::InodeType> kinds_;  // as last seen
  std::map<Name, int64_t> unsynced_;       // since when a change of the name may be lost
  std::vector<Name> under_way_;
  int64_t begin_ns_ = 0;
  int64_t idle_ns_ = 0;                  // when it last had no change that no server has applied
  int64_t answered_ns_ = INT64_MIN / 2;  // when it last answered a call by itself
  uint64_t syncs_ = 0;
  // Calls of other processes: under way, and all.
  size_t beside_ = 0;
  uint64_t all_beside_ = 0;
  std::optional<Name> written_;  // by the last request
  bool working_ = true;
  bool ended_ = false;
  std::unique_ptr<Gate> gate_;
};

}  // namespace ff::scenario::delegation_parts
