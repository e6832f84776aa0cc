// A sequential model of the namespace, and the search for an order of the recorded operations in
// which the model gives the same answers (Wing and Gong, "Testing and verifying concurrent
// objects", 1993). The real namespace is linearizable if such an order exists.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ff::scenario::files_parts {

// One operation of a program and its answer.
struct NameStep {
  enum class Kind : uint8_t {
    make_file,
    make_dir,
    link,  // to `inode`
    unlink,
    rmdir,
    rename,
    exchange,
    lookup,
    list,
  };
  Kind kind = Kind::lookup;
  uint64_t dir = 0;
  std::string name = {};
  uint64_t to_dir = 0;
  std::string to_name = {};
  uint64_t inode = 0;
  bool no_replace = false;

  int64_t began_ns = 0;
  int64_t ended_ns = INT64_MAX;      // INT64_MAX: still running, or the result is unknown
  int sys = 0;                       // errno
  uint64_t got = 0;                  // inode
  uint32_t links = 0;                // link count, of files
  std::set<std::string> names = {};  // list

  bool known() const { return ended_ns != INT64_MAX; }
  std::string text() const;
};

class NamesModel {
 public:
  explicit NamesModel(uint64_t root) { inodes_[root] = {.directory = true}; }

  // Executes the step; returns whether the answer matches. Steps with unknown result always match.
  bool apply(const NameStep& step, size_t number);
  uint64_t hash() const;

 private:
  struct Inode {
    bool directory = false;
    uint32_t links = 0;   // names
    uint64_t parent = 0;  // directories only
  };
  struct Answer {
    int sys = 0;
    uint64_t got = 0;
  };
  using Name = std::pair<uint64_t, std::string>;

  Answer run(const NameStep& step, size_t number);
  Answer make(const NameStep& step, size_t number);
  Answer link(const NameStep& step);
  Answer remove(const NameStep& step);
  Answer rename(const NameStep& step);
  int check_rename(const NameStep& step, uint64_t source, std::optional<uint64_t> there) const;
  void drop(uint64_t inode);
  bool is_dir(uint64_t inode) const;
  bool is_empty(uint64_t dir) const;
  bool is_above(uint64_t inode, uint64_t dir) const;
  std::optional<uint64_t> find(const Name& name) const;
  bool matches(const NameStep& step, Answer answer);
  void bind_inode(uint64_t inode, uint64_t real);
  std::set<std::string> names_in(uint64_t dir) const;

  std::map<uint64_t, Inode> inodes_;
  std::map<Name, uint64_t> names_;
};

// Empty if such an order exists; else a description of the first step that no order explains.
std::optional<std::string> find_contradiction(const std::vector<NameStep>& steps, uint64_t root);

}  // namespace ff::scenario::files_parts
