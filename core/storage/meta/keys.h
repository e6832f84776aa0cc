// The keys of the metadata in the KV store. Numbers are 64-bit big-endian, so that keys sort by
// number; values are messages of meta.proto.
//
//   INOD inode                  Inode       DENT directory name     Dentry
//   DIRV directory              Times, written by every change of the directory's entries: the
//   guard
//                               of its DENT range
//   XATR inode name             the value   guarded by INOD inode
//   SESS inode client number    Opened      a client has the file open for writing, or had it open
//                               when its last name was removed
//   GARB time inode             (empty)     inodes without a name, and since when
//   TREE inode                  (empty)     removed directories that are still to be emptied
//   CUTS inode                  (empty)     files with `truncating`
//   IDEM client slot            Answer      the reply to the last request of the client's slot
//   LOCK inode                  Lock        the owner of the advisory lock
//   DLEG lease                  DelegationLease
//   CLNT client                 Counter     incremented while the client is alive
//   RENM                        Counter     incremented by each move of a directory to another
//   parent ORPH inode                  Opened      when fsck first saw chunks of a missing file
//   USER uid                    User
//   CONF "inodes"               Counter     the first inode number that is not reserved
//
// Views alone read other ranges; they need no guard.
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
// The number at offset `at` of a key. The key must be long enough.
inline uint64_t number_at(std::string_view key, size_t at) {
  return __builtin_bswap64(load_le<uint64_t>(as_bytes(key.substr(at, 8)).data()));
}
// The range of all keys with this prefix and number.
inline kv::Range range_of(std::string_view prefix, uint64_t number, size_t limit) {
  const std::string begin = of(prefix, number);
  return {.begin = begin, .end = kv::end_of_prefix(begin), .limit = limit};
}

constexpr std::string_view kInode = "INOD";
constexpr std::string_view kDentry = "DENT";
constexpr std::string_view kTimes = "DIRV";
constexpr std::string_view kXattr = "XATR";
constexpr std::string_view kSession = "SESS";
constexpr std::string_view kGarbage = "GARB";
constexpr std::string_view kRemovedTree = "TREE";
constexpr std::string_view kTruncation = "CUTS";
constexpr std::string_view kReply = "IDEM";
constexpr std::string_view kClient = "CLNT";
constexpr std::string_view kOrphan = "ORPH";
constexpr std::string_view kLock = "LOCK";
constexpr std::string_view kLease = "DLEG";
constexpr std::string_view kUser = "USER";
constexpr std::string_view kRenameCounter = "RENM";
constexpr std::string_view kNextInode = "CONFinodes";
constexpr size_t kPrefixBytes = 4;  // bytes

inline std::string inode(InodeId id) { return of(kInode, id); }
inline std::string times(InodeId dir) { return of(kTimes, dir); }
inline std::string dentry(InodeId dir, std::string_view name) { return of(kDentry, dir, name); }
inline std::string session(InodeId id, const SessionId& session) {
  std::string key = of(kSession, id, session.client);
  append_be(key, session.number);
  return key;
}
// The name in a key made by dentry().
inline std::string_view name_of(std::string_view key) { return key.substr(kPrefixBytes + 8); }

}  // namespace ff::meta::keys
