// What the gateways of `ff serve-kv` check before they listen on an address that other machines
// reach, and the certificate that makes it safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "platform/net/address.h"
#include "platform/net/tls.h"

namespace ff::cmd {

struct GatewayExposure {
  bool has_keys = false;   // clients must prove who they are
  bool encrypted = false;  // TLS, or nobody can read the network
  std::string sent;        // what clients would send: "their tokens"
  std::string hint;        // how to get TLS
};
// Errc::refused: other machines could connect without a key, or without encryption.
Result<void> check_exposure(const net::Address& address, const GatewayExposure& exposure);

// Null without `cert`. Both files are PEM; clients need no certificate.
Result<std::shared_ptr<const net::TlsContext>> gateway_certificate(
    io::Disk& disk, const std::optional<std::string>& cert, const std::optional<std::string>& key);

}  // namespace ff::cmd
