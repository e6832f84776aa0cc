// Standard output through one buffer and one remembered error, standard error unbuffered. SIGPIPE
// is ignored (program.cc), so a closed reader appears here as EPIPE.
#include "cmd/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cmd/cli/progress.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;  // bytes per write to a pipe
constexpr size_t kMeasuredRows = 1000;             // later rows use the widths of these
constexpr std::string_view kEraseLine = "\r\x1b[K";

bool colored(bool terminal) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return terminal && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::strcmp(term, "dumb") != 0);
}

std::string paint(bool use_color, Color color, std::string text) {
  if (!use_color || color == Color::none) return text;
  const char* code = color == Color::bold    ? "1"
                     : color == Color::dim   ? "2"
                     : color == Color::red   ? "31"
                     : color == Color::green ? "32"
                                             : "33";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

// Writes all bytes; returns 0 or errno.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

// Characters, not bytes: good enough for aligning names.
size_t display_width(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

Output::Output(std::string command, Mode mode)
    : command_(std::move(command)),
      mode_(mode),
      stdout_terminal_(::isatty(STDOUT_FILENO) == 1),
      stderr_terminal_(::isatty(STDERR_FILENO) == 1),
      color_out_(colored(stdout_terminal_)),
      color_err_(colored(stderr_terminal_)) {}

void Output::put_line(Color color, std::string_view text) {
  if (mode_.json) return;
  const std::string line = paint(color_out_, color, printable(text)) + "\n";
  const std::lock_guard lock(mutex_);
  put_locked(line);
}

void Output::raw_text(std::string_view text) {
  if (mode_.json) return;
  const std::lock_guard lock(mutex_);
  put_locked(text);
}

void Output::put_locked(std::string_view bytes) {
  buffer_ += bytes;
  // On a terminal each line appears at once, and never mixes with the bar.
  if (stdout_terminal_ || buffer_.size() >= kBufferBytes) flush_locked();
}

void Output::flush_locked() {
  if (stdout_terminal_) erase_bar_locked();
  if (write_error_ == 0) write_error_ = write_all(STDOUT_FILENO, buffer_);
  buffer_.clear();
  if (write_error_ == EPIPE && stop_ != nullptr) stop_->request();
}

void Output::print_message(Color color, std::string_view text) {
  const std::string line = paint(color_err_, color, printable(text)) + "\n";
  const std::lock_guard lock(mutex_);
  erase_bar_locked();
  (void)write_all(STDERR_FILENO, line);  // no other place for the error
}

void Output::add_warning(std::string text) {
  if (!mode_.json) return print_message(Color::yellow, "warning: " + text);
  const std::lock_guard lock(mutex_);
  warnings_.push_back(std::move(text));
}

void Output::data(Json data) {
  FF_CHECK(data.is_object());
  data_text(data.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Output::data_text(std::string json) {
  const std::lock_guard lock(mutex_);
  data_ = std::move(json);
}

Result<void> Output::emit(const Json& data) {
  FF_CHECK(data.is_object());
  const std::lock_guard lock(mutex_);
  if (mode_.json) {
    streamed_ = true;
    put_locked(envelope_locked(data.dump(-1, ' ', false, Json::error_handler_t::replace), nullptr));
    warnings_.clear();
  }
  return flushed_locked();
}

Result<void> Output::flush() {
  const std::lock_guard lock(mutex_);
  return flushed_locked();
}

Result<void> Output::flushed_locked() {
  flush_locked();
  if (write_error_ != 0) return errno_error(write_error_, "standard output");
  return {};
}

void Output::exit_with(int code) {
  const std::lock_guard lock(mutex_);
  exit_ = code;
}

int Output::exit_of(const Error* error) const {
  if (error == nullptr) return exit_;
  if (failure_exit_ && error->code != Errc::interrupted) return *failure_exit_;
  return exit_code(error->code);
}

std::string Output::envelope_locked(std::string_view data, const Error* error) {
  std::string text = R"({"ff":"1","command":)";
  append_json_string(text, command_);
  text += fmt::format(R"(,"exit":{},"data":{},"warnings":[)", exit_of(error), data);
  for (size_t i = 0; i < warnings_.size(); ++i) {
    if (i > 0) text += ',';
    append_json_string(text, warnings_[i]);
  }
  text += R"(],"error":)";
  if (error == nullptr) return text + "null}\n";
  text += R"({"code":)";
  append_json_string(text, errc_name(error->code));
  text += R"(,"message":)";
  append_json_string(text, error->message);
  text += R"(,"hint":)";
  append_json_string(text, error->hint);
  return text + "}}\n";
}

void Output::print_error(const Error& error) {
  if (error.code == Errc::interrupted) return print_message(Color::none, "interrupted");
  const std::string name = command_.empty() ? "ff" : "ff " + command_;
  print_message(Color::red, fmt::format("{}: {}", name, error.message));
  if (!error.hint.empty()) print_message(Color::none, "  " + error.hint);
}

int Output::finish(const Result<void>& result) {
  const Error* error = result ? nullptr : &result.error();
  int write_error = 0;
  {
    const std::lock_guard lock(mutex_);
    if (mode_.json && (error != nullptr || !streamed_)) put_locked(envelope_locked(data_, error));
    flush_locked();
    write_error = write_error_;
  }
  if (write_error == EPIPE) return exit_code(Errc::failed);
  if (error != nullptr && !mode_.json) print_error(*error);
  if (write_error != 0) {
    Error lost = errno_error(write_error, "standard output");
    lost.code = Errc::failed;
    print_error(lost);
    if (error == nullptr) return exit_code(Errc::failed);
  }
  return exit_of(error);
}

bool Output::broken_pipe() {
  const std::lock_guard lock(mutex_);
  return write_error_ == EPIPE;
}

std::unique_ptr<ProgressBar> Output::progress(std::string label, const Progress& counters,
                                              StopToken& stop) {
  BarLine& line = *this;
  return std::make_unique<ProgressBar>(line, stop.clock(), std::move(label), counters, draws());
}

void Output::status(std::string_view text) {
  if (!draws()) return;
  if (text.empty()) return erase_bar();
  draw_bar(fit_terminal(printable(text)));
}

void Output::draw_bar(const std::string& bar) {
  const std::lock_guard lock(mutex_);
  (void)write_all(STDERR_FILENO, std::string(kEraseLine) + bar);
  bar_drawn_ = true;
}

void Output::erase_bar() {
  const std::lock_guard lock(mutex_);
  erase_bar_locked();
}

void Output::erase_bar_locked() {
  if (!bar_drawn_) return;
  (void)write_all(STDERR_FILENO, kEraseLine);
  bar_drawn_ = false;
}

Table::Table(Output& out, std::vector<Column> columns) : out_(out), columns_(std::move(columns)) {}

Table::~Table() {
  if (!measured_ && !held_.empty()) measure_and_print();
}

void Table::row(std::initializer_list<Cell> cells) {
  FF_CHECK(cells.size() == columns_.size());
  if (out_.mode_.json) return;
  if (!out_.stdout_terminal_) {
    if (!measured_ && !out_.mode_.no_header) print_tabs(titles());
    measured_ = true;
    return print_tabs(cells);
  }
  std::vector<Cell> shown = cells;
  for (Cell& cell : shown) cell.text = printable(cell.text);
  if (measured_) return print(shown);
  held_.push_back(std::move(shown));
  if (held_.size() == kMeasuredRows) measure_and_print();
}

std::vector<Cell> Table::titles() const {
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title, Color::bold);
  return titles;
}

void Table::print_tabs(const std::vector<Cell>& cells) {
  std::string line;
  for (const Cell& cell : cells) {
    append_printable(line, cell.text);
    line += '\t';
  }
  line.back() = '\n';
  out_.raw_text(line);
}

void Table::measure_and_print() {
  const bool header = !out_.mode_.no_header;
  for (const Column& column : columns_) {
    widths_.push_back(header ? display_width(column.title) : 0);
  }
  for (const auto& cells : held_) {
    for (size_t i = 0; i < cells.size(); ++i) {
      widths_[i] = std::max(widths_[i], display_width(cells[i].text));
    }
  }
  measured_ = true;
  if (header) print(titles());
  for (const auto& cells : held_) print(cells);
  held_.clear();
}

void Table::print(const std::vector<Cell>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t width = display_width(cells[i].text);
    const std::string gap(widths_[i] > width ? widths_[i] - width : 0, ' ');
    const std::string text = paint(out_.color_out_, cells[i].color, cells[i].text);
    const bool last = i + 1 == cells.size();
    if (columns_[i].align == Align::right) {
      line += gap + text;
    } else {
      line += text + (last ? "" : gap);
    }
    if (!last) line += "  ";
  }
  out_.raw_text(line + "\n");
}

}  // namespace ff::cmd
