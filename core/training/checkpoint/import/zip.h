// The entries of a ZIP archive (PKWARE's APPNOTE.TXT, 4.3), as torch.save() writes them: without
// compression, which refuses archives that grow when they are unpacked, and with Zip64 sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::checkpoint {

constexpr uint64_t kZipDirectoryMax = uint64_t{1} << 28;  // bytes of the list of entries

class ZipArchive {
 public:
  struct Entry {
    uint64_t size = 0;
    uint64_t header = 0;    // where the entry begins in the archive
    uint32_t crc = 0;       // CRC-32 of the bytes
    bool is_plain = false;  // neither compressed nor encrypted
  };

  // Fills `into` from `offset` of the archive on.
  using Read = std::function<Result<void>(ByteSpan into, uint64_t offset)>;

  // An archive of `length` bytes. Errc::corrupt: no ZIP archive, or a damaged one.
  static Result<ZipArchive> open(const Read& read, uint64_t length);

  // By name.
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  const Entry* find(std::string_view name) const;
  // Where the bytes of an entry begin in the archive. Errc::corrupt: they exceed it; failed: they
  // are compressed or encrypted.
  Result<uint64_t> data_of(const Read& read, std::string_view name, const Entry& entry) const;

 private:
  Result<void> read_entries(ByteView directory, uint64_t count);

  std::map<std::string, Entry, std::less<>> entries_;
  uint64_t directory_ = 0;  // where the list of entries begins
};

}  // namespace ff::checkpoint
