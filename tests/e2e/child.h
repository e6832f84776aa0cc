// Runs child processes, for tests of the real binaries: captured stdout and stderr, a clean
// environment, terminals, signals, exit codes. Waits poll with a deadline.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ff::test {

// A temporary directory, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);  // makes directories

// Polls for some minutes at most; whether `condition` became true.
bool eventually(const std::function<bool()>& condition);
// Processes with `text` in their command line.
std::set<pid_t> processes(const std::string& text);

struct Launch {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env{};  // added to PATH and a HOME that does not exist
  std::string program{};                     // the executable, if it is not argv[0]
  std::string stdout_path{};                 // instead of capturing
  bool stdout_terminal = false;              // a pseudo-terminal, captured
  bool stderr_terminal = false;
  bool terminal = false;    // all three on one controlling terminal, output in `out`
  bool stdin_open = false;  // a pipe, closed by close_stdin(); otherwise /dev/null
};

class Child {
 public:
  explicit Child(const Launch& launch);
  ~Child();  // kills what is left
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Reads until the output contains `text`; false if it ends or some minutes pass before.
  bool wait_for_out(const std::string& text) { return wait_for(out_fd_, out, text); }
  bool wait_for_err(const std::string& text) { return wait_for(err_fd_, err, text); }
  pid_t pid() const { return pid_; }
  // Does nothing after finish().
  void signal(int number) const;
  void write_stdin(const std::string& text) const;
  void close_stdin();
  void close_stdout();  // as if the reader had exited
  // Reads all output and waits: the exit code, or 128 plus the signal that killed it.
  int finish();

  std::string out, err;

 private:
  bool wait_for(int fd, std::string& into, const std::string& text);
  void read_some(int timeout_ms);

  pid_t pid_ = -1;
  int in_fd_ = -1, out_fd_ = -1, err_fd_ = -1;
};

struct ProcessResult {
  int exit = -1;
  std::string out, err;
};
ProcessResult run(const Launch& launch);
// Run the probe, or ff, with these arguments.
ProcessResult probe(std::vector<std::string> words, std::map<std::string, std::string> env = {});
ProcessResult run_ff(std::vector<std::string> words, std::map<std::string, std::string> env = {});

// Whether `text` contains `what`.
inline bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// `size` incompressible bytes, determined by `state`.
inline std::string noise(size_t size, uint64_t state = 88172645463325252) {
  std::string out(size, '\0');
  for (char& c : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state);
  }
  return out;
}

}  // namespace ff::test
