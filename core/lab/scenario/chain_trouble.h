// What befalls the processes of the story of chain/ and the links between them. Each trouble lasts
// for a time of its own, from less than anybody notices to longer than anybody is waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/chain_parts.h"

namespace ff::scenario::chain_parts {

class Trouble {
 public:
  using Managers = std::vector<std::unique_ptr<ManagerProcess>>;
  using Nodes = std::vector<std::unique_ptr<StorageProcess>>;
  using Programs = std::vector<Program*>;
  // All outlive it.
  Trouble(ClusterStage& stage, Managers& managers, Nodes& nodes, Programs& programs)
      : stage_(stage), managers_(managers), nodes_(nodes), programs_(programs) {}

  // What the managers say. With it, nodes that nobody counts on lose block files now and then.
  void know_routing(std::function<const cluster::Routing&()> routing) {
    routing_ = std::move(routing);
  }
  // One more.
  void begin();
  // Nothing passes between the program and any storage node.
  void cut_off(const Program& program, int64_t for_ns);
  // Between two of the nodes nothing passes, in one direction or both, and everywhere else all
  // does.
  void cut_two(int64_t for_ns);
  void end_all() { end_those_of(INT64_MAX); }
  // Ends those whose time is over.
  void look();
  // Ends all, and starts every node anew: a store whose disk has failed takes no more changes.
  void heal();

 private:
  using Link = std::pair<std::string, std::string>;  // from, to
  int64_t some_time_ns();
  void until(int64_t for_ns, std::function<void()> end);
  void end_those_of(int64_t now_ns);
  std::vector<std::string> names() const;
  static bool same_machine(const std::string& a, const std::string& b);
  void block(const std::string& from, const std::string& to, int64_t for_ns);
  void unblock(const Link& link);
  void trouble_manager(ManagerProcess& manager);
  void trouble_node(StorageProcess& node);
  void trouble_links();
  void split();
  void slow_links();
  void lose_all_power();
  static void start(StorageProcess& node);
  void start_again(StorageProcess& node);

  ClusterStage& stage_;
  Managers& managers_;
  Nodes& nodes_;
  Programs& programs_;
  std::function<const cluster::Routing&()> routing_;
  std::map<Link, int> blocked_;  // how many troubles hold it
  std::multimap<int64_t, std::function<void()>> ends_;
};

}  // namespace ff::scenario::chain_parts
