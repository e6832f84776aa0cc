// preface.cc: encoding and decoding of the preface, and the order of preference of transports.
#include "platform/net/preface.h"

#include <cstring>
#include <string_view>

#include "platform/base/check.h"
#include "platform/base/text.h"

namespace ff::net {

namespace {

constexpr size_t kPrefaceMagicAt = 0;
constexpr size_t kTransportsAt = 4;
constexpr size_t kPrefaceZeroAt = 6;
constexpr size_t kUidAt = 8;
constexpr size_t kNameAt = 12;

// The error for a peer that speaks another protocol.
Error unknown_protocol(std::string_view what, ByteView bytes) {
  const std::string begin = printable(as_text(bytes.first(kTransportsAt)));
  const auto is_record = [&](uint8_t type) {
    return bytes[0] == std::byte{type} && bytes[1] == std::byte{0x03};
  };
  const bool tls = is_record(0x16) || is_record(0x15);  // a handshake or an alert: RFC 8446, 5.1
  Error error =
      tls ? fail(Errc::refused, "the peer has a key, and this end has none")
          : fail(Errc::corrupt, "not a transport {} of ff: it begins with '{}'", what, begin);
  error.hint = tls ? "Give this end a key, too (--key)."
                   : "Check that this is the port of an ff daemon of this version.";
  return error;
}

}  // namespace

std::string transport_names(TransportKinds kinds) {
  std::string text;
  const auto add = [&](TransportKind kind, std::string_view name) {
    if (has(kinds, kind)) text.append(text.empty() ? "" : ", ").append(name);
  };
  add(TransportKind::stream, "TCP");
  add(TransportKind::plain, "TCP without encryption");
  add(TransportKind::shm, "shared memory");
  add(TransportKind::verbs, "RDMA");
  return text.empty() ? "nothing" : text;
}

TransportKind best_transport(TransportKinds client, TransportKinds server) {
  for (const TransportKind kind :
       {TransportKind::shm, TransportKind::verbs, TransportKind::plain, TransportKind::stream}) {
    if (has(client & server, kind)) return kind;
  }
  return TransportKind::none;
}

std::array<std::byte, kShardWordBytes> encode_shard_word(uint32_t shard) {
  std::array<std::byte, kShardWordBytes> bytes = {};
  store_le<uint32_t>(bytes.data(), kShardMagic);
  store_le<uint32_t>(bytes.data() + sizeof(uint32_t), shard);
  return bytes;
}

std::optional<uint32_t> parse_shard_word(ByteView bytes) {
  FF_CHECK(bytes.size() >= kShardWordBytes);
  if (load_le<uint32_t>(bytes.data()) != kShardMagic) return std::nullopt;
  return load_le<uint32_t>(bytes.data() + sizeof(uint32_t));
}

std::array<std::byte, kOfferBytes> encode_offer(const TransportOffer& offer) {
  std::array<std::byte, kOfferBytes> bytes = {};
  store_le<uint32_t>(bytes.data() + kPrefaceMagicAt, kOfferMagic);
  store_le<uint16_t>(bytes.data() + kTransportsAt, offer.kinds);
  store_le<uint32_t>(bytes.data() + kUidAt, offer.uid);
  return bytes;
}

Result<TransportOffer> parse_offer(ByteView bytes) {
  FF_CHECK(bytes.size() >= kOfferBytes);
  if (load_le<uint32_t>(bytes.data() + kPrefaceMagicAt) != kOfferMagic ||
      load_le<uint16_t>(bytes.data() + kPrefaceZeroAt) != 0) {
    return unknown_protocol("offer", bytes);
  }
  return TransportOffer{load_le<uint16_t>(bytes.data() + kTransportsAt),
                        load_le<uint32_t>(bytes.data() + kUidAt)};
}

std::array<std::byte, kChoiceBytes> encode_choice(const TransportChoice& choice) {
  std::array<std::byte, kChoiceBytes> bytes = {};
  store_le<uint32_t>(bytes.data() + kPrefaceMagicAt, kChoiceMagic);
  store_le<uint16_t>(bytes.data() + kTransportsAt, static_cast<uint16_t>(choice.kind));
  store_le<uint32_t>(bytes.data() + kUidAt, choice.uid);
  std::memcpy(bytes.data() + kNameAt, choice.name.data(), choice.name.size());
  return bytes;
}

Result<TransportChoice> parse_choice(ByteView bytes) {
  FF_CHECK(bytes.size() >= kChoiceBytes);
  if (load_le<uint32_t>(bytes.data() + kPrefaceMagicAt) != kChoiceMagic ||
      load_le<uint16_t>(bytes.data() + kPrefaceZeroAt) != 0) {
    return unknown_protocol("choice", bytes);
  }
  TransportChoice choice;
  const auto kind = load_le<uint16_t>(bytes.data() + kTransportsAt);
  switch (static_cast<TransportKind>(kind)) {
    case TransportKind::none:
    case TransportKind::stream:
    case TransportKind::shm:
    case TransportKind::verbs:
    case TransportKind::plain:
    case TransportKind::key: choice.kind = static_cast<TransportKind>(kind); break;
    default: return fail(Errc::corrupt, "unknown transport {}", kind);
  }
  choice.uid = load_le<uint32_t>(bytes.data() + kUidAt);
  std::copy_n(bytes.data() + kNameAt, choice.name.size(), choice.name.begin());
  return choice;
}

}  // namespace ff::net
