// Reservations (kvstore/calls.h) between a gateway and ff.KV: the reply of FF.RESERVE, which is
// also a word of FF.CONFIRM.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "storage/kvstore/calls.h"

namespace ff::gateway {

// One line: six decimal numbers.
std::string encode_reservation(const kvstore::RecordReservation& reservation);
std::optional<kvstore::RecordReservation> parse_reservation(std::string_view text);

}  // namespace ff::gateway
