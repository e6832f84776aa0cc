// Running programs as a shell would, for tests of the real binaries: separate stdout and stderr, a
// clean environment, terminals, signals, exits. Waits poll with a deadline and never assume timing.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ff::test {

// A directory of one test, removed at its end.
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

// Whether it comes to be within a minute.
bool eventually(const std::function<bool()>& condition);
// Processes that have the text in their command lines.
std::set<pid_t> processes(const std::string& text);

struct Launch {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env{};  // beside PATH and a HOME that does not exist
  std::string program{};                     // the file to run when argv[0] is another name
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

  // Reads until `text` is in the output, false when it ends or a minute passes before.
  bool wait_for_out(const std::string& text) { return wait_for(out_fd_, out, text); }
  bool wait_for_err(const std::string& text) { return wait_for(err_fd_, err, text); }
  pid_t pid() const { return pid_; }
  // Nothing, once it was reaped.
  void signal(int number) const;
  void write_stdin(const std::string& text) const;
  void close_stdin();
  void close_stdout();  // the reader goes away
  // Reads everything and reaps: the exit code, or 128 plus the signal that killed it.
  int finish();

  std::string out, err;

 private:
  bool wait_for(int fd, std::string& into, const std::string& text);
  void read_some(int timeout_ms);

  pid_t pid_ = -1;
  int in_fd_ = -1, out_fd_ = -1, err_fd_ = -1;
};

struct Ran {
  int exit = -1;
  std::string out, err;
};
Ran run(const Launch& launch);
// The probe, or ff, with these words after its name.
Ran probe(std::vector<std::string> words, std::map<std::string, std::string> env = {});
Ran ff_run(std::vector<std::string> words, std::map<std::string, std::string> env = {});

// Whether `text` holds `what`.
inline bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// `size` bytes that no compression makes shorter; equal for equal states.
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
