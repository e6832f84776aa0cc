// exchange.cc: the framing of bodies and replies.
#include "platform/http/exchange.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <utility>

namespace ff::http {

namespace {

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
// A reply up to this size goes out with its head in one write.
constexpr size_t kTogetherBytes = 64 * kKiB;
constexpr size_t kPieceBytes = 64 * kKiB;

struct StatusName {
  int status;
  std::string_view name;
};
constexpr std::array<StatusName, 23> kStatusNames = {{
    {100, "Continue"},
    {200, "OK"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {416, "Range Not Satisfiable"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {507, "Insufficient Storage"},
}};

constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

}  // namespace

std::string_view reason_of(int status) {
  const auto found = std::ranges::find(kStatusNames, status, &StatusName::status);
  return found == kStatusNames.end() ? std::string_view("Other") : found->name;
}

std::string format_date(int64_t seconds) {
  const time_t time = seconds;
  tm parts = {};
  ::gmtime_r(&time, &parts);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     kDays[static_cast<size_t>(parts.tm_wday)], parts.tm_mday,
                     kMonths[static_cast<size_t>(parts.tm_mon)], 1900 + parts.tm_year,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::optional<int64_t> parse_date(std::string_view text) {
  tm parts = {};
  const std::string copy(text);
  const char* const end = ::strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S", &parts);
  if (end == nullptr) return std::nullopt;
  const std::string_view zone = end;
  if (zone != " GMT" && zone != " UTC" && zone != " +0000") return std::nullopt;
  return ::timegm(&parts);
}

ByteSpan ReadBuffer::space() {
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return ByteSpan(bytes_).subspan(end_);
}

void Exchange::Rate::add(uint64_t more, int64_t now_ns) {
  bytes += more;
  if (bytes < kRateBytes && until_ns != 0) return;
  bytes = 0;
  until_ns = now_ns + kRateNs;
}

Exchange::Exchange(Loop& loop, net::Stream& stream, ReadBuffer& buffer, RequestHead head,
                   std::optional<uint64_t> body)
    : loop_(loop),
      stream_(stream),
      buffer_(buffer),
      head_(std::move(head)),
      body_(body),
      body_left_(body.value_or(0)),
      done_(body == uint64_t{0}),
      expects_continue_(head_.minor == 1 && head_.value("expect") == "100-continue"),
      keep_(keeps_connection(head_)) {}

Task<Result<size_t>> Exchange::receive(ByteSpan into) {
  for (;;) {
    const std::array<ByteSpan, 1> space = {into};
    FF_CO_TRY(const auto got, stream_.try_read(space));
    if (got && *got == 0) co_return fail(Errc::unreachable, "the client has left");
    if (got) {
      receiving_.add(*got, loop_.now_ns());
      co_return *got;
    }
    if (receiving_.until_ns == 0) receiving_.add(0, loop_.now_ns());
    FF_CO_TRY(co_await stream_.readable().wait(limit_ns_.value_or(receiving_.until_ns)));
  }
}

Task<Result<void>> Exchange::send(ByteView bytes) {
  while (!bytes.empty()) {
    const std::array<ByteView, 1> from = {bytes};
    FF_CO_TRY(const auto sent, stream_.try_write(from));
    if (sent) {
      bytes = bytes.subspan(*sent);
      sending_.add(*sent, loop_.now_ns());
      continue;
    }
    if (sending_.until_ns == 0) sending_.add(0, loop_.now_ns());
    FF_CO_TRY(co_await stream_.writable().wait(sending_.until_ns));
  }
  co_return Result<void>();
}

Task<Result<void>> Exchange::fill_buffer() {
  const ByteSpan space = buffer_.space();
  FF_CO_TRY(const size_t got, co_await receive(space));
  buffer_.commit(got);
  co_return Result<void>();
}

Task<Result<void>> Exchange::send_continue() {
  if (!std::exchange(expects_continue_, false)) co_return Result<void>();
  FF_CO_TRY(co_await send(as_bytes(kContinue)));
  sending_ = Rate();
  co_return Result<void>();
}

// At least one byte; 0: the body has ended.
Task<Result<size_t>> Exchange::read_plain(ByteSpan into) {
  if (body_left_ == 0) {
    done_ = true;
    co_return size_t{0};
  }
  into = into.first(std::min<uint64_t>(into.size(), body_left_));
  size_t got = std::min(into.size(), buffer_.unread().size());
  if (got > 0) {
    std::memcpy(into.data(), buffer_.unread().data(), got);
    buffer_.consume(got);
  } else {
    FF_CO_TRY(got, co_await receive(into));
  }
  body_left_ -= got;
  done_ = body_left_ == 0;
  co_return got;
}

Task<Result<size_t>> Exchange::read_chunked(ByteSpan into) {
  for (;;) {
    const ByteView input = buffer_.unread();
    FF_CO_TRY(auto step, chunks_.next(input.first(std::min(input.size(), into.size()))));
    if (step.event == ChunkParser::Event::end) done_ = true;
    if (!step.data.empty()) std::memcpy(into.data(), step.data.data(), step.data.size());
    buffer_.consume(step.consumed);
    if (done_) co_return size_t{0};
    if (!step.data.empty()) co_return step.data.size();
    if (step.event == ChunkParser::Event::need_more && buffer_.unread().empty()) {
      FF_CO_TRY(co_await fill_buffer());
    }
  }
}

Task<Result<size_t>> Exchange::read_some(ByteSpan into) {
  FF_CO_TRY(co_await send_continue());
  if (body_) co_return co_await read_plain(into);
  co_return co_await read_chunked(into);
}

Task<Result<size_t>> Exchange::read(ByteSpan into) {
  size_t all = 0;
  while (all < into.size() && !done_) {
    FF_CO_TRY(const size_t got, co_await read_some(into.subspan(all)));
    all += got;
  }
  co_return all;
}

Task<Result<std::string>> Exchange::read_all(size_t bytes_max) {
  const Error too_long = fail(Errc::usage, "the body has more than {} bytes", bytes_max);
  if (body_ && *body_ > bytes_max) co_return too_long;
  std::string text;
  std::string piece(std::min<size_t>(bytes_max + 1, kPieceBytes), '\0');
  while (!done_) {
    const ByteSpan space = {reinterpret_cast<std::byte*>(piece.data()), piece.size()};
    FF_CO_TRY(const size_t got, co_await read(space));
    text.append(piece, 0, got);
    if (text.size() > bytes_max) co_return too_long;
  }
  co_return text;
}

Task<Result<bool>> Exchange::skip_body(uint64_t bytes_max, int64_t until_ns) {
  if (expects_continue_ && !done_) co_return false;  // the client may send it, or not
  limit_ns_ = until_ns;
  std::vector<std::byte> piece(kPieceBytes);
  for (uint64_t skipped = 0; !done_ && skipped < bytes_max;) {
    FF_CO_TRY(const size_t got, co_await read_some(piece));
    skipped += got;
  }
  co_return done_;
}

std::string Exchange::format_head(const ReplyHead& head, uint64_t length) const {
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", head.status, reason_of(head.status),
                  format_date(loop_.clock().wall_ns() / kSecond));
  for (const Field& field : head.fields) {
    text += fmt::format("{}: {}\r\n", field.name, field.value);
  }
  for (const Field& field : more_fields_) {
    text += fmt::format("{}: {}\r\n", field.name, field.value);
  }
  if (head.status != 204 && head.status != 304)
    text += fmt::format("Content-Length: {}\r\n", length);
  if (!keep_) text += "Connection: close\r\n";
  return text + "\r\n";
}

Task<Result<void>> Exchange::reply(ReplyHead head, std::string_view body) {
  if (body.size() > kTogetherBytes) {
    FF_CO_TRY(co_await begin_reply(std::move(head), body.size()));
    co_return co_await write(as_bytes(body));
  }
  FF_CHECK(!replied_);
  replied_ = true;
  status_ = head.status;
  if (expects_continue_) keep_ = false;
  std::string text = format_head(head, body.size());
  if (head_.method != "HEAD") text += body;
  co_return co_await send(as_bytes(text));
}

Task<Result<void>> Exchange::begin_reply(ReplyHead head, uint64_t length) {
  FF_CHECK(!replied_);
  replied_ = true;
  status_ = head.status;
  if (expects_continue_) keep_ = false;
  left_to_send_ = head_.method == "HEAD" ? 0 : length;
  const std::string text = format_head(head, length);
  co_return co_await send(as_bytes(text));
}

Task<Result<void>> Exchange::write(ByteView bytes) {
  if (head_.method == "HEAD") co_return Result<void>();
  FF_CHECK(bytes.size() <= left_to_send_);
  FF_CO_TRY(co_await send(bytes));
  left_to_send_ -= bytes.size();
  bytes_sent_ += bytes.size();
  co_return Result<void>();
}

}  // namespace ff::http
