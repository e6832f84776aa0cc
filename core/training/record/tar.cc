// tar.cc: headers of archives.
#include "training/record/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "platform/base/text.h"

namespace ff::record {
namespace {

constexpr uint64_t kTarBlock = 512;
constexpr uint64_t kTarHeadersRead = 64 * kKiB;  // at a time
constexpr uint64_t kTarExtraMax = kMiB;          // of an extended header or a long name
constexpr size_t kTarMembersMax = size_t{1} << 28;

// Fields of a header: where they begin, and their bytes.
struct TarField {
  size_t at;
  size_t length;
};
constexpr TarField kTarName{0, 100};
constexpr TarField kTarSize{124, 12};
constexpr TarField kTarChecksum{148, 8};
constexpr TarField kTarType{156, 1};
constexpr TarField kTarMagic{257, 5};
constexpr TarField kTarPrefix{345, 155};

class TarReader {
 public:
  TarReader(io::File& archive, const StopToken& stop) : archive_(archive), stop_(stop) {}

  Result<TarMembers> run();

 private:
  Error damaged_tar(std::string_view what) const {
    return fail(Errc::corrupt, "{}: no tar archive, or a damaged one: {} (byte {})",
                archive_.path(), what, at_);
  }
  // The next bytes, fewer at the end of the archive.
  Result<std::string_view> read(uint64_t length);
  Result<void> check(std::string_view header) const;
  Result<void> take(std::string_view header);
  Result<std::string> extra(uint64_t length);
  Result<void> take_pax(std::string_view records);
  Result<std::optional<std::string_view>> compression();
  std::string_view text(std::string_view header, TarField field) const {
    const auto whole = header.substr(field.at, field.length);
    return whole.substr(0, whole.find('\0'));
  }
  Result<uint64_t> number(std::string_view header, TarField field) const;

