// Runs a fuzz target with seeded mutations, so that ctest can fuzz with any compiler; clang's
// libFuzzer takes its place with -DFF_LIBFUZZER=ON. A target is LLVMFuzzerTestOneInput and, if it
// likes, fuzz_seeds() with valid inputs to start from.
//
//   fuzz_NAME [--runs N] [--seed N] [--limit SECONDS]    mutate; SECONDS a run may take
//   fuzz_NAME --write-seeds DIR                          save the seeds, for libFuzzer
//   fuzz_NAME FILE...                                    replay saved inputs
//
// Run i of seed s is always the same input. The input under test is written to crash-NAME-SEED-RUN
// in the working directory when the target aborts, traps, throws, exhausts its memory, takes too
// long, or when a sanitizer stops it. There is no feedback from coverage: good
// seeds do that work.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));
std::vector<std::string> fuzz_seeds() __attribute__((weak));

namespace {

constexpr uint64_t kRunLimitSeconds = 60;         // a parser that needs this long hangs
constexpr rlim_t kMemoryLimit = rlim_t{4} << 30;  // a length field that allocates its value fails
constexpr size_t kGrowth = 4096;                  // bytes an input may grow beyond its seed
constexpr uint64_t kMaxStacked = 8;               // mutations on top of each other

// What the signal handler needs, ready before each run.
struct Current {
  const char* data = nullptr;
  size_t size = 0;
  uint64_t limit = kRunLimitSeconds;
  char path[256] = {};
  char message[512] = {};
};
Current current;

// Only async-signal-safe calls: the target may have died anywhere.
void save_current() {
  static volatile sig_atomic_t saved = 0;
  if (saved != 0 || current.data == nullptr) return;
  saved = 1;
  const int fd = open(current.path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0) {
    size_t done = 0;
    while (done < current.size) {
      const ssize_t n = write(fd, current.data + done, current.size - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    close(fd);
  }
  if (write(2, current.message, strlen(current.message)) < 0) _exit(2);
}

void on_signal(int number) {
  save_current();
  signal(number, SIG_DFL);
  raise(number);
}

void catch_deaths() {
  std::vector<int> signals{SIGABRT, SIGALRM};
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(save_current);
  } else {
    signals.insert(signals.end(), {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP});
    const rlimit limit{kMemoryLimit, kMemoryLimit};
    setrlimit(RLIMIT_AS, &limit);
  }
  // A stack of its own: a parser that recurses too deep has none left.
  static std::array<char, 64 << 10> stack;
  const stack_t alternative{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  sigaltstack(&alternative, nullptr);
  for (const int number : signals) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    sigaction(number, &action, nullptr);
  }
}

void run(const std::string& input) {
  // A copy of exactly its size, so that a read past the end is one past an allocation.
  const std::vector<uint8_t> copy(input.begin(), input.end());
  current.data = input.data();
  current.size = input.size();
  alarm(static_cast<unsigned>(current.limit));
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  alarm(0);
  current.data = nullptr;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, ff::Rng& rng) : seeds_(seeds), rng_(rng) {}

  std::string next() {
    std::string text = seed();
    const size_t limit = text.size() + kGrowth;
    for (uint64_t left = 1 + rng_.below(kMaxStacked); left > 0; --left) mutate(text);
    if (text.size() > limit) text.resize(limit);
    return text;
  }

 private:
  const std::string& seed() { return seeds_[rng_.below(seeds_.size())]; }
  size_t place(const std::string& text) { return rng_.below(text.size() + 1); }
  // Mostly short, now and then anything up to `most`.
  size_t length(size_t most) {
    const size_t wide = rng_.below(most + 1);
    return rng_.below(4) == 0 ? wide : std::min<size_t>(wide, 1 + rng_.below(16));
  }

  void mutate(std::string& text) {
    if (text.empty()) return insert(text);
    switch (rng_.below(8)) {
      case 0: text[rng_.below(text.size())] ^= static_cast<char>(1 << rng_.below(8)); return;
      case 1: text[rng_.below(text.size())] = static_cast<char>(rng_.next()); return;
      case 2: text.resize(rng_.below(text.size())); return;
      case 3: return insert(text);
      case 4: {
        const size_t at = rng_.below(text.size());
        text.erase(at, length(text.size() - at));
        return;
      }
      case 5: return splice(text);
      case 6: return binary_number(text);
      default: return decimal_number(text);
    }
  }

  void insert(std::string& text) {
    std::string bytes(length(64), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng_.next());
    text.insert(place(text), bytes);
  }

  // A stretch of a seed over or into this input: repeats, swaps, joins two halves.
  void splice(std::string& text) {
    const std::string& from = seed();
    const size_t begin = place(from);
    const std::string piece = from.substr(begin, length(from.size() - begin));
    const size_t at = place(text);
    text.replace(at, rng_.below(2) == 0 ? 0 : piece.size(), piece);
  }

  // A number at the edge of some type, 1 to 8 bytes, either byte order, over what is there.
  void binary_number(std::string& text) {
    const size_t width = size_t{1} << rng_.below(4);
    if (text.size() < width) return;
    const size_t at = rng_.below(text.size() - width + 1);
    const uint64_t value = edge();
    const bool big_endian = rng_.below(2) == 0;
    for (size_t i = 0; i < width; ++i) {
      text[at + i] = static_cast<char>(value >> 8 * (big_endian ? width - 1 - i : i));
    }
  }

  // The same in digits, in place of a number that the text holds.
  void decimal_number(std::string& text) {
    const size_t begin = text.find_first_of("0123456789", rng_.below(text.size()));
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    const uint64_t value = edge();
    text.replace(
        begin, end - begin,
        rng_.below(2) == 0 ? std::to_string(value) : std::to_string(static_cast<int64_t>(value)));
  }

  uint64_t edge() {
    const uint64_t power = rng_.below(64) == 0 ? 0 : uint64_t{1} << rng_.below(64);
    return power + rng_.below(5) - 2;  // a little below, at and above; 0 wraps to huge
  }

  const std::vector<std::string>& seeds_;
  ff::Rng& rng_;
};

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    fprintf(stderr, "%s: cannot be read\n", path.c_str());
    exit(2);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

[[noreturn]] void usage(const char* program) {
  fprintf(stderr,
          "usage: %s [--runs N] [--seed N] [--limit SECONDS] | --write-seeds DIR | FILE...\n",
          program);
  exit(2);
}

struct Arguments {
  uint64_t runs = 10000;
  uint64_t seed = 1;
  uint64_t limit = kRunLimitSeconds;
  std::string write_seeds;
  std::vector<std::string> files;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      arguments.files.emplace_back(word);
      continue;
    }
    if (i + 1 == argc) usage(argv[0]);
    const std::string_view value = argv[++i];
    if (word == "--write-seeds") {
      arguments.write_seeds = value;
    } else if (word == "--runs" || word == "--seed" || word == "--limit") {
      uint64_t& number = word == "--runs"   ? arguments.runs
                         : word == "--seed" ? arguments.seed
                                            : arguments.limit;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size()) usage(argv[0]);
    } else {
      usage(argv[0]);
    }
  }
  return arguments;
}

