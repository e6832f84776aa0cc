// Frames from anywhere: no crash, no hang, bounded memory; bulk never leaves the memory that was
// exposed for it.
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/frame_input.h"
#include "platform/base/gate.h"
#include "platform/sim/sim_world.h"

namespace {

using namespace ff;
using namespace ff::net;

constexpr size_t kSink = 5000;
constexpr size_t kGuard = 4096;

std::string packed(std::initializer_list<uint64_t> fields) {
  std::string out;
  for (const uint64_t field : fields) {
    out.append(reinterpret_cast<const char*>(&field), sizeof field);
  }
  return out;
}

Task<void> receive_all(Connection& connection) {
  for (;;) {
    const auto frame = co_await connection.receive();
    if (!frame) co_return;
    FF_CHECK(!is_bulk(frame->head.kind) && frame->message.size() <= kMessageMax);
  }
}

Task<void> pull(Connection& connection, ByteSpan into) {
  RemoteBuffer buffer{.token = 1, .size = into.size()};
  (void)co_await connection.pull(buffer, 0, into);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sim::SimWorld world;
  Loop& loop = world.loop();
  std::vector<std::byte> memory(kGuard + kSink + kGuard, std::byte{0x5a});
  const ByteSpan sink = ByteSpan(memory).subspan(kGuard, kSink);
  std::vector<std::byte> pulled(3000);
  {
    const std::string input(reinterpret_cast<const char*>(data), size);
    Connection connection(loop, std::make_unique<InputStream>(loop, repaired(input)), nullptr);
    const auto writable = connection.expose_sink(sink);
    const auto readable = connection.expose_source(sink);
    Gate gate(loop);
    gate.spawn(pull(connection, pulled));
    gate.spawn(receive_all(connection));
    run_task(loop, gate.wait_empty());
    FF_CHECK(connection.failed());
  }
  for (size_t i = 0; i < kGuard; i++) {
    FF_CHECK(memory[i] == std::byte{0x5a});
    FF_CHECK(memory[memory.size() - 1 - i] == std::byte{0x5a});
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string bytes(2000, 'p');
  const std::string push = frame_seed({.kind = FrameKind::push}, packed({1, 100}), bytes);
  const std::string pulled =
      frame_seed({.kind = FrameKind::pull_reply}, packed({1}), std::string(3000, 'q'));
  std::string pull_message = packed({2, 0, 77}) + std::string("\x10\x27\0\0", 4);
  const std::string pull = frame_seed({.kind = FrameKind::pull}, pull_message);
  const std::string call = frame_seed({.kind = FrameKind::call, .call = 1, .method = 2}, "request");
  const std::string region = frame_seed({.kind = FrameKind::region}, packed({1, 4096}));
  return {"\x01" + push,
          "\x01" + pulled,
          "\x01" + pull,
          "\x01" + call,
          "\x01" + region,
          "\x01" + call + push + pull + pulled + call,
          std::string("\0", 1) + call + push};
}
