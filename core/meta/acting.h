// For whom a call of the metadata service is carried out.
#pragma once

#include <optional>

#include "meta/meta_service.h"
#include "net/token.h"

namespace ff::meta {

struct MetaService::Acting {
  std::optional<net::User> token;  // what the caller came with; nothing: he may act for anybody
  Caller caller;
};

}  // namespace ff::meta
