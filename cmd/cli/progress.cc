// Drawing the progress bar. The rate is smoothed over about three seconds so that the time left
// does not jump with every burst of the page cache.
#include "cmd/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "platform/base/clock.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

constexpr std::chrono::milliseconds kFrame{100};  // ten updates a second
constexpr double kSmoothSeconds = 3;
constexpr uint64_t kBarCells = 20;
constexpr uint64_t kDefaultColumns = 80;  // if the terminal reports no width

uint64_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefaultColumns;
}

std::string cells(uint64_t done, uint64_t total) {
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto full = static_cast<uint64_t>(share * static_cast<double>(kBarCells));
  return fmt::format("[{}{}] {:3.0f}%", std::string(full, '#'), std::string(kBarCells - full, '.'),
                     std::floor(share * 100));
}

}  // namespace

std::string fit_terminal(std::string line) {
  // The last column stays free: some terminals wrap on it. Cutting inside UTF-8 leaves no half.
  size_t end = std::min<size_t>(line.size(), terminal_columns() - 1);
  while (end > 0 && end < line.size() && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) {
    --end;
  }
  line.resize(end);
  return line;
}

ProgressBar::ProgressBar(BarLine& line, Clock& clock, std::string label, const Progress& counters,
                         bool draw)
    : line_of_terminal_(line),
      clock_(clock),
      label_(printable(label)),
      started_ns_(clock.steady_ns()),
      counters_(counters),
      last_ns_(started_ns_) {
  if (draw) thread_ = std::thread([this] { run(); });
}

ProgressBar::~ProgressBar() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  wake_.notify_one();
  thread_.join();
  line_of_terminal_.erase_bar();
}

void ProgressBar::note(std::string words) {
  const std::lock_guard lock(mutex_);
  words_ = std::move(words);
}

void ProgressBar::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kFrame, [this] { return finished_; })) {
    const std::string words = words_;
    lock.unlock();
    line_of_terminal_.draw_bar(render(words));
    lock.lock();
  }
}

std::string ProgressBar::render(const std::string& words) {
  const int64_t now = clock_.steady_ns();
  const uint64_t bytes = counters_.done, total = counters_.total;
  const double seconds = to_seconds(now - last_ns_);
  if (seconds > 0) {
    const double current = static_cast<double>(bytes - last_done_) / seconds;
    // The first frames have no past: start from the average, then forget at a fixed pace.
    const double keep = last_ns_ == started_ns_ ? 0 : std::exp(-seconds / kSmoothSeconds);
    rate_ = keep * rate_ + (1 - keep) * current;
    last_ns_ = now;
    last_done_ = bytes;
  }
  std::string line = label_ + "  ";
  if (total > 0) {
    line +=
        fmt::format("{}  {} of {}", cells(bytes, total), format_size(bytes), format_size(total));
  } else {
    line += format_size(bytes);
  }
  line += "  " + format_rate(rate_);
  if (total > bytes && rate_ >= 1) {
    const double left = static_cast<double>(total - bytes) / rate_;
    // Whole seconds, limited to the range of a duration.
    if (left < 1e8) {
      line += "  ETA " + format_duration(static_cast<int64_t>(std::ceil(left)) * kSecond);
    }
  }
  if (!words.empty()) line += "  " + printable(words);
  return fit_terminal(std::move(line));
}

}  // namespace ff::cmd
