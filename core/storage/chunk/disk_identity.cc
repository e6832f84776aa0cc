// disk_identity.cc: parsing and checks. Each error says what was found and what to do.
#include "storage/chunk/disk_identity.h"

#include <algorithm>
#include <optional>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::chunk {
namespace {

constexpr std::string_view kMagic = "ff-disk ";
constexpr std::string_view kCrc = " crc=";
constexpr size_t kIdMax = 64;
constexpr uint64_t kLineMax = 4096;  // a longer file was not written by ff

std::string identity_path(const std::string& dir) { return io::join(dir, "ff-disk"); }

bool good_id(std::string_view id) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
  };
  return !id.empty() && id.size() <= kIdMax && std::ranges::all_of(id, allowed);
}

std::string crc_of(std::string_view text) {
  return fmt::format("{:08x}", simd::crc32c(as_bytes(text)));
}

// Removes and returns the first word.
std::string_view take_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

std::optional<std::string_view> value_of(std::string_view word, std::string_view name) {
  if (!word.starts_with(name)) return std::nullopt;
  return word.substr(name.size());
}

Error not_ours(const std::string& path) {
  return Error{Errc::refused, fmt::format("{}: not a disk of ff", path),
               "Use an empty folder, or move its files elsewhere."};
}

}  // namespace

std::string to_line(const DiskIdentity& identity) {
  std::string line = fmt::format("{}{} cluster={} disk={} node={}", kMagic, identity.format,
                                 identity.cluster, identity.disk, identity.node);
  const std::string crc = crc_of(line);
  line += kCrc;
  line += crc;
  line += '\n';
  return line;
}

Result<DiskIdentity> parse_identity(std::string_view line, const std::string& path) {
  if (!line.starts_with(kMagic)) return not_ours(path);
  std::string_view words = line.substr(kMagic.size());
  const auto format = parse_u64(take_word(words));
  if (format && *format > kDiskFormat) {
    return Error{Errc::newer_format,
                 fmt::format("{}: the disk has format {}, and this ff supports {}", path, *format,
                             kDiskFormat),
                 "Start the newer ff version that wrote it."};
  }
  const size_t crc = line.rfind(kCrc);
  Error damaged{Errc::corrupt, fmt::format("{}: damaged", path),
                "Check the health of the disk; its data is replicated on other disks."};
  if (!format || crc == std::string_view::npos ||
      line.substr(crc + kCrc.size()) != crc_of(line.substr(0, crc)) + "\n") {
    return damaged;
  }
  const auto cluster = value_of(take_word(words), "cluster=");
  const auto disk = value_of(take_word(words), "disk=");
  const auto node = value_of(take_word(words), "node=");
  if (*format < 1 || !cluster || !good_id(*cluster) || !disk || !good_id(*disk) || !node ||
      !parse_u64(*node) || !take_word(words).starts_with("crc=") || !words.empty()) {
    return damaged;
  }
  return DiskIdentity{.cluster = std::string(*cluster),
                      .disk = std::string(*disk),
                      .node = *parse_u64(*node),
                      .format = static_cast<uint32_t>(*format)};
}

Result<std::unique_ptr<io::File>> lock_disk(io::Disk& disk, const std::string& dir) {
  FF_TRY(auto file, io::lock_file(disk, io::join(dir, "lock")));
  if (file == nullptr) {
    return Error{Errc::busy, fmt::format("{}: another process has this disk open", dir),
                 "Stop the other ff serve-storage first, or give each its own disks."};
  }
  return file;
}

Result<DiskIdentity> read_identity(io::Disk& disk, const std::string& dir) {
  const std::string path = identity_path(dir);
  auto line = io::read_file(disk, path, kLineMax);
  if (line) return parse_identity(*line, path);
  if (line.error().code != Errc::not_found) return std::move(line).error();
  FF_TRY(disk.info(dir));  // reports a missing folder as such
  return Error{Errc::not_found, fmt::format("{}: no disk of ff was created here", dir),
               "Check that the disk is mounted there, or create a disk of ff."};
}

Result<void> write_identity(io::Disk& disk, const std::string& dir, const DiskIdentity& identity) {
  if (!good_id(identity.cluster) || !good_id(identity.disk)) {
    return fail(Errc::usage, "{}: an id has 1 to {} letters, digits and '-'", dir, kIdMax);
  }
  return io::replace_file(disk, identity_path(dir), to_line(identity), "new");
}

Result<void> check_cluster(const DiskIdentity& identity, const std::string& cluster,
                           const std::string& dir) {
  if (identity.cluster == cluster) return {};
  return Error{
      Errc::refused,
      fmt::format("{}: the disk belongs to cluster {}, not to {}", dir, identity.cluster, cluster),
      "Use it in its own cluster, or empty it if its data is not needed."};
}

}  // namespace ff::chunk
