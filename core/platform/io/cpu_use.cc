// cpu_use.cc: the line "cpu" of /proc/stat.
#include "platform/io/cpu_use.h"

#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::io {

namespace {

double busy_seconds() {
  constexpr uint64_t kStatLimit = 4 << 20;  // interrupts of a large machine
  SystemDisk disk;
  const auto text = read_file(disk, "/proc/stat", kStatLimit);
  if (!text) return 0;
  const auto use = parse_cpu_use(*text);
  return use ? use->busy() : 0;
}

}  // namespace

// "cpu" and hundredths of seconds: user, nice, system, idle, iowait, irq, softirq, steal, guest, …
std::optional<CpuUse> parse_cpu_use(std::string_view text) {
  std::vector<std::string_view> words = split(text.substr(0, text.find('\n')), ' ');
  std::erase(words, "");
  constexpr size_t kUser = 1, kNice = 2, kSystem = 3, kIrq = 6, kSoftIrq = 7, kSteal = 8;
  if (words.size() <= kSteal || words[0] != "cpu") return std::nullopt;
  static const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto seconds = [&](size_t at) {
    return static_cast<double>(parse_u64(words[at]).value_or(0)) / ticks;
  };
  return CpuUse{.programs = seconds(kUser) + seconds(kNice) + seconds(kSystem),
                .interrupts = seconds(kIrq) + seconds(kSoftIrq),
                .stolen = seconds(kSteal)};
}

CpuMeter::CpuMeter() : began_(busy_seconds()) {}

double CpuMeter::seconds() const { return busy_seconds() - began_; }

}  // namespace ff::io
