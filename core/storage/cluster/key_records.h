// The keys of entities that operators have made, and the ones that servers refuse, as managers
// store and send them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/auth/revocations.h"

namespace ff::cluster {

struct IssuedKey {
  auth::Entity entity;
  std::string by = {};  // the operator
};

struct KeyRecords {
  auth::Revocations revocations = {};
  int64_t rotated_us = 0;              // since 1970
  std::vector<IssuedKey> issued = {};  // without the revoked ones
};

}  // namespace ff::cluster
