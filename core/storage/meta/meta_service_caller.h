// For whom a call of the metadata service is carried out.
#pragma once

#include <optional>
#include <vector>

#include "platform/auth/token.h"
#include "storage/meta/meta_service.h"

namespace ff::meta {

struct MetaService::Acting {
  std::optional<auth::User> token;  // what the caller came with; nothing: he may act for anybody
  Caller caller;
  mutable std::vector<InodeId> walked = {};  // what paths of the request led to
};

}  // namespace ff::meta
