// Names of the samples of an FFRecord file, which the format has no place for: the text file
// NAME.ffr.names beside NAME.ffr, one line for each sample. In a name, a newline is written \n and
// a backslash \\.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::record {

inline constexpr std::string_view kNamesSuffix = ".names";

// The content of such a file.
std::string encode_names(const std::vector<std::string>& names);
// Nothing: these are not names of so many samples.
std::optional<std::vector<std::string>> decode_names(std::string_view content, uint64_t samples);

// Of the FFRecord file `path`. Durable; replaces a file of names.
Result<void> write_names(io::Disk& disk, Rng& rng, const std::string& path,
                         const std::vector<std::string>& names);
// If there are any.
Result<void> remove_names(io::Disk& disk, const std::string& path);
// Nothing: it has none. Errc::corrupt: they are those of another number of samples.
Result<std::optional<std::vector<std::string>>> read_names(io::Disk& disk, const std::string& path,
                                                           uint64_t samples);

}  // namespace ff::record
