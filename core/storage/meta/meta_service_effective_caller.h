// The user with whose rights the metadata service carries out a call.
#pragma once

#include <optional>
#include <vector>

#include "platform/auth/entity.h"
#include "storage/meta/meta_service.h"

namespace ff::meta {

struct MetaService::EffectiveCaller {
  // The peer, if its key restricts it: it must prove how it reached an inode, and gets
  // capabilities.
  std::optional<auth::Entity> holder;
  Caller caller;
  mutable std::vector<InodeId> walked = {};  // inodes that the paths in the request resolved to
};

}  // namespace ff::meta