  io::File& archive_;
  const StopToken& stop_;
  uint64_t at_ = 0;  // of the next header
  uint64_t size_ = 0;
  std::string buffer_;
  uint64_t buffer_at_ = 0;
  TarMembers found_;
  // Of the next file, from headers before its own.
  std::optional<std::string> next_name_;
  std::optional<uint64_t> next_size_;
};

Result<std::string_view> TarReader::read(uint64_t length) {
  if (at_ < buffer_at_ || at_ + length > buffer_at_ + buffer_.size()) {
    buffer_.resize(std::max(length, kTarHeadersRead));
    buffer_at_ = at_;
    FF_TRY(const size_t got,
           archive_.read_at({reinterpret_cast<std::byte*>(buffer_.data()), buffer_.size()}, at_));
    buffer_.resize(got);
  }
  return std::string_view(buffer_).substr(at_ - buffer_at_, length);
}

// Octal digits, or, with the highest bit of the first byte, a binary number.
Result<uint64_t> TarReader::number(std::string_view header, TarField field) const {
  const auto whole = header.substr(field.at, field.length);
  uint64_t value = 0;
  if ((static_cast<uint8_t>(whole[0]) & 0x80) != 0) {
    for (size_t i = 0; i < whole.size(); i++) {
      const auto byte = static_cast<uint8_t>(i == 0 ? whole[i] & 0x7f : whole[i]);
      if (value >> 55 != 0) return damaged_tar("a number is too large");
      value = value << 8 | byte;
    }
    return value;
  }
  for (const char c : whole) {
    if (c == ' ' && value == 0) continue;
    if (c == ' ' || c == '\0') break;
    if (c < '0' || c > '7') return damaged_tar("a number has other digits");
    value = value * 8 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

Result<void> TarReader::check(std::string_view header) const {
  FF_TRY(const uint64_t wanted, number(header, kTarChecksum));
  uint64_t sum = 0;
  for (size_t i = 0; i < header.size(); i++) {
    const bool is_own = i >= kTarChecksum.at && i < kTarChecksum.at + kTarChecksum.length;
    sum += is_own ? uint8_t{' '} : static_cast<uint8_t>(header[i]);
  }
  if (sum == wanted) return {};
  return damaged_tar("a header does not match its checksum");
}

Result<std::string> TarReader::extra(uint64_t length) {
  if (length > kTarExtraMax) return damaged_tar("a name is too long");
  FF_TRY(const auto content, read(length));
  if (content.size() < length) return damaged_tar("it ends in a name");
  return std::string(content);
}

// Records "LENGTH KEY=VALUE\n".
Result<void> TarReader::take_pax(std::string_view records) {
  while (!records.empty() && records[0] != '\0') {
    const size_t space = records.find(' ');
    const auto length = parse_u64(records.substr(0, std::min(space, records.size())));
    if (space == records.npos || !length || *length <= space + 1 || *length > records.size()) {
      return damaged_tar("an extended header");
    }
    auto pair = records.substr(space + 1, *length - space - 2);
    records = records.substr(*length);
    const size_t equals = pair.find('=');
    if (equals == pair.npos) return damaged_tar("an extended header");
    const auto key = pair.substr(0, equals);
    const auto value = pair.substr(equals + 1);
    if (key.starts_with("GNU.sparse.")) {
      return fail(Errc::failed, "{}: it has sparse files; pack them with tar without --sparse",
                  archive_.path());
    }
    if (key == "path") next_name_ = value;
    if (key == "size") {
      next_size_ = parse_u64(value);
      if (!next_size_) return damaged_tar("an extended header");
    }
  }
  return {};
}

Result<void> TarReader::take(std::string_view header) {
  FF_TRY(check(header));
  const char type = header[kTarType.at];
  FF_TRY(uint64_t bytes, number(header, kTarSize));
  const bool is_posix = text(header, kTarMagic) == "ustar" && header[kTarMagic.at + 5] == '\0';
  std::string name(text(header, kTarName));
  if (is_posix && !text(header, kTarPrefix).empty()) {
    name = fmt::format("{}/{}", text(header, kTarPrefix), name);
  }
  at_ += kTarBlock;
  const bool is_extra = type == 'x' || type == 'g' || type == 'L' || type == 'K';
  if (is_extra) {
    FF_TRY(const auto content, extra(bytes));
    if (type == 'x') FF_TRY(take_pax(content));
    if (type == 'L') next_name_ = content.substr(0, content.find('\0'));
  } else {
    name = std::exchange(next_name_, std::nullopt).value_or(std::move(name));
    bytes = std::exchange(next_size_, std::nullopt).value_or(bytes);
    if (type == 'S') {
      return fail(Errc::failed, "{}: it has sparse files; pack them with tar without --sparse",
                  archive_.path());
    }
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (is_file && !name.ends_with('/')) {
      if (bytes > size_ - at_) return damaged_tar("a file goes on after its end: it was cut off");
      while (name.starts_with("./")) name.erase(0, 2);
      if (found_.files.size() == kTarMembersMax) return damaged_tar("it has too many files");
      found_.files.push_back({.name = std::move(name), .begin = at_, .bytes = bytes});
    } else if (is_file || type == '5') {
      bytes = is_file ? bytes : 0;  // of a directory, some programs write what it may hold
    } else {
      found_.left_out++;
      if (type >= '1' && type <= '6') bytes = 0;
    }
  }
  if (bytes > size_ - at_) return damaged_tar("it ends in an entry: it was cut off");
  at_ += align_up(bytes, kTarBlock);
  return {};
}

// How the file is compressed, if it is.
Result<std::optional<std::string_view>> TarReader::compression() {
  struct Magic {
    std::string_view bytes;
    std::string_view program;
  };
  constexpr Magic kMagics[] = {{"\x1f\x8b", "zcat"},
                               {"\x28\xb5\x2f\xfd", "zstdcat"},
                               {"\xfd"
                                "7zXZ",
                                "xzcat"},
                               {"BZh", "bzcat"},
                               {"\x04\x22\x4d\x18", "lz4cat"}};
  FF_TRY(const auto begin, read(8));
  for (const auto& magic : kMagics) {
    if (begin.starts_with(magic.bytes)) return std::optional(magic.program);
  }
  return std::optional<std::string_view>();
}

Result<TarMembers> TarReader::run() {
  FF_TRY(const auto info, archive_.info());
  size_ = info.size;
  FF_TRY(const auto program, compression());
  if (program) {
    return Error{Errc::failed, fmt::format("{}: the archive is compressed", archive_.path()),
                 fmt::format("{} {} | ff record pack --tar - TO", *program, archive_.path())};
  }
  // Zeros end an archive; another one may follow.
  bool has_ended = false;
  while (true) {
    FF_TRY(stop_.check());
    FF_TRY(const auto header, read(kTarBlock));
    if (header.size() < kTarBlock) {
      if (has_ended) return std::move(found_);
      return damaged_tar("it has no end mark, as if it was cut off");
    }
    has_ended = header.find_first_not_of('\0') == header.npos;
    if (has_ended) {
      at_ += kTarBlock;
    } else {
      FF_TRY(take(header));
    }
  }
}

}  // namespace

Result<TarMembers> read_tar(io::File& archive, const StopToken& stop) {
  return TarReader(archive, stop).run();
}

}  // namespace ff::record
