// What a look at all metadata has found: problems one by one, and counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/meta/inode.h"

namespace ff::meta {

struct Problem {
  enum class Kind : uint8_t {
    dangling_name,  // of an inode that is not there
    name_nowhere,   // in a directory that is not there
    second_name,    // of a directory
    wrong_kind,     // the name says another than the inode
    wrong_links,    // a link count
    wrong_parent,   // of a directory
    lost,           // neither reached by a name nor to be collected
    not_collected,  // has no name, and nothing says that it is to be collected
    stray_record,   // belongs to an inode that is not there, or needs none
    missing_times,  // of a directory
    wrong_xattrs,   // their number
    orphan_chunks,  // of a file that is not there
    unreadable,     // a record that cannot be read; not repaired
  };
  Kind kind = Kind::lost;
  InodeId inode = 0;
  InodeId dir = 0;        // of a name
  std::string name = {};  // the same; of a record: its key
  uint64_t wanted = 0;    // the right number; the chain of chunks
  std::string text = {};  // for people
  bool repaired = false;
};
std::string_view name_of(Problem::Kind kind);

struct FsckReport {
  uint64_t inodes = 0;
  uint64_t directories = 0;
  uint64_t names = 0;
  uint64_t garbage = 0;   // inodes that wait to be collected
  uint64_t sessions = 0;  // files open for writing
  uint64_t stored = 0;    // files with chunks, counted on each chain
  uint64_t problems = 0;  // all; at most kProblemsMax are told one by one
  bool damaged = false;   // records are; nothing else was looked at
  std::vector<Problem> told = {};
};
constexpr size_t kProblemsMax = 1000;

}  // namespace ff::meta
