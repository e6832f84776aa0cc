// Fixture of checkpoint tests: a temporary directory, a context, safetensors files from a list, and
// functions to save, load and damage.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/system_disk.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/load/load.h"
#include "training/checkpoint/save/save.h"

namespace ff::checkpoint {

// The number of elements of a tensor with this shape.
inline uint64_t elements(const std::vector<uint64_t>& shape) {
  uint64_t count = 1;
  for (const uint64_t length : shape) count *= length;
  return count;
}

namespace fs = std::filesystem;

// Fails the test with the error's message.
#define FF_ASSERT_OK(...)                                                   \
  do {                                                                      \
    const auto& ff_assert_result = (__VA_ARGS__);                           \
    ASSERT_TRUE(ff_assert_result.ok()) << ff_assert_result.error().message; \
  } while (false)

inline std::string read_whole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_whole(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
  ASSERT_TRUE(out.flush()) << path;
}

// Bit 0 is the lowest of the first byte.
inline void flip_bit(const fs::path& path, uint64_t bit) {
  std::string content = read_whole(path);
  ASSERT_LT(bit / 8, content.size());
  content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << bit % 8));
  write_whole(path, content);
}

// Bytes without a pattern, the same for the same seed.
inline std::string noise(uint64_t seed, size_t size) {
  SeededRng rng(seed);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(rng.next());
  return out;
}

struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string data;
};

// A canonical file. Nothing for `metadata`: no __metadata__.
inline std::string make_safetensors(const std::vector<TensorSpec>& tensors,
                                    const std::optional<SafetensorsMetadata>& metadata = {}) {
  SafetensorsHeaderWriter writer;
  if (metadata) writer.metadata(*metadata);
  for (const auto& tensor : tensors) {
    writer.tensor(tensor.name, tensor.dtype, tensor.shape, tensor.data.size());
  }
  std::string out = writer.finish().value();
  for (const auto& tensor : tensors) out += tensor.data;
  return out;
}

// Tensors of a safetensors file by name, their data included.
inline std::map<std::string, TensorSpec> tensors_of(const std::string& content) {
  std::map<std::string, TensorSpec> out;
  const auto length = safetensors_header_length(content.substr(0, 8), content.size());
  EXPECT_TRUE(length.ok());
  if (!length) return out;
  const std::string_view data = std::string_view(content).substr(8 + *length);
  const auto header =
      SafetensorsHeader::parse(std::string_view(content).substr(8, *length), data.size());
  EXPECT_TRUE(header.ok()) << header.error().message;
  if (!header) return out;
  for (size_t i = 0; i < header->count(); i++) {
    const auto tensor = header->tensor(i);
    out[std::string(tensor.name)] = {
        std::string(tensor.name), std::string(tensor.dtype), tensor.shape,
        std::string(data.substr(tensor.begin, tensor.end - tensor.begin))};
  }
  return out;
}

// Every file below a directory by its relative path; directories as "NAME/" with no content.
inline std::map<std::string, std::string> tree_of(const fs::path& dir) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    const std::string name = entry.path().lexically_relative(dir).string();
    if (entry.is_symlink()) {
      out[name] = "-> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_directory()) {
      out[name + "/"] = "";
    } else {
      out[name] = read_whole(entry.path());
    }
  }
  return out;
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "ff-ckpt-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string path(const std::string& name) const { return dir_ / name; }
  std::string store() const { return path("store"); }

  Context context() {
    return Context{.disk = disk_,
                   .clock = clock_,
                   .rng = rng_,
                   .stop = stop_,
                   .progress = progress_,
                   .threads = threads_};
  }

  Result<SaveReport> save(const std::vector<std::string>& paths, SaveOptions options = {}) {
    auto ctx = context();
    return ff::checkpoint::save(ctx, store(), {.paths = paths, .stream = {}}, options);
  }

  Result<LoadReport> load(LoadOptions options) {
    auto ctx = context();
    return ff::checkpoint::load(ctx, store(), options);
  }

  // Saves one file of the given content as `step` of the default run.
  void save_file(const std::string& name, const std::string& content, uint64_t step,
                 SaveOptions options = {}) {
    write_whole(path(name), content);
    options.step = step;
    FF_ASSERT_OK(save({path(name)}, options));
  }

  // Chunk files of the store, in the order of their names.
  std::vector<fs::path> chunk_files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::recursive_directory_iterator(store() + "/chunks")) {
      if (entry.is_regular_file()) out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  std::string index_path(uint64_t step = 1) const {
    return store() + "/runs/default/" + std::to_string(step) + "/index.jsonl";
  }

  fs::path dir_;
  unsigned threads_ = 2;
  io::SystemDisk disk_;
  SystemClock clock_;
  SeededRng rng_{7};
  StopToken stop_{clock_};
  Progress progress_;
};

}  // namespace ff::checkpoint
