// preface.cc: the bytes of preface.h, and the order in which ways are preferred.
#include "platform/net/preface.h"

#include <algorithm>
#include <string_view>

#include "platform/base/check.h"
#include "platform/base/text.h"

namespace ff::net {

namespace {

constexpr size_t kPrefaceMagicAt = 0;
constexpr size_t kWaysAt = 4;
constexpr size_t kPrefaceZeroAt = 6;
constexpr size_t kNameAt = 8;

// What a program that speaks something else says first.
Error stranger(std::string_view what, ByteView bytes) {
  const std::string begin = printable(as_text(bytes.first(kWaysAt)));
  Error error = fail(Errc::corrupt, "not ff's {}: it begins with '{}'", what, begin);
  const bool tls = bytes[0] == std::byte{0x16} && bytes[1] == std::byte{0x03};
  error.hint = tls ? "The peer speaks TLS: give both ends net.tls-cert, net.tls-key and net.tls-ca."
                   : "Is this the port of an ff daemon, and TLS wanted on both ends or neither?";
  return error;
}

}  // namespace

std::string ways_text(Ways ways) {
  std::string text;
  const auto add = [&](Way way, std::string_view name) {
    if (has(ways, way)) text.append(text.empty() ? "" : ", ").append(name);
  };
  add(Way::stream, "TCP");
  add(Way::shm, "shared memory");
  add(Way::verbs, "RDMA");
  return text.empty() ? "nothing" : text;
}

Way best_way(Ways client, Ways server) {
  for (const Way way : {Way::shm, Way::verbs, Way::stream}) {
    if (has(client & server, way)) return way;
  }
  return Way::none;
}

std::array<std::byte, kOfferBytes> encode_offer(const Offer& offer) {
  std::array<std::byte, kOfferBytes> bytes = {};
  store_le<uint32_t>(bytes.data() + kPrefaceMagicAt, kOfferMagic);
  store_le<uint16_t>(bytes.data() + kWaysAt, offer.ways);
  return bytes;
}

Result<Offer> parse_offer(ByteView bytes) {
  FF_CHECK(bytes.size() >= kOfferBytes);
  if (load_le<uint32_t>(bytes.data() + kPrefaceMagicAt) != kOfferMagic ||
      load_le<uint16_t>(bytes.data() + kPrefaceZeroAt) != 0) {
    return stranger("offer", bytes);
  }
  return Offer{load_le<uint16_t>(bytes.data() + kWaysAt)};
}

std::array<std::byte, kChoiceBytes> encode_choice(const Choice& choice) {
  std::array<std::byte, kChoiceBytes> bytes = {};
  store_le<uint32_t>(bytes.data() + kPrefaceMagicAt, kChoiceMagic);
  store_le<uint16_t>(bytes.data() + kWaysAt, static_cast<uint16_t>(choice.way));
  std::ranges::copy(choice.name, bytes.data() + kNameAt);
  return bytes;
}

Result<Choice> parse_choice(ByteView bytes) {
  FF_CHECK(bytes.size() >= kChoiceBytes);
  if (load_le<uint32_t>(bytes.data() + kPrefaceMagicAt) != kChoiceMagic ||
      load_le<uint16_t>(bytes.data() + kPrefaceZeroAt) != 0) {
    return stranger("choice", bytes);
  }
  Choice choice;
  const auto way = load_le<uint16_t>(bytes.data() + kWaysAt);
  switch (static_cast<Way>(way)) {
    case Way::none:
    case Way::stream:
    case Way::shm:
    case Way::verbs: choice.way = static_cast<Way>(way); break;
    default: return fail(Errc::corrupt, "an unknown way, {}", way);
  }
  std::copy_n(bytes.data() + kNameAt, choice.name.size(), choice.name.begin());
  return choice;
}

}  // namespace ff::net
