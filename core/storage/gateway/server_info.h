// The text of INFO: sections of "field:value" lines about a gateway, its clients and its store.
#pragma once

#include <string>
#include <string_view>

#include "storage/gateway/gateway.h"

namespace ff::gateway {

// The version of Redis whose commands these are: clients look at it to learn what a server can do.
constexpr std::string_view kRedisVersion = "7.0.15";

// "standalone", or "cluster" while other gateways serve some of the keys.
std::string_view server_mode(const Gateway& gateway);

// All sections, or the one with this name in small letters; empty: there is none.
std::string info_text(Gateway& gateway, std::string_view section);

}  // namespace ff::gateway
