// Tar archives from anywhere: no crash, no hang; the files that are found lie in the archive, one
// after the other. Names of samples: what is accepted gives the same bytes when it is written
// again.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/base/stop_token.h"
#include "platform/io/memory_file.h"
#include "training/record/names.h"
#include "training/record/tar.h"
#include "training/record/tar_blocks.h"

using namespace ff;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string content(reinterpret_cast<const char*>(data), size);
  const auto lines = static_cast<uint64_t>(std::count(content.begin(), content.end(), '\n'));
  if (const auto names = record::decode_names(content, lines)) {
    FF_CHECK(record::encode_names(*names) == content);
  }
  // Right checksums, or few inputs would get past them.
  for (size_t at = 0; size > 0 && (data[size - 1] & 1) == 0 && at + 512 <= size; at += 512) {
    const std::string block = content.substr(at, 512);
    if (block.find_first_not_of('\0') != block.npos) {
      content.replace(at, 512, record::tar_sealed(block));
    }
  }
  const ByteSpan memory(reinterpret_cast<std::byte*>(content.data()), content.size());
  io::MemoryFile file("fuzz.tar", {memory});
  SystemClock clock;
  const StopToken stop(clock);
  const auto found = record::read_tar(file, stop);
  if (!found) return 0;
  uint64_t end = 0;
  for (const auto& member : found->files) {
    FF_CHECK(member.begin >= end + 512 && member.bytes <= size - member.begin);
    end = member.begin + member.bytes;
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  using record::tar_entry;
  const std::string end(1024, '\0');
  return {
      tar_entry("./a", '0', "one") + tar_entry("dir/", '5', "") + tar_entry("link", '2', "") + end,
      tar_entry("x", 'x', "10 size=3\n") + tar_entry("a", '0', "abc", 0) + end,
      tar_entry("@LongLink", 'L', std::string(200, 'n') + '\0') + tar_entry("s", '0', "l") + end +
          "\n",
      "a/b.jpg\nnew\\nline\nback\\\\slash\n"};
}
