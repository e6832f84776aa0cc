// Imports of PyTorch's files: values and tensors as they were, whatever their strides; files that
// are hostile, huge or damaged. Real files of PyTorch are imported in bindings/import_torch.py.
#include "training/checkpoint/import/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "platform/io/memory_file.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/import/pickle.h"
#include "training/checkpoint/import/tensor_file.h"
#include "training/checkpoint/import/torch_file.h"
#include "training/checkpoint/import/zip.h"
#include "training/checkpoint/load/export.h"
#include "training/checkpoint/options.h"
#include "training/checkpoint/torch_files.h"

namespace ff::checkpoint {
namespace {

namespace tf = torch_files;

class ImportTest : public CheckpointTest {
 protected:
  Result<ImportReport> import(const std::string& content, bool skip_unknown = false) {
    write_whole(path("model.pt"), content);
    return import_path(path("model.pt"), skip_unknown);
  }
  Result<ImportReport> import_path(const std::string& from, bool skip_unknown = false) {
    ImportOptions options;
    options.path = from;
    options.save.step = ++step_;
    options.skip_unknown = skip_unknown;
    auto now = context();
    return import_torch(now, store(), options);
  }
  // The file that an import has made, exported.
  std::string imported() {
    ExportOptions options;
    options.name = fmt::format("default@{}", step_);
    options.out = path("out.safetensors");
    options.force = true;
    auto now = context();
    const auto report = export_safetensors(now, store(), options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report ? read_whole(options.out) : "";
  }
  // The JSON of the state.
  std::string structure() {
    LoadOptions options;
    options.name = fmt::format("default@{}", step_);
    options.dest = path(fmt::format("loaded{}", step_));
    const auto report = load(options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    if (!report) return "";
    const std::string content = read_whole(options.dest + "/state.safetensors");
    const auto length = safetensors_header_length(content.substr(0, 8), content.size());
    const auto texts = safetensors_metadata(std::string_view(content).substr(8, *length));
    return texts.ok() && *texts ? (**texts)[0].second : "";
  }
  void fails(const Result<ImportReport>& report, Errc code, const std::string& text) {
    ASSERT_FALSE(report.ok()) << text;
    EXPECT_EQ(report.error().code, code) << report.error().message;
    EXPECT_NE(report.error().message.find(text), std::string::npos) << report.error().message;
  }

  uint64_t step_ = 0;
};

std::string floats(size_t count) { return noise(count, 4 * count); }

TEST_F(ImportTest, ValuesOfAllKindsBecomeTheStructureOfPython) {
  const std::string big("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01", 11);  // 2^64
  const std::string minus("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff", 11);
  const std::string real("G\x3f\xb9\x99\x99\x99\x99\x99\x9a", 9);  // 0.1
  const std::string one("G\x3f\xf0\x00\x00\x00\x00\x00\x00", 9);
  const std::string nan("G\x7f\xf8\x00\x00\x00\x00\x00\x00", 9);
  const std::string ordered = tf::call(tf::global("collections", "OrderedDict"), {}) + "(" +
                              tf::text("k") + "Nu" +
                              tf::dict({{tf::text("_metadata"), tf::list({})}}) + "b";
  const std::string value = tf::dict({
      {tf::text("step"), tf::integer(-7)},
      {tf::text("big"), tf::list({big, minus})},
      {tf::text("real"), tf::list({real, one, nan})},
      {tf::text("flags"), tf::tuple({"\x88", "\x89", "N"})},
      {tf::text("of ints"), tf::dict({{tf::integer(3), tf::text("<x>")}})},
      {tf::text("ordered"), ordered},
      {tf::text("set"), "\x8f(" + tf::integer(2) + tf::integer(1) + "\x90"},
      {tf::text("raw"), std::string("C\x03") + "ab\xff"},
      {tf::text("dtype"), tf::global("torch", "bfloat16")},
      {tf::text("size"), tf::call(tf::global("torch", "Size"), {tf::numbers({2, 3})})},
  });
  const auto report = import(tf::file(value, {}));
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->left_out, 0u);
  EXPECT_EQ(structure(),
            R"({"state":{"dict":{"step":-7,)"
            R"("big":[{"int":"0x010000000000000000"},{"int":"-0x010000000000000000"}],)"
            R"("real":[0.1,1.0,{"float":"7ff8000000000000"}],"flags":{"tuple":[true,false,null]},)"
            R"("of ints":{"pairs":[[3,"\u003cx>"]]},"ordered":{"ordered":[["k",null]]},)"
            R"("set":{"set":[1,2]},"raw":{"bytes":"raw"},"dtype":{"torch.dtype":"bfloat16"},)"
            R"("size":{"torch.Size":[2,3]}}},"attributes":[[0,{"dict":{"_metadata":[]}}]]})");
  EXPECT_EQ(tensors_of(imported())["raw"].data, "ab\xff");
}

// All elements of a view, one by one.
std::string gathered(const std::string& bytes, uint64_t item, uint64_t first,
                     const std::vector<uint64_t>& shape, const std::vector<uint64_t>& strides) {
  std::string out;
  for (uint64_t number = 0; number < elements(shape); number++) {
    uint64_t at = first;
    uint64_t rest = number;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i]) at += rest % shape[i] * strides[i];
    out += bytes.substr(at * item, item);
  }
  return out;
}

TEST_F(ImportTest, ViewsOfOneStorageAreStoredByValue) {
  const std::string bytes = floats(60);
  struct TensorView {
    uint64_t first;
    std::vector<uint64_t> shape;
    std::vector<uint64_t> strides;
  };
  const std::vector<TensorView> views = {
      {0, {6, 10}, {10, 1}}, {0, {10, 6}, {1, 10}},        {7, {}, {}},
      {3, {4, 3}, {10, 2}},  {0, {3, 2, 10}, {20, 10, 1}}, {0, {5, 4, 3}, {1, 15, 5}},
      {59, {8}, {0}},        {1, {2, 0}, {1, 1}},          {0, {1, 60, 1}, {7, 1, 9}},
      {0, {58, 3}, {1, 1}},
  };
  std::vector<std::pair<std::string, std::string>> items;
  for (size_t i = 0; i < views.size(); i++) {
    items.emplace_back(tf::text(std::to_string(i)),
                       tf::tensor(tf::storage("FloatStorage", "0", 60), views[i].first,
                                  views[i].shape, views[i].strides));
  }
  FF_ASSERT_OK(import(tf::file(tf::dict(items), {bytes})));
  const auto tensors = tensors_of(imported());
  ASSERT_EQ(tensors.size(), views.size());
  for (size_t i = 0; i < views.size(); i++) {
    const auto& found = tensors.at(std::to_string(i));
    EXPECT_EQ(found.shape, views[i].shape) << i;
    EXPECT_EQ(found.data, gathered(bytes, 4, views[i].first, views[i].shape, views[i].strides))
        << i;
  }
}

// What PyTorch writes of parameters, and of tensors with attributes.
TEST_F(ImportTest, ParametersKeepTheirFlagsAndLoseTheirAttributes) {
  const std::string storage = tf::storage("FloatStorage", "0", 2);
  const std::string data = tf::tensor(storage, 0, {2}, {1});
  const std::string hooks = tf::call(tf::global("collections", "OrderedDict"), {});
  const std::string makes = tf::global("torch._utils", "_rebuild_tensor_v2");
  const std::string value = tf::dict({
      {tf::text("p"),
       tf::call(tf::global("torch._utils", "_rebuild_parameter"), {data, "\x88", hooks})},
      {tf::text("q"), tf::call(tf::global("torch._utils", "_rebuild_parameter_with_state"),
                               {data, "\x89", hooks, tf::dict({})})},
      {tf::text("t"), tf::call(tf::global("torch._tensor", "_rebuild_from_type_v2"),
                               {makes, tf::global("torch", "Tensor"),
                                tf::tuple({storage, tf::integer(1), tf::numbers({1}),
                                           tf::numbers({1}), "\x89", hooks}),
                                tf::dict({{tf::text("note"), tf::text("x")}})})},
  });
  const auto report = import(tf::file(value, {floats(2)}));
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->left_out_paths, (std::vector<std::string>{"q (attributes)", "t (attributes)"}));
  EXPECT_NE(
      structure().find(R"("tensors":[["p",["parameter","requires_grad"]],["q",["parameter"]]])"),
      std::string::npos)
      << step_;
  EXPECT_EQ(tensors_of(imported())["t"].data, floats(2).substr(4));
}

