// error_wire.cc: conversions between the program's types and the messages.
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

void to_wire(const net::Slice& slice, wire::Slice& out) {
  out.set_token(slice.token);
  out.set_size(slice.size);
  out.set_address(slice.address);
  out.set_key(slice.key);
}

net::Slice from_wire(const wire::Slice& slice) {
  return {slice.token(), slice.size(), slice.address(), slice.key()};
}

}  // namespace ff::rpc
