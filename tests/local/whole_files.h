// Whole files of a test: what they hold, and making them.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ff::local {

inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace ff::local