TEST_F(ImportTest, Zip64) {
  const std::string bytes = floats(3);
  const std::string value = tf::tensor(tf::storage("FloatStorage", "0", 3), 0, {3}, {1});
  FF_ASSERT_OK(import(tf::file(value, {bytes}, {.has_zip64 = true})));
  EXPECT_EQ(tensors_of(imported())["state"].data, bytes);
}

// Windows of any size and place, of tensors with runs of any length.
TEST_F(ImportTest, AnyWindowOfScatteredTensorsIsRead) {
  SeededRng rng(7);
  const std::string bytes = noise(3, 200'000);
  const auto memory =
      ByteSpan(reinterpret_cast<std::byte*>(const_cast<char*>(bytes.data())), bytes.size());
  ImportSources sources(disk_);
  const auto source =
      sources.add(std::make_shared<io::MemoryFile>("bytes", std::vector<ByteSpan>{memory}));
  FF_ASSERT_OK(source);
  std::vector<ImportedTensor> tensors;
  std::string data;
  for (int i = 0; i < 60; i++) {
    ImportedTensor tensor;
    tensor.name = std::to_string(i);
    tensor.dtype = "U16";
    tensor.source = *source;
    const uint64_t first = rng.next() % 100;
    const uint64_t gap = rng.next() % 3;
    const auto count = static_cast<size_t>(rng.next() % 4);
    std::vector<uint64_t> strides(count);
    std::vector<uint64_t> shape(count);
    uint64_t step = 1;
    for (size_t k = 0; k < count; k++) {  // in any order of dimensions
      shape[k] = 1 + rng.next() % 12;
      strides[k] = step + (k == 0 ? 0 : gap);
      step = strides[k] * shape[k];
    }
    for (size_t k = count; k > 1; k--) {
      const size_t other = rng.next() % k;
      std::swap(shape[k - 1], shape[other]);
      std::swap(strides[k - 1], strides[other]);
    }
    tensor.shape = shape;
    tensor.bytes = 2 * elements(shape);
    tensor.begin = 2 * first;
    for (const uint64_t stride : strides) tensor.strides.push_back(2 * stride);
    data += gathered(bytes, 2, first, shape, strides);
    tensors.push_back(std::move(tensor));
  }
  const auto file = TensorFile::make("f", sources, std::move(tensors), {});
  FF_ASSERT_OK(file);
  const uint64_t size = (*file)->info()->size;
  const uint64_t header = size - data.size();
  for (int i = 0; i < 500; i++) {
    const uint64_t begin = rng.next() % size;
    std::string got(rng.next() % (size - begin), '\0');
    const auto there =
        (*file)->read_cached({reinterpret_cast<std::byte*>(got.data()), got.size()}, begin);
    FF_ASSERT_OK(there);
    const uint64_t skip = begin < header ? std::min(header - begin, got.size()) : 0;
    if (skip == got.size()) continue;
    ASSERT_EQ(got.substr(skip), data.substr(begin + skip - header, got.size() - skip)) << begin;
  }
  std::string past(2, '\0');
  EXPECT_FALSE((*file)->read_cached({reinterpret_cast<std::byte*>(past.data()), 2}, size - 1));
}

TEST_F(ImportTest, NothingThatCouldRunCodeIsAccepted) {
  const std::string good = tf::tensor(tf::storage("FloatStorage", "0", 1), 0, {1}, {1});
  for (const auto& [module, name] : {std::pair("os", "system"),
                                     {"builtins", "eval"},
                                     {"builtins", "getattr"},
                                     {"torch", "load"},
                                     {"torch._utils", "_rebuild_sparse_tensor"},
                                     {"numpy.core.multiarray", "scalar"}}) {
    const std::string bad = tf::call(tf::global(module, name), {tf::text("touch /tmp/x")});
    const std::string value = tf::dict({{tf::text("w"), good}, {tf::text("bad"), bad}});
    fails(import(tf::file(value, {floats(1)})), Errc::refused,
          fmt::format("the pickle needs {}.{}", module, name));
    // Called, and thrown away.
    fails(import(tf::file(bad + "0" + good, {floats(1)})), Errc::refused, name);
    const auto report = import(tf::file(value, {floats(1)}), true);
    FF_ASSERT_OK(report);
    EXPECT_EQ(report->left_out, 1u);
    EXPECT_EQ(report->left_out_paths, std::vector<std::string>{"bad"});
    EXPECT_EQ(tensors_of(imported())["w"].data, floats(1));
  }
  // A class as a value, which loading would have to look up.
  fails(import(tf::file(tf::list({tf::global("builtins", "list")}), {})), Errc::refused, "0: ");
}

TEST_F(ImportTest, TensorsThatCannotBeAreRefused) {
  const std::string bytes = floats(4);
  const auto of = [&](uint64_t first, std::vector<uint64_t> shape, std::vector<uint64_t> strides,
                      int32_t elements = 4, const char* key = "0") {
    return import(tf::file(
        tf::tensor(tf::storage("FloatStorage", key, elements), first, shape, strides), {bytes}));
  };
  FF_ASSERT_OK(of(0, {4}, {1}));
  constexpr uint64_t kHuge = uint64_t{1} << 61;
  fails(of(1, {4}, {1}), Errc::corrupt, "outside of its storage");
  fails(of(0, {2, 2}, {3, 1}), Errc::corrupt, "outside of its storage");
  fails(of(0, {2}, {kHuge}), Errc::corrupt, "outside of its storage");
  fails(of(kHuge, {1}, {1}), Errc::corrupt, "outside of its storage");
  fails(of(0, {kHuge, kHuge}, {0, 0}), Errc::corrupt, "too large");
  fails(of(0, {4}, {}), Errc::corrupt, "size or stride");
  fails(of(0, std::vector<uint64_t>(65, 1), std::vector<uint64_t>(65, 1)), Errc::corrupt, "size");
  fails(of(0, {4}, {1}, 5), Errc::corrupt, "larger than its bytes");
  fails(of(0, {4}, {1}, 4, "1"), Errc::corrupt, "are not in the file");
  // A few bytes that would be a terabyte.
  fails(of(0, {1 << 19, 1 << 19}, {0, 0}), Errc::failed, "which are views of");
  FF_ASSERT_OK(of(3, {50, 40}, {0, 0}));
}

// Small pickles with huge values, and such as would need deep recursion.
TEST_F(ImportTest, HugeAndDeepValuesAreRefused) {
  std::string bomb = "]q" + std::string(1, '\0');
  for (int i = 0; i < 40; i++) {  // each list has the one before it ten times
    const auto index = static_cast<char>(i);
    bomb += "](";
    for (int k = 0; k < 10; k++) bomb += std::string("h") + index;
    bomb += std::string("eq") + static_cast<char>(i + 1);
  }
  // All lists but the last are left on the stack: the list of all of them.
  fails(import(tf::file("(" + bomb + "l", {})), Errc::failed, "the structure around the tensors");
  std::string skipped = tf::call(tf::global("os", "x"), {}) + "q" + std::string(1, '\0');
  for (int i = 0; i < 40; i++) {  // dicts whose entries are all left out
    skipped += "}(";
    for (int k = 0; k < 10; k++) {
      skipped += tf::text(std::to_string(k)) + "h" + static_cast<char>(i);
    }
    skipped += std::string("uq") + static_cast<char>(i + 1);
  }
  fails(import(tf::file("(" + skipped + "l", {}), true), Errc::failed, "the structure around");
  fails(import(tf::file(std::string(300, ']') + std::string(299, 'a'), {})), Errc::failed,
        "nests deeper than 200");
  const std::string itself("]q\0h\0a", 6);
  fails(import(tf::file(itself, {})), Errc::failed, "nests deeper than 200");
  fails(import(tf::file("r\xff\xff\xff\x7f", {})), Errc::corrupt, "lacks a value");
  fails(import(tf::file("Nr\xff\xff\xff\x7f", {})), Errc::failed, "more values than ff reads");
}

TEST_F(ImportTest, WhatIsNoFileOfTorchSaveIsNamed) {
  fails(import(""), Errc::failed, "no ZIP archive");
  fails(import("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e more"), Errc::failed,
        "PyTorch before 1.6");
  fails(import(make_safetensors({})), Errc::failed, "safetensors");
  fails(import(tf::zip({{"a/x", "y"}})), Errc::failed, "no data.pkl");
  fails(import(tf::zip({{"a/data.pkl", tf::pickle("N")}, {"a/constants.pkl", ""}})), Errc::failed,
        "TorchScript");
  fails(import(tf::zip({{"a/data.pkl", tf::pickle("N")}, {"a/byteorder", "big"}})), Errc::failed,
        "byte order");
  fails(import(tf::zip({{"a/data.pkl", tf::pickle("N")}}, {.method = 8})), Errc::failed,
        "compressed");
  fails(import(tf::zip({{"a/data.pkl", "N."}, {"a/data.pkl", "N."}})), Errc::corrupt, "two");
  fails(import(tf::file("I1\n", {})), Errc::failed, "an opcode 0x49");
  fails(import_path(path("none.pt")), Errc::not_found, "none.pt");
  fs::create_directories(path("folder"));
  fails(import_path(path("folder")), Errc::failed, "has no file .metadata");
}

// Whatever bit of a file flips: an error, or the same tensors and values.
TEST_F(ImportTest, AFlippedBitIsNoticedOrHarmless) {
  const std::string bytes = floats(6);
  const std::string value =
      tf::dict({{tf::text("w"), tf::tensor(tf::storage("FloatStorage", "0", 6), 0, {2, 3}, {3, 1})},
                {tf::text("step"), tf::integer(300)}});
  const std::string good = tf::file(value, {bytes});
  FF_ASSERT_OK(import(good));
  const std::string wanted = imported();
  const std::string wanted_structure = structure();
  size_t harmless = 0;
  for (size_t byte = rng_.next() % 4; byte < good.size(); byte += 4) {
    const size_t bit = 8 * byte + rng_.next() % 8;
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    if (!import(flipped)) continue;
    ASSERT_EQ(imported(), wanted) << "bit " << bit;
    ASSERT_EQ(structure(), wanted_structure) << "bit " << bit;
    harmless++;
  }
  EXPECT_LT(harmless, good.size() / 8);  // dates, versions, and entries that nobody reads
  for (size_t size = 0; size < good.size(); size++) {
    EXPECT_FALSE(import(good.substr(0, size)).ok()) << size;
  }
}

class DcpImportTest : public ImportTest {
 protected:
  // A folder with the tensor "w" in two chunks and the object "step".
  void write_folder(const std::string& object, const std::string& package) {
    const auto chunk = [](const std::string& bytes) {
      return tf::file(tf::tensor(tf::storage("FloatStorage", "0", 4), 0, {2, 2}, {2, 1}), {bytes});
    };
    const std::string first = chunk(whole_.substr(0, 16));
    write_whole(path("dcp/__0_0.distcp"), first + chunk(whole_.substr(16)) + object);
    write_whole(path("dcp/.metadata"), tf::dcp_metadata(first.size(), object.size(), package));
  }
  const std::string whole_ = floats(8);
  const std::string step_object_ = tf::file(tf::integer(12), {});
};

TEST_F(DcpImportTest, ChunksOfAFolderAreJoined) {
  for (const std::string package :
       {"torch.distributed.checkpoint", "torch.distributed._shard.checkpoint"}) {
    write_folder(step_object_, package);
    const auto report = import_path(path("dcp"));
    FF_ASSERT_OK(report);
    EXPECT_TRUE(report->is_folder);
    EXPECT_EQ(report->tensors, 2u);
    EXPECT_EQ(report->values, 1u);
    EXPECT_EQ(report->save.outcome, SaveOutcome::committed);
    const auto tensors = tensors_of(imported());
    ASSERT_EQ(tensors.size(), 1u);
    EXPECT_EQ(tensors.at("w").data, whole_);
    EXPECT_EQ(tensors.at("w").shape, (std::vector<uint64_t>{4, 2}));
    step_--;
    const auto again = import_path(path("dcp"));
    FF_ASSERT_OK(again);
    EXPECT_EQ(again->save.outcome, SaveOutcome::already_there);
  }
}

TEST_F(DcpImportTest, HostileAndDamagedFolders) {
  const std::string package = "torch.distributed.checkpoint";
  const std::string bad = tf::file(tf::call(tf::global("os", "system"), {tf::text("x")}), {});
  write_folder(bad, package);
  fails(import_path(path("dcp")), Errc::refused, "'step': the pickle needs os.system");
  const auto report = import_path(path("dcp"), true);
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->left_out_paths, std::vector<std::string>{"step"});
  EXPECT_EQ(tensors_of(imported()).at("w").data, whole_);

  write_folder(step_object_, package);
  const std::string metadata = read_whole(path("dcp/.metadata"));
  const std::string data = read_whole(path("dcp/__0_0.distcp"));
  const uint64_t chunk = (data.size() - step_object_.size()) / 2;
  for (const char* name : {"../dcp/__0_0.distcp", "/etc/passwd", ""}) {
    write_whole(path("dcp/.metadata"), tf::dcp_metadata(chunk, 5, package, name));
    fails(import_path(path("dcp")), Errc::refused, "outside of the folder");
  }
  fs::create_symlink(path("dcp/__0_0.distcp"), path("dcp/link"));
  write_whole(path("dcp/.metadata"), tf::dcp_metadata(chunk, 5, package, "link"));
  EXPECT_FALSE(import_path(path("dcp")).ok());
  write_whole(path("dcp/.metadata"), tf::dcp_metadata(chunk, 5, package, "gone"));
  fails(import_path(path("dcp")), Errc::not_found, "gone");
  write_whole(path("dcp/.metadata"), tf::dcp_metadata(chunk, 5000, package));
  fails(import_path(path("dcp")), Errc::corrupt, "it ends before the bytes of 'step'");
  write_whole(path("dcp/.metadata"), tf::dcp_metadata(chunk - 1, 5, package));
  fails(import_path(path("dcp")), Errc::corrupt, "the archive is damaged");
  write_whole(path("dcp/.metadata"), tf::pickle("N"));
  fails(import_path(path("dcp")), Errc::corrupt, "its value is no Metadata");
  write_whole(path("dcp/.metadata"), metadata);
  std::string flipped = data;
  flipped[data.find(whole_.substr(16)) + 3] ^= 1;
  write_whole(path("dcp/__0_0.distcp"), flipped);
  fails(import_path(path("dcp")), Errc::corrupt, "does not match its CRC-32");
}

}  // namespace
}  // namespace ff::checkpoint
