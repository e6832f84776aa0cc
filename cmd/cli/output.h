// Output of a command. Data goes to stdout, messages to stderr. With --json, stdout holds one
// envelope object (cli.md) or, for a stream, one a line, and the human forms print nothing; so a
// command calls both line()/table() and data(), whatever the mode.
//
// line(), table(), note() and warn() escape control bytes, newlines too, so that names of files or
// users cannot forge lines or terminal codes. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/cli/progress.h"
#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"

namespace ff::cmd {

using Json = nlohmann::ordered_json;
enum class Color : unsigned char { none, bold, dim, red, green, yellow };
enum class Align : unsigned char { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};
struct Cell {
  Cell(std::string t, Color c = Color::none) : text(std::move(t)), color(c) {}  // NOLINT: implicit
  Cell(const char* t) : text(t) {}                                              // NOLINT: implicit
  std::string text;
  Color color = Color::none;
};

class Output;

// A table: aligned columns on a terminal, tab-separated in a pipe. No titles with --no-header or
// without rows. Bounded memory: widths come from the first kMeasuredRows rows, then rows
// stream.
class Table {
 public:
  Table(Output& out, std::vector<Column> columns);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  void row(std::initializer_list<Cell> cells);  // as many as there are columns

 private:
  void measure_and_print();
  void print(const std::vector<Cell>& cells);
  void print_tabs(const std::vector<Cell>& cells);
  std::vector<Cell> titles() const;

  Output& out_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> held_;
  std::vector<size_t> widths_;
  bool measured_ = false;  // the titles are printed
};

class Output final : private BarLine {
 public:
  struct Mode {
    bool json = false;       // --json
    bool quiet = false;      // --quiet: no notes, no progress; warnings and errors stay
    bool verbose = false;    // --verbose: detail() prints
    bool no_header = false;  // --no-header: tables without their titles
  };
  Output(std::string command, Mode mode);

  // One line of data on stdout.
  template <class... A>
  void line(fmt::format_string<A...> text, A&&... args) {
    put_line(Color::none, fmt::format(text, std::forward<A>(args)...));
  }
  template <class... A>
  void line(Color color, fmt::format_string<A...> text, A&&... args) {
    put_line(color, fmt::format(text, std::forward<A>(args)...));
  }
  // Trusted text (a help page, a script), without escaping.
  void raw_text(std::string_view text);
  // A table; rows print until it is destroyed.
  Table table(std::vector<Column> columns) { return Table(*this, std::move(columns)); }

  // The envelope's `data` (an object; the last call wins), printed at the end, with an error too.
  void data(Json data);
  // The same from JSON text, for lists too long for a document tree.
  void data_text(std::string json);
  // Streams: with --json prints one whole envelope line with this data now and none at the end
  // (an error still gets its own); otherwise only flushes the lines. Fails if stdout is closed.
  Result<void> emit(const Json& data);
  // Flushes stdout, for lines that come slowly. Fails if stdout is closed.
  Result<void> flush();

  // Messages on stderr: note() not with --quiet, detail() only with --verbose, neither with --json.
  template <class... A>
  void note(fmt::format_string<A...> text, A&&... args) {
    if (!mode_.quiet && !mode_.json)
      print_message(Color::none, fmt::format(text, std::forward<A>(args)...));
  }
  template <class... A>
  void detail(fmt::format_string<A...> text, A&&... args) {
    if (mode_.verbose && !mode_.json)
      print_message(Color::dim, fmt::format(text, std::forward<A>(args)...));
  }
  // A question to the person at the terminal, on stderr, also with --quiet.
  void prompt(std::string_view question) { print_message(Color::bold, question); }
  // Goes to stderr as "warning: ..." or, with --json, to the envelope's `warnings`.
  template <class... A>
  void warn(fmt::format_string<A...> text, A&&... args) {
    add_warning(fmt::format(text, std::forward<A>(args)...));
  }

  // A progress bar on stderr until destroyed; draws nothing when stderr is no terminal, or with
  // --quiet or --json. One at a time.
  std::unique_ptr<ProgressBar> progress(std::string label, const Progress& counters,
                                        StopToken& stop);

  // A line on stderr that the next one replaces and other output erases; "" erases it. Draws as
  // progress() does, without a thread.
  void status(std::string_view text);

  const Mode& mode() const { return mode_; }
  bool stdout_is_terminal() const { return stdout_terminal_; }

  // Sets the exit code of success: that of a program that the command has run.
  void exit_with(int code);

  // Called once, at the end: prints the error and the envelope, flushes, and returns the exit code
  // (1 if stdout could not be written).
  int finish(const Result<void>& result);
  // `stop` ends when the reader of stdout closes it; the process then dies by SIGPIPE.
  void set_stop_token(StopToken& stop) { stop_ = &stop; }
  // Command::exits_with().
  void set_failure_exit(std::optional<int> code) { failure_exit_ = code; }
  bool broken_pipe();

 private:
  friend class Table;
  void put_line(Color color, std::string_view text);
  void put_locked(std::string_view bytes);
  void flush_locked();
  Result<void> flushed_locked();
  void print_message(Color color, std::string_view text);
  void add_warning(std::string text);
  void print_error(const Error& error);
  int exit_of(const Error* error) const;
  std::string envelope_locked(std::string_view data, const Error* error);
  bool draws() const { return stderr_terminal_ && !mode_.quiet && !mode_.json; }
  void draw_bar(const std::string& bar) override;
  void erase_bar() override;
  void erase_bar_locked();

  const std::string command_;
  const Mode mode_;
  const bool stdout_terminal_, stderr_terminal_;
  const bool color_out_, color_err_;

  std::mutex mutex_;  // guards everything below and the order of what reaches the terminal
  std::string buffer_;
  int write_error_ = 0;  // errno of the first failed write to stdout
  std::string data_ = "{}";
  int exit_ = 0;  // without an error
  std::vector<std::string> warnings_;
  bool streamed_ = false;
  bool bar_drawn_ =
      false;  // a bar is on the last line of the terminal: erase it before other output
  StopToken* stop_ = nullptr;
  std::optional<int> failure_exit_;
};

}  // namespace ff::cmd
