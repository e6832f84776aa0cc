// Entries of tar archives, for tests and fuzz targets.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/bytes.h"

namespace ff::record {

// A header with the checksum of what it has.
inline std::string tar_sealed(std::string header) {
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < 512; i++) sum += static_cast<uint8_t>(header[i]);
  header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header;
}

// Header, content, padding; `size` is what the header says.
inline std::string tar_entry(const std::string& name, char type, const std::string& content,
                             std::optional<uint64_t> size = {}) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(124, 11, fmt::format("{:011o}", size.value_or(content.size())));
  header[156] = type;
  header.replace(257, 8,
                 std::string("ustar\0"
                             "00",
                             8));
  std::string padded = content;
  padded.resize(align_up(content.size(), 512), '\0');
  return tar_sealed(header) + padded;
}

}  // namespace ff::record
