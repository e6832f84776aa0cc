// Sources compiled for newer CPUs must not include headers whose inline functions the linker could
// share with the rest of the program (see crc32c_paths.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
                                         "\"platform/simd/crc32c_paths.h\"",
                                         "\"platform/simd/xxh128_paths.h\"",
                                         "\"platform/simd/xxh128_unit.h\"",
                                         "\"platform/simd/gemm_paths.h\"",
                                         "\"platform/simd/gemm_unit.h\"",
                                         "\"platform/simd/reduce_paths.h\"",
                                         "\"platform/simd/reduce_unit.h\"",
                                         "\"platform/simd/wire_paths.h\"",
                                         "\"platform/simd/wire_unit.h\"",
                                         "\"platform/simd/md5_paths.h\"",
                                         "\"platform/simd/md5_rounds.h\"",
                                         "\"platform/simd/md5_unit.h\""};
  const std::array units_of = {"crc32c_", "xxh128_", "gemm_", "reduce_", "wire_", "md5_"};
  const fs::path folder = fs::path(FF_SOURCE_DIR) / "core/platform/simd";
  int units = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (std::ranges::none_of(units_of, [&](auto one) { return name.starts_with(one); })) continue;
    ++units;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("#include ")) continue;
      EXPECT_TRUE(allowed.contains(line.substr(9))) << name << ": " << line;
    }
  }
  EXPECT_GE(units, 29);
}

}  // namespace
