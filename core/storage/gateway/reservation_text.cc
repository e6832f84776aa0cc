// reservation_text.cc: what a gateway and ff.KV tell each other of a reservation.
#include "storage/gateway/reservation_text.h"

#include <fmt/format.h>

#include <vector>

#include "platform/base/text.h"

namespace ff::gateway {

std::string encode_reservation(const kvstore::RecordReservation& one) {
  return fmt::format("{} {} {} {} {} {}", one.segment_epoch, one.segment_number, one.offset,
                     one.version, one.expires_ms, one.durable ? 1 : 0);
}

std::optional<kvstore::RecordReservation> parse_reservation(std::string_view text) {
  std::vector<uint64_t> numbers;
  for (const std::string_view word : split(text, ' ')) {
    const auto number = parse_u64(word);
    if (!number) return {};
    numbers.push_back(*number);
  }
  if (numbers.size() != 6 || numbers[4] > INT64_MAX) return {};
  return kvstore::RecordReservation{.segment_epoch = numbers[0],
                                    .segment_number = numbers[1],
                                    .offset = numbers[2],
                                    .version = numbers[3],
                                    .expires_ms = static_cast<int64_t>(numbers[4]),
                                    .durable = numbers[5] != 0};
}

}  // namespace ff::gateway
