// stream.cc: streams without descriptors beside the bytes.
#include "net/stream.h"

#include "base/check.h"

namespace ff::net {

void Stream::send_descriptor(int) { FF_CHECK(!"this stream carries no descriptors"); }

std::optional<int> Stream::take_descriptor() { return std::nullopt; }

}  // namespace ff::net
