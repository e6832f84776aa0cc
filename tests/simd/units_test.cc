// The units compiled for newer CPUs may include nothing whose inline functions the linker could
// share with the rest of the program (see crc32c_paths.h).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;

TEST(SimdUnits, IncludeOnlyIntrinsicsAndTheirPaths) {
  const std::set<std::string> allowed = {"<immintrin.h>",
                                         "<nmmintrin.h>",
                                         "<wmmintrin.h>",
                                         "<string.h>",
                                         "<stddef.h>",
                                         "<stdint.h>",
                                         "<xxhash.h>",
                                         "\"simd/crc32c_paths.h\"",
                                         "\"simd/xxh128_paths.h\"",
                                         "\"simd/xxh128_unit.h\""};
  const fs::path folder = fs::path(FF_SOURCE_DIR) / "core/simd";
  int units = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("crc32c_") && !name.starts_with("xxh128_")) continue;
    ++units;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("#include ")) continue;
      EXPECT_TRUE(allowed.contains(line.substr(9))) << name << ": " << line;
    }
  }
  EXPECT_GE(units, 8);
}

}  // namespace