int write_seeds(const std::vector<std::string>& seeds, const std::string& dir) {
  for (size_t i = 0; i < seeds.size(); ++i) {
    const std::string path = dir + "/seed-" + std::to_string(i);
    std::ofstream(path, std::ios::binary) << seeds[i];
    if (read_whole(path) != seeds[i]) {
      fprintf(stderr, "%s: cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const std::string program = argv[0];
  const std::string name = program.substr(program.rfind('/') + 1);
  std::vector<std::string> seeds;
  if (fuzz_seeds != nullptr) seeds = fuzz_seeds();
  if (seeds.empty()) seeds.emplace_back();
  if (!arguments.write_seeds.empty()) return write_seeds(seeds, arguments.write_seeds);

  current.limit = arguments.limit;
  catch_deaths();
  for (const std::string& path : arguments.files) {
    snprintf(current.message, sizeof current.message, "%s: %s brings the target down\n",
             name.c_str(), path.c_str());
    snprintf(current.path, sizeof current.path, "/dev/null");
    run(read_whole(path));
  }
  if (!arguments.files.empty()) return 0;

  printf("%s: seed %lu, %lu runs, %zu seed inputs\n", name.c_str(), arguments.seed, arguments.runs,
         seeds.size());
  fflush(stdout);
  ff::SeededRng rng(arguments.seed);
  Mutator mutator(seeds, rng);
  const uint64_t total = seeds.size() + arguments.runs;  // the seeds as they are come first
  for (uint64_t i = 0; i < total; ++i) {
    snprintf(current.path, sizeof current.path, "crash-%s-%lu-%lu", name.c_str(), arguments.seed,
             i);
    snprintf(current.message, sizeof current.message,
             "%s: run %lu of seed %lu brings the target down; replay it with: %s %s\n",
             name.c_str(), i, arguments.seed, argv[0], current.path);
    run(i < seeds.size() ? seeds[i] : mutator.next());
  }
  return 0;
}
