// The rings and memory of programs, as the links in 3fs-virt/iovs register them. A link names a
// memory file and belongs to the user who made it; it is removed when its process ends.
//
// Rings are served round-robin, those of higher priority first. A program wakes the daemon with a
// datagram if the ring says that the daemon sleeps.
//
// The keeper of the mount has the memory files, the wake socket and the journal of rings, so a
// successor of this process continues all of it (ring_registry_restore.cc): programs notice nothing
// but a pause.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "storage/mount/descriptor_store.h"
#include "storage/mount/ring_server.h"

namespace ff::mount {

class RingRegistry final : public RingContext {
 public:
  // Maps a memory file and registers it with the transport; destroying the result undoes both.
  using RegisterMemory = std::function<Result<ClientMemory>(const ClientMemoryFile&)>;

  // All outlive it. `memory`: for data on its way to storage. `store`: for a successor; null: the
  // rings end with this process.
  RingRegistry(Loop& loop, Operations& operations, chain::BufferPool& memory,
               RegisterMemory register_memory, DescriptorStore* store);
  ~RingRegistry() override;

  // Creates the wake socket, or takes that of the predecessor, and its open directories. If it
  // fails, there are no rings.
  Result<void> start();
  // Continues the memory and the rings of the predecessor. Call it when Operations has restored the
  // open files. Repeats requests when storage nodes of this host no longer write to the memory for
  // the predecessor, at the latest after kFormerReadsNs: so a program gets a completion after the
  // last write to the memory of the request.
  static constexpr int64_t kFormerReadsNs = 60 * kSecond;
  void restore();
  // Takes no more requests from rings: another process will.
  void pause() { paused_ = true; }
  // No request is under way.
  bool idle() const;
  Task<void> close();

  // The owner of a link. Process 0: in another PID namespace.
  struct Owner {
    uint32_t uid = 0;
    uint32_t process = 0;
  };
  struct Link {
    std::string target = {};
    Owner owner = {};
    uint64_t number = 0;  // unique, also among those of a process that served the mount before
    uint64_t dir = 0;     // the open directory it is bound to; 0: bound to the process only
    usrbio::IovId id = {};
    RegisteredMemoryRef memory = {};
    std::shared_ptr<RingServer> ring = {};
  };
  // Errors carry the errno.
  Result<const Link*> add(const std::string& name, const std::string& target, Owner owner);
  Result<void> remove(const std::string& name, uint32_t uid);
  // The links of the user; root gets all. Null: no such link.
  const Link* find(const std::string& name, uint32_t uid) const;
  std::vector<std::pair<std::string, const Link*>> links(uint32_t uid) const;
  // A process opened the directory of links, or closed its last descriptor of it. `origin`: of the
  // request (meta::Caller::origin).
  void dir_opened(uint64_t dir, uint32_t process, uint64_t origin);
  void dir_closed(uint64_t dir);
  // The directory that the predecessor opened for this request. Nothing: it has not.
  std::optional<uint64_t> dir_of_origin(uint64_t origin) const;
  // The path of the wake socket, the target of the wake links. Empty: there are no rings.
  const std::string& wake_path() const { return wake_path_; }
  // The first of kWakeLinks numbers, unique like those of the other links.
  uint64_t wake_number() const { return wake_number_; }

  // RingContext.
  Loop& loop() override { return loop_; }
  Gate& gate() override { return gate_; }
  Operations& operations() override { return operations_; }
  chain::BufferPool& memory() override { return memory_; }
  RingJournal& journal() override { return *journal_; }
  RegisteredMemoryRef find(const usrbio::IovId& id, uint32_t uid) override;
  void on_batch_done() override { work_.set(); }

 private:
  using Links = std::map<std::string, Link>;
  struct OpenDir {
    uint32_t process = 0;
    uint64_t origin = 0;
    client::RecoveryTable::Record record = {};
  };
  Result<void> open_journal();
  Result<void> open_wake_socket();
  Result<void> make_wake_socket();
  Result<void> adopt_wake_socket(std::string_view name, Fd socket);
  void restore_dirs();
  Result<void> restore_link(const std::string& stored, Fd fd);
  Result<const Link*> insert(const std::string& name, const usrbio::IovLinkName& parsed, Link link,
                             ClientMemoryFile file);
  void leave(const std::string& stored, int fd);
  static std::string stored_name(const std::string& name, const Link& link);
  Task<void> receive_wakeups();
  Task<void> serve();
  Task<void> check_lost_owners();
  Task<void> allow_repeats();
  bool serve_turn();
  void remove_link(Links::iterator link);
  void drop_abandoned(Links::iterator link);

  Loop& loop_;
  Operations& operations_;
  chain::BufferPool& memory_;
  const RegisterMemory register_memory_;
  DescriptorStore* const store_;
  std::unique_ptr<RingJournal> journal_;
  Links links_;
  std::map<usrbio::IovId, RegisteredMemoryRef> by_id_;
  std::vector<std::shared_ptr<RingServer>> rings_;  // in round-robin order
  std::map<uint64_t, OpenDir> dirs_;                // open directories of links
  uint64_t last_number_ = 0;
  Fd wake_socket_;
  std::string wake_path_;
  uint64_t wake_number_ = 0;
  std::unique_ptr<FdWatch> wake_watch_;
  bool paused_ = false;
  bool repeats_wait_ = false;  // for reads that storage nodes began for the predecessor
  Event work_;
  Gate gate_;
};

}  // namespace ff::mount
