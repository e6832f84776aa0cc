// The result of fsck: the problems it found, and counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/meta/inode.h"

namespace ff::meta {

struct FsckProblem {
  enum class Kind : uint8_t {
    dangling_name,  // its inode does not exist
    name_nowhere,   // its directory does not exist
    second_name,    // of a directory, which may have one only
    wrong_kind,     // the dentry and the inode differ
    wrong_links,    // the link count is wrong
    wrong_parent,   // the parent stored in a directory is wrong
    lost,           // unreachable, and not queued for collection
    not_collected,  // no name, and not queued for collection
    stray_record,   // its inode does not exist, or needs no such record
    missing_times,  // a directory without its DIRV record
    wrong_xattrs,   // the number of extended attributes is wrong
    orphan_chunks,  // their file does not exist
    unreadable,     // a record cannot be read; never repaired
  };
  Kind kind = Kind::lost;
  InodeId inode = 0;
  InodeId dir = 0;        // of a dentry
  std::string name = {};  // of a dentry; or the key of a record
  uint64_t expected = 0;  // the right number; of orphan chunks: their chain
  std::string text = {};  // description for operators
  bool repaired = false;
};
std::string_view name_of(FsckProblem::Kind kind);

struct FsckReport {
  uint64_t inodes = 0;
  uint64_t directories = 0;
  uint64_t names = 0;
  uint64_t garbage = 0;              // inodes queued for collection
  uint64_t sessions = 0;             // files open for writing
  uint64_t stored_files = 0;         // files with chunks, counted per chain
  uint64_t problems = 0;             // all; `reported` has at most kProblemsMax
  bool has_damaged_records = false;  // fsck has then checked nothing else
  std::vector<FsckProblem> reported = {};
};
constexpr size_t kProblemsMax = 1000;

}  // namespace ff::meta
