// serve_kv_exposure.cc: clients prove who they are with tokens or signatures, and anybody could
// read what they send.
#include "cmd/serve_kv_exposure.h"

#include "platform/rpc/server.h"

namespace ff::cmd {

Result<void> check_exposure(const net::Address& address, const GatewayExposure& exposure) {
  if (rpc::is_local(address)) return {};
  if (!exposure.has_keys) {
    Error error = fail(Errc::refused, "{}: other machines could connect, but there is no key",
                       address.text());
    error.hint = "Give the key of the cluster with --key, or listen on 127.0.0.1.";
    return error;
  }
  if (exposure.encrypted) return {};
  Error error = fail(Errc::refused, "{}: clients would send {} without encryption", address.text(),
                     exposure.sent);
  error.hint = exposure.hint;
  return error;
}

Result<std::shared_ptr<const net::TlsContext>> gateway_certificate(
    io::Disk& disk, const std::optional<std::string>& cert, const std::optional<std::string>& key) {
  if (!cert) return std::shared_ptr<const net::TlsContext>();
  return net::TlsContext::make(disk, {.cert = *cert, .key = *key, .ca = {}});
}

}  // namespace ff::cmd
