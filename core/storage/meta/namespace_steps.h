// The changes of namespace.h inside a transaction: for a transaction with one change, or for a
// batch of them (namespace_delegations.cc). References must stay valid until the returned task has
// ended.
//
// The functions that are no tasks compute attributes only (namespace_rules.cc): a client that holds
// a delegation uses them, too, so that it answers as the server will.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "platform/kv/engine.h"
#include "storage/meta/namespace.h"

namespace ff::meta {

// Attributes of a new inode from the caller and the directory; a file still needs its layout.
Inode new_inode(const Caller& caller, const Inode& dir, const Namespace::CreateOptions& create,
                InodeId id, int64_t now_ns);
// The layout that a new file is to have, before a table version and a seed are chosen.
Layout wanted_layout(const Inode& dir, const Namespace::CreateOptions& create);
// Errc::usage or refused: the kind of inode, its target or the caller do not permit it.
Result<void> check_create(const Caller& caller, const std::string& name,
                          const Namespace::CreateOptions& create);
Result<void> check_open(const Caller& caller, const Inode& inode, uint32_t rights,
                        const std::string& what);
// Changes `inode`; an error leaves it as it was or with a part of the changes.
Result<void> change_attributes(const Caller& caller, Inode& inode, Namespace::Attributes to,
                               int64_t now_ns);
void take_length(Inode& inode, const Namespace::LengthReport& report, int64_t now_ns);

struct NewInode {
  InodeId id = 0;
  uint64_t delegate = 0;  // the lease to which a new directory is delegated; 0: none
  // Completes the wanted layout of a file.
  std::function<Result<Layout>(Layout wanted)> layout = {};
};
Task<Result<Inode>> create_step(kv::Txn& txn, const Caller& caller, InodeId dir,
                                const std::string& name, const Namespace::CreateOptions& create,
                                const NewInode& inode, int64_t now_ns);
Task<Result<Inode>> link_step(kv::Txn& txn, const Caller& caller, InodeId id, InodeId dir,
                              const std::string& name, int64_t now_ns);
Task<Result<Inode>> unlink_step(kv::Txn& txn, const Caller& caller, InodeId dir,
                                const std::string& name, std::optional<SessionId> holder,
                                int64_t now_ns);
Task<Result<Inode>> rmdir_step(kv::Txn& txn, const Caller& caller, InodeId dir,
                               const std::string& name, int64_t now_ns);
// Refused: it moves a directory to another one.
Task<Result<Inode>> rename_step(kv::Txn& txn, const Caller& caller, const Namespace::Rename& rename,
                                int64_t now_ns);
Namespace::Attributes attributes_of(const wire::SetAttributesRequest& request);
Task<Result<Inode>> set_attributes_step(kv::Txn& txn, const Caller& caller, InodeId id,
                                        const Namespace::Attributes& to, int64_t now_ns);
// An inode with number 0: the file is gone, and the session with it.
Task<Result<Inode>> report_length_step(kv::Txn& txn, InodeId id, SessionId session,
                                       const Namespace::LengthReport& report, int64_t now_ns);

}  // namespace ff::meta
