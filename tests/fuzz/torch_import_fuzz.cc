// Files of PyTorch from anywhere: no crash, no hang, bounded memory; no name gets through that
// could run code; tensors lie in the file, and the structure around them is JSON that names each
// once.
//
// The first byte says what the rest is: a file, a pickle in a file whose checksums are right, or
// the pickle `.metadata` of a folder.
#include <rapidjson/document.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "platform/io/memory_file.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"
#include "training/checkpoint/format/tensor_parts.h"
#include "training/checkpoint/import/dcp_folder.h"
#include "training/checkpoint/import/torch_file.h"
#include "training/checkpoint/import/torch_state.h"
#include "training/checkpoint/torch_files.h"

namespace {

using namespace ff;
using namespace ff::checkpoint;
namespace tf = torch_files;

constexpr uint64_t kReadMax = uint64_t{1} << 20;  // bytes of tensors that are read

void check_json(const std::string& text) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(text.data(), text.size());
  FF_CHECK(!document.HasParseError());
}

// All of them can be read, as a file that safetensors accepts.
void check_tensors(ImportSources& sources, std::vector<ImportedTensor> tensors,
                   const SafetensorsMetadata& texts) {
  uint64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (__builtin_add_overflow(bytes, tensor.bytes, &bytes) || bytes > kReadMax) return;
  }
  const auto file = TensorFile::make("fuzz", sources, std::move(tensors), texts);
  if (!file) return;
  const uint64_t size = (*file)->info()->size;
  std::string content(size, '\0');
  FF_CHECK((*file)->read_at({reinterpret_cast<std::byte*>(content.data()), size}, 0).ok());
  const auto length = safetensors_header_length(std::string_view(content).substr(0, 8), size);
  FF_CHECK(length.ok());
  const auto header =
      SafetensorsHeader::parse(std::string_view(content).substr(8, *length), size - 8 - *length);
  FF_CHECK(header.ok());
}

void import_file(ImportSources& sources, std::string content, bool skip_unknown) {
  const ByteSpan memory(reinterpret_cast<std::byte*>(content.data()), content.size());
  const auto source =
      sources.add(std::make_shared<io::MemoryFile>("fuzz.pt", std::vector<ByteSpan>{memory}));
  const auto file = TorchFile::open(sources, *source, 0, content.size(), skip_unknown);
  if (!file) return;
  auto state = torch_state(*file, skip_unknown);
  if (!state) return;
  check_json(state->document);
  FF_CHECK(state->left_out == 0 || !state->left_out_paths.empty());
  check_tensors(sources, std::move(state->tensors),
                {{std::string(kStateKey), std::move(state->document)}});
}

std::string chunk_file() {
  return tf::file(tf::tensor(tf::storage("FloatStorage", "0", 4), 0, {2, 2}, {2, 1}),
                  {std::string(16, 'x')});
}

// The folder has two chunks and an object.
void import_folder(sim::SimDisk& disk, std::string_view metadata) {
  const std::string chunk = chunk_file();
  const auto write = [&](const std::string& path, std::string_view content) {
    auto file = disk.open(path, {.access = io::AccessMode::write, .create = true});
    FF_CHECK(file.ok() && (*file)->write_at(as_bytes(content), 0).ok());
  };
  FF_CHECK(disk.make_dir("/dcp", 0755).ok());
  write("/dcp/__0_0.distcp", chunk + chunk + tf::file(tf::integer(12), {}));
  write("/dcp/.metadata", metadata);
  ImportSources sources(disk);
  auto made = read_dcp_folder(sources, "/dcp", false);
  if (!made) return;
  check_json(made->description);
  FF_CHECK(parse_tensor_parts(made->parts).ok());
  check_tensors(sources, std::move(made->tensors), {{std::string(kTensorPartsKey), made->parts}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  sim::SimClock clock;
  sim::SimDisk disk(1, clock);
  ImportSources sources(disk);
  switch (data[0] % 4) {
    case 0: import_file(sources, std::string(input), false); break;
    case 1:
    case 2: {
      const std::string storage(64, 'y');
      import_file(
          sources,
          tf::zip(
              {{"a/data.pkl", std::string(input)}, {"a/data/0", storage}, {"a/data/1", storage}}),
          data[0] % 4 == 2);
      break;
    }
    default: import_folder(disk, input);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const auto of = [](std::string_view type, const char* key, std::vector<uint64_t> shape,
                     std::vector<uint64_t> strides) {
    return tf::tensor(tf::storage(type, key, 16), 0, shape, strides);
  };
  const std::string ordered = tf::call(tf::global("collections", "OrderedDict"), {}) + "(" +
                              tf::text("w") + of("FloatStorage", "0", {4, 4}, {1, 4}) + "u" +
                              tf::dict({{tf::text("_metadata"), tf::list({})}}) + "b";
  const std::string parameter =
      tf::call(tf::global("torch._utils", "_rebuild_parameter"),
               {of("HalfStorage", "1", {2, 8}, {8, 1}), "\x88", tf::dict({})});
  const std::string value =
      tf::dict({{tf::text("model"), ordered},
                {tf::text("p"), parameter},
                {tf::text("other"), tf::list({tf::integer(3), "N", "\x88", "]", ")", "}"})},
                {tf::integer(1), tf::tuple({tf::text("a"), std::string("C\x02hi", 4)})},
                {tf::text("set"), "\x8f(" + tf::integer(2) + "\x90"},
                {tf::text("size"), tf::call(tf::global("torch", "Size"), {tf::numbers({2})})}});
  const std::string unknown = tf::call(tf::global("os", "system"), {tf::text("x")});
  const uint64_t chunk = chunk_file().size();
  const uint64_t object = tf::file(tf::integer(12), {}).size();
  return {std::string(1, '\0') + tf::file(value, {std::string(64, 'y'), std::string(64, 'z')}),
          "\1" + tf::pickle(value), "\2" + tf::pickle(tf::list({value, unknown})),
          "\3" + tf::dcp_metadata(chunk, object),
          "\3" + tf::dcp_metadata(chunk, object, "torch.distributed._shard.checkpoint")};
}
