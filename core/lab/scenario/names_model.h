// A file system of names in memory, as simple as it can be, and the search for an order of what
// programs have done to the real one in which the simple one answers the same (Wing and Gong,
// "Testing and verifying concurrent objects", 1993): the real one is linearizable if there is one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ff::scenario::files_parts {

// One operation of a program, and what it was told.
struct NameStep {
  enum class Kind : uint8_t {
    make_file,
    make_dir,
    link,  // of `inode`
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
  int64_t ended_ns = INT64_MAX;      // still under way, or nobody knows what came of it
  int sys = 0;                       // the errno
  uint64_t got = 0;                  // the inode
  uint32_t links = 0;                // of it, if it is a file
  std::set<std::string> names = {};  // list

  bool known() const { return ended_ns != INT64_MAX; }
  std::string text() const;
};

class NamesModel {
 public:
  explicit NamesModel(uint64_t root) { inodes_[root] = {.directory = true}; }

  // Does the step. Whether that is what was told; of one that nobody knows, always.
  bool apply(const NameStep& step, size_t number);
  uint64_t hash() const;

 private:
  struct Inode {
    bool directory = false;
    uint32_t links = 0;   // names
    uint64_t parent = 0;  // of a directory
  };
  struct Told {
    int sys = 0;
    uint64_t got = 0;
  };
  using Name = std::pair<uint64_t, std::string>;

  Told run(const NameStep& step, size_t number);
  Told make(const NameStep& step, size_t number);
  Told link(const NameStep& step);
  Told remove(const NameStep& step);
  Told rename(const NameStep& step);
  int check_rename(const NameStep& step, uint64_t source, std::optional<uint64_t> there) const;
  void drop(uint64_t inode);
  bool is_dir(uint64_t inode) const;
  bool is_empty(uint64_t dir) const;
  bool is_above(uint64_t inode, uint64_t dir) const;
  std::optional<uint64_t> find(const Name& name) const;
  bool matches(const NameStep& step, Told told);
  void call_it(uint64_t inode, uint64_t real);
  std::set<std::string> names_in(uint64_t dir) const;

  std::map<uint64_t, Inode> inodes_;
  std::map<Name, uint64_t> names_;
};

// Nothing when there is such an order; else the first step that no order explains.
std::optional<std::string> find_contradiction(const std::vector<NameStep>& steps, uint64_t root);

}  // namespace ff::scenario::files_parts
