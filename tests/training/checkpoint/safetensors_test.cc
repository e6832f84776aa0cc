// The safetensors parser against every kind of bad header, and the canonical writer against bytes
// written out by hand.
#include "training/checkpoint/format/safetensors.h"

#include <gtest/gtest.h>

#include <string>

#include "platform/base/bytes.h"
#include "training/checkpoint/fixture.h"

namespace ff::checkpoint {
namespace {

struct Bad {
  const char* what;
  std::string header;
  uint64_t data_size;
  const char* says;  // part of the message
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

const std::string kOverflow = "[4294967296,4294967296,4294967296]";

std::vector<Bad> bad_headers() {
  const std::string good = entry("a", "F32", "[2]", "[0,8]");
  return {
      {"empty", "", 0, "begin with '{'"},
      {"not JSON", "{nope}", 0, "not JSON"},
      {"a list", "[]", 0, "begin with '{'"},
      {"spaces first", " {}", 0, "begin with '{'"},
      {"cut short", "{" + good, 8, "not JSON"},
      {"text after it", "{" + good + "}x", 8, "not JSON"},
      {"two documents", "{" + good + "}{}", 8, "not JSON"},
      {"a number for a tensor", R"({"a":1})", 0, "number"},
      {"a string for a tensor", R"({"a":"b"})", 0, "string"},
      {"null for a tensor", R"({"a":null})", 0, "wrong type"},
      {"a list for a tensor", R"({"a":[]})", 0, "list"},
      {"no dtype", R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "missing"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "missing"},
      {"no offsets", R"({"a":{"dtype":"F32","shape":[2]}})", 8, "missing"},
      {"unknown key", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8,
       "unknown key 'x'"},
      {"a key twice", R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
       "twice"},
      {"one offset", "{" + entry("a", "F32", "[2]", "[0]") + "}", 8, "[begin, end]"},
      {"three offsets", "{" + entry("a", "F32", "[2]", "[0,8,9]") + "}", 8, "more than two"},
      {"offsets backwards", "{" + entry("a", "F32", "[2]", "[8,0]") + "}", 8, "backwards"},
      {"negative offset", "{" + entry("a", "F32", "[2]", "[-8,0]") + "}", 8, "negative"},
      {"negative shape", "{" + entry("a", "F32", "[-2]", "[0,8]") + "}", 8, "negative"},
      {"huge negative", "{" + entry("a", "F32", "[-9223372036854775808]", "[0,8]") + "}", 8,
       "negative"},
      {"fraction", "{" + entry("a", "F32", "[2.0]", "[0,8]") + "}", 8, "wrong type"},
      {"beyond 64 bits", "{" + entry("a", "F32", "[2]", "[0,18446744073709551616]") + "}", 8,
       "wrong type"},
      {"nested shape", "{" + entry("a", "F32", "[[2]]", "[0,8]") + "}", 8, "list"},
      {"beyond the data", "{" + good + "}", 7, "beyond the 7 bytes"},
      {"far beyond the data", "{" + entry("a", "X", "[1]", "[0,18446744073709551615]") + "}", 8,
       "beyond"},
      {"data left over", "{" + good + "}", 9, "1 bytes at the end"},
      {"data without tensors", "{}", 1, "1 bytes at the end"},
      {"overlap", "{" + good + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12, "overlaps"},
      {"same place twice", "{" + good + "," + entry("b", "F32", "[2]", "[0,8]") + "}", 8,
       "overlaps"},
      {"a hole", "{" + good + "," + entry("b", "F32", "[1]", "[9,13]") + "}", 13, "no tensor"},
      {"a hole at the start", "{" + entry("a", "F32", "[1]", "[1,5]") + "}", 5, "no tensor"},
      {"a name twice", "{" + good + "," + entry("a", "F32", "[1]", "[8,12]") + "}", 12, "twice"},
      {"too little data", "{" + entry("a", "F32", "[3]", "[0,8]") + "}", 8, "12 bytes"},
      {"too much data", "{" + entry("a", "F32", "[1]", "[0,8]") + "}", 8, "4 bytes"},
      {"shape overflows", "{" + entry("a", "F32", kOverflow, "[0,0]") + "}", 0, "overflow"},
      {"half a byte", "{" + entry("a", "F4", "[3]", "[0,1]") + "}", 1, "bytes"},
      {"not UTF-8", "{" + entry("a\xff", "F32", "[2]", "[0,8]") + "}", 8, "not JSON"},
      {"half a surrogate", "{" + entry("\\ud800", "F32", "[2]", "[0,8]") + "}", 8, "not JSON"},
      {"metadata no object", R"({"__metadata__":"x"})", 0, "string"},
      {"metadata with a number", R"({"__metadata__":{"a":1}})", 0, "number"},
      {"metadata with an object", R"({"__metadata__":{"a":{}}})", 0, "object"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
  };
}

TEST(Safetensors, RefusesEveryBadHeader) {
  for (const auto& bad : bad_headers()) {
    SCOPED_TRACE(bad.what);
    const auto header = SafetensorsHeader::parse(bad.header, bad.data_size);
    ASSERT_FALSE(header.ok());
    EXPECT_EQ(header.error().code, Errc::failed);
    EXPECT_NE(header.error().message.find(bad.says), std::string::npos) << header.error().message;
  }
}

TEST(Safetensors, DeepNestingIsRefusedWithoutRecursion) {
  const size_t depth = 2'000'000;
  for (const std::string& open : {std::string("["), std::string("{\"a\":")}) {
    std::string text = "{\"a\":{\"shape\":";
    for (size_t i = 0; i < depth; i++) text += open;
    EXPECT_FALSE(SafetensorsHeader::parse(text, 0).ok());
    EXPECT_TRUE(safetensors_metadata(text).error().code == Errc::corrupt);
  }
}

TEST(Safetensors, ManyDimensionsAndTypesAreBounded) {
  std::string shape = "[1";
  for (int i = 0; i < 64; i++) shape += ",1";
  EXPECT_FALSE(
      SafetensorsHeader::parse("{" + entry("a", "U8", shape + "]", "[0,1]") + "}", 1).ok());
  std::string types = "{";
  for (int i = 0; i < 65; i++) {
    if (i > 0) types += ",";
    types += entry(std::to_string(i), "T" + std::to_string(i), "[]", "[0,0]");
  }
  EXPECT_FALSE(SafetensorsHeader::parse(types + "}", 0).ok());
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string text = "{" + entry("z", "BF16", "[2,3]", "[8,20]") +
                           ",\"__metadata__\":" + R"({"format":"pt","b":"1"},)" +
                           entry("a", "I64", "[]", "[0,8]") + "," +
                           entry("none", "F32", "[0,5]", "[20,20]") + "}   ";
  const auto header = SafetensorsHeader::parse(text, 20);
  FF_ASSERT_OK(header);
  ASSERT_EQ(header->count(), 3U);
  EXPECT_EQ(header->tensor(0).name, "a");
  EXPECT_TRUE(header->tensor(0).shape.empty());
  EXPECT_EQ(header->tensor(1).name, "z");
  EXPECT_EQ(header->tensor(1).dtype, "BF16");
  EXPECT_EQ(header->tensor(1).shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(header->tensor(1).begin, 8U);
  EXPECT_EQ(header->tensor(1).end, 20U);
  EXPECT_EQ(header->tensor(2).name, "none");
  EXPECT_TRUE(header->has_metadata());
  EXPECT_EQ(header->metadata(), (SafetensorsMetadata{{"format", "pt"}, {"b", "1"}}));
}

TEST(Safetensors, KeepsUnknownTypesAsBytes) {
  const auto header = SafetensorsHeader::parse("{" + entry("a", "F3_NEW", "[7]", "[0,3]") + "}", 3);
  FF_ASSERT_OK(header);
  EXPECT_EQ(header->unknown_dtypes(), std::vector<std::string>{"F3_NEW"});
}

TEST(Safetensors, TypesBelowAByteCountBits) {
  EXPECT_TRUE(SafetensorsHeader::parse("{" + entry("a", "F4", "[3,2]", "[0,3]") + "}", 3).ok());
  EXPECT_TRUE(SafetensorsHeader::parse("{" + entry("a", "F6_E2M3", "[4]", "[0,3]") + "}", 3).ok());
}

TEST(Safetensors, LengthWordIsCheckedAgainstFileAndLimit) {
  const auto word = [](uint64_t value) {
    std::string text(8, '\0');
    store_le(reinterpret_cast<std::byte*>(text.data()), value);
    return text;
  };
  EXPECT_EQ(safetensors_header_length(word(16), 24).value(), 16U);
  EXPECT_FALSE(safetensors_header_length(word(17), 24).ok());
  EXPECT_FALSE(safetensors_header_length(word(kSafetensorsHeaderMax + 1), UINT64_MAX).ok());
  EXPECT_FALSE(safetensors_header_length(word(UINT64_MAX), 24).ok());
  EXPECT_FALSE(safetensors_header_length("1234567", 7).ok());
  EXPECT_FALSE(safetensors_header_length("", 0).ok());
}

TEST(Safetensors, WriterIsCanonical) {
  SafetensorsHeaderWriter writer;
  writer.tensor("a", "F32", {2, 3}, 24);
  writer.tensor("b<\"\\\n\x01\xc3\xa9", "U8", {}, 1);
  writer.metadata({{"format", "pt"}, {"a", "/\t\x7f"}});
  const std::string json = R"({"__metadata__":{"format":"pt","a":"/\t)"
                           "\x7f"
                           R"("},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("b<\"\\\n\u0001)"
                           "\xc3\xa9"
                           R"(":{"dtype":"U8","shape":[],"data_offsets":[24,25]}})";
  const std::string out = writer.finish().value();
  ASSERT_EQ(out.size() % 8, 0U);
  EXPECT_EQ(load_le<uint64_t>(as_bytes(out).data()), out.size() - 8);
  EXPECT_EQ(out.substr(8, json.size()), json);
  EXPECT_EQ(out.substr(8 + json.size()), std::string(out.size() - 8 - json.size(), ' '));
  EXPECT_LT(out.size() - 8 - json.size(), 8U);
  EXPECT_EQ(writer.data_size(), 25U);
}

TEST(Safetensors, WriterWithoutTensorsOrMetadata) {
  SafetensorsHeaderWriter nothing;
  EXPECT_EQ(nothing.finish().value().substr(8), "{}      ");
  SafetensorsHeaderWriter only_metadata;
  only_metadata.metadata({});
  EXPECT_EQ(only_metadata.finish().value().substr(8), R"({"__metadata__":{}}     )");
}

TEST(Safetensors, RoundTrip) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    SafetensorsHeaderWriter writer;
    SafetensorsMetadata metadata;
    for (uint64_t i = rng.below(4); i > 0; i--) metadata.emplace_back(rng.hex_id(), rng.hex_id());
    if (!metadata.empty()) writer.metadata(metadata);
    std::vector<TensorSpec> tensors;
    for (uint64_t i = rng.below(20); i > 0; i--) {
      TensorSpec tensor{rng.hex_id(), "F32", {}, {}};
      uint64_t size = 4;
      for (uint64_t d = rng.below(4); d > 0; d--) {
        tensor.shape.push_back(rng.below(5));
        size *= tensor.shape.back();
      }
      writer.tensor(tensor.name, tensor.dtype, tensor.shape, size);
      tensors.push_back(tensor);
    }
    const std::string text = writer.finish().value();
    const auto header = SafetensorsHeader::parse(text.substr(8), writer.data_size());
    FF_ASSERT_OK(header);
    EXPECT_EQ(header->metadata(), metadata);
    EXPECT_EQ(safetensors_metadata(text.substr(8)).value().value_or(SafetensorsMetadata()),
              metadata);
    ASSERT_EQ(header->count(), tensors.size());
    for (size_t i = 0; i < tensors.size(); i++) {
      const auto wanted = std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) {
        return tensor.name == header->tensor(i).name;
      });
      ASSERT_NE(wanted, tensors.end());
      EXPECT_EQ(header->tensor(i).shape, wanted->shape);
    }
  }
}

TEST(Safetensors, MetadataAloneIsFoundAnywhere) {
  const auto found = safetensors_metadata(
      R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"__metadata__":{"k":"v"},)"
      R"("b":{"x":"y"}})");
  FF_ASSERT_OK(found);
  EXPECT_EQ(found->value(), (SafetensorsMetadata{{"k", "v"}}));
  EXPECT_FALSE(safetensors_metadata(R"({"a":{"__metadata__":"x"}})").value().has_value());
  EXPECT_TRUE(safetensors_metadata(R"({"__metadata__":{}})").value()->empty());
}

}  // namespace
}  // namespace ff::checkpoint
