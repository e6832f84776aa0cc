// Rings and memory of programs: what the links in 3fs-virt/iovs stand for. A link is made for a
// memory file, and is its owner's; when the program goes that has made it, so does the link.
//
// Rings take turns: each that has requests gets some of them done before the next, those of higher
// priority first. Programs wake the daemon by a datagram, when it has said that it sleeps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "storage/mount/ring_server.h"

namespace ff::mount {

class Rings final : public RingHost {
 public:
  // Maps a file where storage reaches it as well; it is given back when what it returns goes.
  using Adopt = std::function<Result<ForeignMemory>(const ForeignFile&)>;

  // All outlive it. `memory`: where data on its way to storage lies.
  Rings(Loop& loop, Operations& operations, chain::Memory& memory, Adopt adopt);
  ~Rings() override;

  // Where programs wake it. Without that there are no rings.
  Result<void> start();
  Task<void> close();

  // Whose a link is: a process, 0 for one that cannot be seen from here.
  struct Owner {
    uint32_t uid = 0;
    uint32_t process = 0;
  };
  struct Link {
    std::string target = {};
    Owner owner = {};
    uint64_t number = 0;  // never used again
    uint64_t dir = 0;     // the open directory that it goes with; 0: its process alone
    usrbio::Id id = {};
    ProgramMemoryRef memory = {};
    std::shared_ptr<RingServer> ring = {};
  };
  // Errors carry their errno.
  Result<const Link*> add(const std::string& name, const std::string& target, Owner owner);
  Result<void> remove(const std::string& name, uint32_t uid);
  // Those of the user; root's are all. Null: none of that name.
  const Link* find(const std::string& name, uint32_t uid) const;
  std::vector<std::pair<std::string, const Link*>> links(uint32_t uid) const;
  // A process has opened the directory of the links, and nobody has it open any more.
  void dir_opened(uint64_t dir, uint32_t process);
  void dir_closed(uint64_t dir);
  // Where programs wake it: what the links lead to that are nobody's. Empty: there are no rings.
  const std::string& bell() const { return bell_path_; }

  // RingHost.
  Loop& loop() override { return loop_; }
  Gate& gate() override { return gate_; }
  Operations& operations() override { return operations_; }
  chain::Memory& memory() override { return memory_; }
  ProgramMemoryRef find(const usrbio::Id& id, uint32_t uid) override;
  void ended() override { more_.set(); }

 private:
  using Links = std::map<std::string, Link>;
  Task<void> hear();
  Task<void> serve();
  Task<void> look_for_lost();
  bool scan();
  void drop(Links::iterator link);
  void drop_lost(Links::iterator link);

  Loop& loop_;
  Operations& operations_;
  chain::Memory& memory_;
  const Adopt adopt_;
  Links links_;
  std::map<usrbio::Id, ProgramMemoryRef> by_id_;
  std::vector<std::shared_ptr<RingServer>> rings_;  // in the order of their turns
  std::map<uint64_t, uint32_t> dirs_;               // open ones, and whose
  uint64_t last_number_ = 0;
  Fd bell_;
  std::string bell_path_;
  std::unique_ptr<FdWatch> bell_watch_;
  Event more_;
  Gate gate_;
};

}  // namespace ff::mount
