// A load generator that holds directory delegations and records what it saw of each name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/name_history.h"
#include "platform/base/gate.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/client/delegating_meta_client.h"

namespace ff::scenario::delegation_parts {

// Shared by all programs of the test.
struct DelegationsOracle {
  using Name = std::pair<meta::InodeId, std::string>;  // directory and name
  std::function<void(std::string)> report_violation;
  std::function<int64_t()> now_ns;
  std::vector<meta::InodeId> dirs;
  std::map<Name, NameHistory> names;
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
  size_t pending_changes() const { return names_->pending_changes(); }
  // The load ends with a last successful sync.
  void stop() { working_ = false; }
  bool ended() const { return ended_; }

 private:
  using Name = DelegationsOracle::Name;
  using Answer = Result<meta::InodeView>;

  enum class Kind : uint8_t { create, create_dir, remove, rename, lookup };
  // A request of the kernel.
  struct Request {
    Kind kind = Kind::lookup;
    Name name = {};
    Name to = {};
  };
  void start();
  Task<void> work();
  Task<bool> restore();
  Request some_request();
  Task<void> call(Request request);
  Task<void> create(Name name, bool dir);
  Task<void> remove(Name name);
  Task<void> rename(Name from, Name to);
  Task<void> lookup(Name name);
  Task<void> travel();
  Task<bool> sync();
  Name some_name();
  void begin(Name name);
  void end(const Name& name, NameHistory::Call call);
  void end_failed(const std::vector<Name>& names, const Error& error, NameHistory::Call call);
  void note_change(const Name& name);
  void on_lost(const Error& error);
  void lose_unsynced();
  int64_t now_ns() const { return oracle_.now_ns(); }
  meta::Caller caller() const;

  rpc::ClientContext& context_;
  const std::vector<net::Address> servers_;
  Rng& rng_;
  const size_t program_;
  DelegationsOracle& oracle_;
  std::unique_ptr<chunk::AlignedBuffer> memory_;  // outlives the process
  std::unique_ptr<client::RecoveryTable> table_;
  std::unique_ptr<client::DelegatingMetaClient> names_;
  std::optional<Request> request_;         // without an answer
  uint64_t origin_ = 0;                    // its number
  std::map<Name, meta::InodeType> kinds_;  // as last seen
  std::map<Name, int64_t> unsynced_;       // since when a change of the name may be lost
  std::vector<Name> under_way_;
  int64_t begin_ns_ = 0;
  bool working_ = true;
  bool ended_ = false;
  std::unique_ptr<Gate> gate_;
};

}  // namespace ff::scenario::delegation_parts
