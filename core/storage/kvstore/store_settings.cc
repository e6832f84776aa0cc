// store_settings.cc: the file as text with a checksum.
#include "storage/kvstore/store_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"
#include "storage/kvstore/calls.h"

namespace ff::kvstore {

namespace {

constexpr uint64_t kMaxSettingsBytes = 4096;
constexpr std::string_view kStoreName = "ff-kv store ";
constexpr uint64_t kFormat = 1;

std::string encode_settings(const StoreSettings& settings) {
  const std::string text = fmt::format("{}{}\npartitions {}\nsecret {}\n", kStoreName, kFormat,
                                       settings.partitions, settings.secret);
  return text + fmt::format("crc {:08x}\n", simd::crc32c(as_bytes(text)));
}

Result<StoreSettings> parse_settings(const std::string& path, std::string_view text) {
  const auto lines = split(text, '\n');
  if (lines.size() < 4 || !lines[0].starts_with(kStoreName)) {
    return fail(Errc::corrupt, "{}: not a store of keys and values", path);
  }
  const uint64_t format = parse_u64(lines[0].substr(kStoreName.size())).value_or(0);
  if (format > kFormat) {
    return fail(Errc::newer_format, "{}: written by a newer ff (format {})", path, format);
  }
  StoreSettings settings;
  const auto partitions = split(lines[1], ' ');
  const auto secret = split(lines[2], ' ');
  if (partitions.size() == 2 && secret.size() == 2) {
    settings.partitions = static_cast<uint32_t>(parse_u64(partitions[1]).value_or(0));
    settings.secret = std::string(secret[1]);
  }
  const bool in_range = settings.partitions > 0 && settings.partitions <= kSlots;
  if (!in_range || encode_settings(settings) != text) {
    return fail(Errc::corrupt, "{}: damaged", path);
  }
  return settings;
}

std::string settings_path(const std::string& folder) { return io::join(folder, "store"); }

}  // namespace

Result<StoreSettings> read_settings(io::Disk& disk, const std::string& folder) {
  const std::string path = settings_path(folder);
  FF_TRY(const std::string text, io::read_file(disk, path, kMaxSettingsBytes));
  return parse_settings(path, text);
}

// Another process may create it at the same time.
Result<StoreSettings> make_settings(io::Disk& disk, Rng& rng, const std::string& folder,
                                    uint32_t partitions) {
  const std::string path = settings_path(folder);
  FF_TRY(const bool there, io::exists(disk, path));
  if (!there) {
    const StoreSettings made{.partitions = std::clamp(partitions, 1U, kSlots),
                             .secret = rng.hex_id()};
    const std::string temp = io::join(folder, "new-" + rng.hex_id());
    FF_TRY(io::replace_file(disk, temp, encode_settings(made), "new"));
    auto linked = disk.link(temp, path);
    (void)disk.remove(temp);
    if (!linked && linked.error().code != Errc::exists) return linked.error();
    FF_TRY(disk.sync_dir(folder));
  }
  return read_settings(disk, folder);
}

uint32_t partition_of_slot(uint32_t redis_slot, uint32_t partitions) {
  const uint32_t slot = redis_slot / (kRedisSlots / kSlots);
  return slot * partitions / kSlots;
}

uint32_t first_slot(uint32_t partition, uint32_t partitions) {
  return (partition * kSlots + partitions - 1) / partitions * (kRedisSlots / kSlots);
}

std::string partition_dir(const std::string& folder, uint32_t partition) {
  return io::join(folder, fmt::format("p{:04}", partition));
}

std::string members_dir(const std::string& folder) { return io::join(folder, "members"); }

}  // namespace ff::kvstore
