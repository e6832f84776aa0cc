// error_wire.cc: conversions between C++ types and protobuf messages.
#include "platform/rpc/error_wire.h"

#include "platform/base/text.h"

namespace ff::rpc {

namespace {

constexpr uint32_t kErrnos = 4096;  // as the kernel bounds them (MAX_ERRNO)

}  // namespace

void to_wire(const Error& error, wire::Error& out) {
  out.set_code(std::string(errc_name(error.code)));
  out.set_message(error.message);
  out.set_hint(error.hint);
  out.set_sys(static_cast<uint32_t>(error.sys));
}

Error from_wire(const wire::Error& error) {
  return {errc_from_name(error.code()).value_or(Errc::failed), printable(error.message()),
          printable(error.hint()), error.sys() < kErrnos ? static_cast<int>(error.sys()) : 0};
}

void to_wire(const net::RemoteBuffer& buffer, wire::Slice& out) {
  out.set_token(buffer.token);
  out.set_size(buffer.size);
  out.set_address(buffer.address);
  out.set_key(buffer.key);
}

net::RemoteBuffer from_wire(const wire::Slice& buffer) {
  return {buffer.token(), buffer.size(), buffer.address(), buffer.key()};
}

void to_wire(const auth::Revocations& revocations, wire::Revocations& out) {
  out.set_version(revocations.version);
  out.set_generation(revocations.generation);
  for (const auto& [entity, serial] : revocations.serials) {
    wire::Revoked& one = *out.add_revoked();
    one.set_entity(entity);
    one.set_serial(serial);
  }
}

auth::Revocations from_wire(const wire::Revocations& revocations) {
  auth::Revocations out{.version = revocations.version(), .generation = revocations.generation()};
  for (const wire::Revoked& one : revocations.revoked()) {
    out.serials[one.entity()] = one.serial();
  }
  return out;
}

}  // namespace ff::rpc
