// zip.cc: the directory at the end of an archive, and the headers in front of entries.
#include "training/checkpoint/import/zip.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "platform/base/text.h"

namespace ff::checkpoint {
namespace {

constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50;
constexpr uint32_t kLocatorMagic = 0x07064b50;
constexpr uint32_t kDirectoryMagic = 0x02014b50;
constexpr uint32_t kLocalMagic = 0x04034b50;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocatorBytes = 20;
constexpr uint64_t kDirectoryBytes = 46;
constexpr uint64_t kLocalBytes = 30;
constexpr uint16_t kZip64Field = 1;
constexpr uint32_t kIn64 = UINT32_MAX;  // a size that is in the Zip64 field
constexpr uint16_t kEncrypted = 1;

Error damaged_zip(std::string_view what) {
  return fail(Errc::corrupt, "the archive is damaged: {}", what);
}

struct ZipDirectory {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t begin = 0;
};

Result<ZipDirectory> find_directory(const ZipArchive::Read& read, uint64_t length) {
  if (length < kEndBytes) return damaged_zip("it is too short for a ZIP archive");
  std::vector<std::byte> end(kEndBytes);
  FF_TRY(read(end, length - kEndBytes));
  if (load_le<uint32_t>(end.data()) != kEndMagic || load_le<uint16_t>(end.data() + 20) != 0) {
    return damaged_zip("its list of entries is missing, as in a file that was cut off");
  }
  ZipDirectory found{.entries = load_le<uint16_t>(end.data() + 10),
                     .bytes = load_le<uint32_t>(end.data() + 12),
                     .begin = load_le<uint32_t>(end.data() + 16)};
  if (length < kEndBytes + kLocatorBytes) return found;
  std::vector<std::byte> locator(kLocatorBytes);
  FF_TRY(read(locator, length - kEndBytes - kLocatorBytes));
  if (load_le<uint32_t>(locator.data()) != kLocatorMagic) return found;
  const auto at = load_le<uint64_t>(locator.data() + 8);
  if (at > length || length - at < kEnd64Bytes) return damaged_zip("its Zip64 record is outside");
  std::vector<std::byte> end64(kEnd64Bytes);
  FF_TRY(read(end64, at));
  if (load_le<uint32_t>(end64.data()) != kEnd64Magic) return damaged_zip("no Zip64 record");
  found.entries = load_le<uint64_t>(end64.data() + 32);
  found.bytes = load_le<uint64_t>(end64.data() + 40);
  found.begin = load_le<uint64_t>(end64.data() + 48);
  return found;
}

// Sizes and place of an entry that are in its Zip64 field, in this order, if they are there.
Result<void> read_zip64(ByteView extra, ZipArchive::Entry& entry, uint64_t& packed) {
  uint64_t* wanted[] = {&entry.size, &packed, &entry.header};
  while (extra.size() >= 4) {
    const auto id = load_le<uint16_t>(extra.data());
    const auto length = load_le<uint16_t>(extra.data() + 2);
    if (length > extra.size() - 4) return damaged_zip("a field of an entry is too long");
    ByteView field = extra.subspan(4, length);
    extra = extra.subspan(4 + size_t{length});
    if (id != kZip64Field) continue;
    for (uint64_t* value : wanted) {
      if (*value != kIn64) continue;
      if (field.size() < 8) return damaged_zip("a Zip64 field is too short");
      *value = load_le<uint64_t>(field.data());
      field = field.subspan(8);
    }
    return {};
  }
  return {};
}

}  // namespace

Result<ZipArchive> ZipArchive::open(const Read& read, uint64_t length) {
  FF_TRY(const auto directory, find_directory(read, length));
  if (directory.begin > length || directory.bytes > length - directory.begin) {
    return damaged_zip("its list of entries is outside");
  }
  if (directory.bytes > kZipDirectoryMax) {
    return fail(Errc::failed, "the list of entries has {} bytes; ff reads {}", directory.bytes,
                kZipDirectoryMax);
  }
  std::vector<std::byte> bytes(directory.bytes);
  FF_TRY(read(bytes, directory.begin));
  ZipArchive made;
  made.directory_ = directory.begin;
  FF_TRY(made.read_entries(bytes, directory.entries));
  return made;
}

Result<void> ZipArchive::read_entries(ByteView directory, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    if (directory.size() < kDirectoryBytes ||
        load_le<uint32_t>(directory.data()) != kDirectoryMagic) {
      return damaged_zip("its list of entries ends too soon");
    }
    const std::byte* at = directory.data();
    const size_t name_bytes = load_le<uint16_t>(at + 28);
    const size_t extra_bytes = load_le<uint16_t>(at + 30);
    const size_t all = kDirectoryBytes + name_bytes + extra_bytes + load_le<uint16_t>(at + 32);
    if (all > directory.size()) return damaged_zip("its list of entries ends too soon");
    Entry entry{.size = load_le<uint32_t>(at + 24),
                .header = load_le<uint32_t>(at + 42),
                .crc = load_le<uint32_t>(at + 16),
                .is_plain = load_le<uint16_t>(at + 10) == 0 &&
                            (load_le<uint16_t>(at + 8) & kEncrypted) == 0};
    uint64_t packed = load_le<uint32_t>(at + 20);
    FF_TRY(read_zip64(directory.subspan(kDirectoryBytes + name_bytes, extra_bytes), entry, packed));
    const auto name = as_text(directory.subspan(kDirectoryBytes, name_bytes));
    if (entry.is_plain && packed != entry.size) return damaged_zip("an entry has two sizes");
    if (!entries_.emplace(name, entry).second) {
      return damaged_zip(fmt::format("it has two entries '{}'", printable(name)));
    }
    directory = directory.subspan(all);
  }
  return {};
}

const ZipArchive::Entry* ZipArchive::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Result<uint64_t> ZipArchive::data_of(const Read& read, std::string_view name,
                                     const Entry& entry) const {
  if (!entry.is_plain) {
    return Error{Errc::failed,
                 fmt::format("the entry '{}' is compressed or encrypted", printable(name)),
                 "torch.save() does neither: unpack the archive, and pack it again without "
                 "compression (zip -0 -r)."};
  }
  const auto outside = [&] {
    return damaged_zip(fmt::format("the entry '{}' is outside", printable(name)));
  };
  if (entry.header > directory_ || directory_ - entry.header < kLocalBytes) return outside();
  std::vector<std::byte> local(kLocalBytes);
  FF_TRY(read(local, entry.header));
  if (load_le<uint32_t>(local.data()) != kLocalMagic) return outside();
  const uint64_t begin = entry.header + kLocalBytes + load_le<uint16_t>(local.data() + 26) +
                         load_le<uint16_t>(local.data() + 28);
  if (begin > directory_ || entry.size > directory_ - begin) return outside();
  return begin;
}

}  // namespace ff::checkpoint
