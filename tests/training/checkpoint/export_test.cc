// Exports: canonical files are identical, others become canonical, and a failed export leaves
// nothing.
#include "training/checkpoint/load/export.h"

#include <gtest/gtest.h>

#include "platform/base/bytes.h"
#include "training/checkpoint/fixture.h"

namespace ff::checkpoint {
namespace {

class Export : public CheckpointTest {
 protected:
  Result<ExportReport> run(ExportOptions options) {
    auto ctx = context();
    return export_safetensors(ctx, store(), options);
  }
  Result<ExportReport> run_to(const std::string& out) {
    ExportOptions options;
    options.name = "default";
    options.out = path(out);
    return run(options);
  }
  std::vector<TensorSpec> tensors_ = {{"z", "F32", {300, 1000}, noise(1, 1'200'000)},
                                      {"a<b>\"\\\n", "I64", {}, noise(2, 8)},
                                      {"none", "BF16", {0}, ""},
                                      {"big", "BF16", {3000, 1001}, noise(3, 6'006'000)},
                                      {"odd", "F8_E4M3", {3}, "abc"},
                                      {"new", "F3_NEW", {9}, "xyz"},
                                      {"zeros", "F64", {700'000}, std::string(5'600'000, '\0')}};
};

TEST_F(Export, CanonicalFilesComeBackByteForByte) {
  const std::vector<std::optional<SafetensorsMetadata>> variants = {
      std::nullopt, SafetensorsMetadata{},
      SafetensorsMetadata{{"format", "pt"}, {"a", "/<script>\t\x01"}, {"\xc3\xa9", ""}}};
  uint64_t step = 0;
  for (const auto& metadata : variants) {
    SCOPED_TRACE(++step);
    const std::string content = make_safetensors(tensors_, metadata);
    save_file("model.safetensors", content, step);
    const auto report = run_to("out" + std::to_string(step));
    FF_ASSERT_OK(report);
    EXPECT_TRUE(read_whole(path("out" + std::to_string(step))) == content);
    EXPECT_EQ(report->tensors, 7U);
    EXPECT_EQ(report->bytes, content.size());
    EXPECT_EQ(report->opaque_files, 0U);
    EXPECT_EQ(report->name.step, step);
  }
}

TEST_F(Export, CompressedChunksToo) {
  tensors_[0].data = std::string(1'200'000, 'x');
  SaveOptions options;
  options.compress = true;
  const std::string content = make_safetensors(tensors_);
  save_file("model.safetensors", content, 1, options);
  FF_ASSERT_OK(run_to("out"));
  EXPECT_TRUE(read_whole(path("out")) == content);
}

TEST_F(Export, OtherFilesBecomeCanonical) {
  // Spaces, another key order, tensors not in data order, metadata last.
  const std::string json =
      R"({ "b" : {"shape":[2], "dtype":"F32", "data_offsets":[3,11]},)"
      R"( "a":{"data_offsets":[0,3],"dtype":"U8","shape":[3]}, "__metadata__":{"k":"v"} })";
  std::string content(8, '\0');
  store_le(reinterpret_cast<std::byte*>(content.data()), uint64_t{json.size()});
  content += json + "xyz" + "12345678";
  save_file("model.safetensors", content, 1);
  FF_ASSERT_OK(run_to("out"));
  EXPECT_EQ(read_whole(path("out")),
            make_safetensors({{"a", "U8", {3}, "xyz"}, {"b", "F32", {2}, "12345678"}},
                             SafetensorsMetadata{{"k", "v"}}));
}

TEST_F(Export, GathersFilesAndCountsOpaqueOnes) {
  write_whole(path("in/one.safetensors"), make_safetensors({tensors_[0]}));
  write_whole(path("in/two.safetensors"), make_safetensors({tensors_[1], tensors_[3]}));
  write_whole(path("in/config.json"), "{}");
  write_whole(path("in/deep/notes"), "text");
  FF_ASSERT_OK(save({path("in")}));
  const auto report = run_to("out");
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->opaque_files, 2U);
  EXPECT_TRUE(read_whole(path("out")) == make_safetensors({tensors_[0], tensors_[1], tensors_[3]}));

  ExportOptions options;
  options.name = "default";
  options.out = path("chosen");
  options.files = {"*two*"};
  options.tensors = {"b*"};
  FF_ASSERT_OK(run(options));
  EXPECT_TRUE(read_whole(path("chosen")) == make_safetensors({tensors_[3]}));
}

TEST_F(Export, OneRankOnItsOwn) {
  for (uint32_t rank = 0; rank < 2; rank++) {
    SaveOptions save_options;
    save_options.rank = rank;
    save_options.world = 2;
    save_options.attempt = "a";
    save_file("m.safetensors", make_safetensors({{"w", "U8", {4}, noise(rank, 4)}}), 1,
              save_options);
  }
  EXPECT_FALSE(run_to("both").ok());  // two tensors of one name
  ExportOptions options;
  options.name = "default@1";
  options.out = path("out");
  options.rank = 1;
  FF_ASSERT_OK(run(options));
  EXPECT_TRUE(read_whole(path("out")) == make_safetensors({{"w", "U8", {4}, noise(1, 4)}}));
}

TEST_F(Export, AnExistingFileStaysUnlessForced) {
  const std::string content = make_safetensors(tensors_);
  save_file("model.safetensors", content, 1);
  write_whole(path("out"), "precious");
  const auto refused = run_to("out");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_EQ(read_whole(path("out")), "precious");
  ExportOptions options;
  options.name = "default";
  options.out = path("out");
  options.force = true;
  FF_ASSERT_OK(run(options));
  EXPECT_TRUE(read_whole(path("out")) == content);
  options.out = path("");
  EXPECT_EQ(run(options).error().code, Errc::refused);  // a directory
}

TEST_F(Export, AFailedExportLeavesNothing) {
  save_file("model.safetensors", make_safetensors(tensors_), 1);
  fs::create_directory(path("target"));
  flip_bit(chunk_files()[0], 8 * 5000);
  const auto damaged = run_to("target/out");
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, Errc::corrupt);
  EXPECT_TRUE(fs::is_empty(path("target")));
  ExportOptions options;
  options.name = "default";
  options.out = path("target/out");
  options.tensors = {"no such"};
  EXPECT_EQ(run(options).error().code, Errc::not_found);
  EXPECT_TRUE(fs::is_empty(path("target")));
  EXPECT_TRUE(fs::is_empty(store() + "/tmp"));
}

}  // namespace
}  // namespace ff::checkpoint
