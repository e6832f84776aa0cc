// The keys of the metadata in the KV store. Numbers are 64-bit big-endian, so that they sort as
// numbers; values are messages of meta.proto.
//
//   INOD inode                  Inode       DENT directory name     Dentry
//   DIRV directory              Times, put by every change of the directory's entries: the guard of
//                               its DENT range
//   XATR inode name             the value   guarded by INOD inode
//   SESS inode client number    Opened      a client has the file open for writing, or had it open
//                               when its last name went
//   GARB time inode             (empty)     inodes without a name, since when
//   TREE inode                  (empty)     directories without a name, and all that is below them
//   CUTS inode                  (empty)     files with `cutting`
//   IDEM client slot            Answer      what the client's last request of a slot did
//   LOCK inode                  Lock        the file is locked
//   CLNT client                 Counter     put now and then while the client lives
//   RENM                        Counter     moves of directories between parents
//   ORPH inode                  Opened      since when fsck knows of chunks of a file that is gone
//   USER uid                    User
//   CONF "inodes"               Counter     ids not given out yet
//
// Ranges beside those are read in views only, which need no guard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/bytes.h"
#include "platform/kv/engine.h"
#include "storage/meta/inode.h"

namespace ff::meta::keys {

inline std::string of(std::string_view prefix, uint64_t number) {
  std::string key(prefix);
  append_be(key, number);
  return key;
}
inline std::string of(std::string_view prefix, uint64_t number, std::string_view rest) {
  return of(prefix, number).append(rest);
}
inline std::string of(std::string_view prefix, uint64_t first, uint64_t second) {
  std::string key = of(prefix, first);
  append_be(key, second);
  return key;
}
// The number at `at` of a key, which is long enough.
inline uint64_t number_at(std::string_view key, size_t at) {
  return __builtin_bswap64(load_le<uint64_t>(as_bytes(key.substr(at, 8)).data()));
}
// All keys of a prefix and a number.
inline kv::Range all(std::string_view prefix, uint64_t number, size_t limit) {
  const std::string begin = of(prefix, number);
  return {.begin = begin, .end = kv::end_of_prefix(begin), .limit = limit};
}

constexpr std::string_view kInode = "INOD";
constexpr std::string_view kDentry = "DENT";
constexpr std::string_view kTimes = "DIRV";
constexpr std::string_view kXattr = "XATR";
constexpr std::string_view kSession = "SESS";
constexpr std::string_view kGarbage = "GARB";
constexpr std::string_view kTree = "TREE";
constexpr std::string_view kCut = "CUTS";
constexpr std::string_view kAnswer = "IDEM";
constexpr std::string_view kClient = "CLNT";
constexpr std::string_view kOrphan = "ORPH";
constexpr std::string_view kLock = "LOCK";
constexpr std::string_view kUser = "USER";
constexpr std::string_view kMoves = "RENM";
constexpr std::string_view kInodes = "CONFinodes";
constexpr size_t kPrefix = 4;  // bytes

inline std::string inode(InodeId id) { return of(kInode, id); }
inline std::string times(InodeId dir) { return of(kTimes, dir); }
inline std::string dentry(InodeId dir, std::string_view name) { return of(kDentry, dir, name); }
inline std::string session(InodeId id, const SessionId& session) {
  std::string key = of(kSession, id, session.client);
  append_be(key, session.number);
  return key;
}
// Of a key of dentry().
inline std::string_view name_of(std::string_view key) { return key.substr(kPrefix + 8); }

}  // namespace ff::meta::keys
