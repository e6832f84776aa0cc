// The index: round trips, and the detection of any damage.
#include "training/checkpoint/format/index.h"

#include <gtest/gtest.h>

#include "platform/base/point_step.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/sealed_line.h"

namespace ff::checkpoint {
namespace {

simd::Digest digest_of(simd::DigestKind kind, std::string_view text) {
  return simd::fingerprint(kind, as_bytes(text)).digest;
}

FileRecord named(std::string name, EntryKind kind) {
  FileRecord file;
  file.name = std::move(name);
  file.kind = kind;
  return file;
}

class IndexTest : public CheckpointTest {
 protected:
  IndexReader open(const std::string& file) { return IndexReader::open(disk_, file).value(); }

  // All records, or the first error.
  Result<std::vector<Record>> read(const std::string& file) {
    FF_TRY(auto reader, IndexReader::open(disk_, file));
    std::vector<Record> out;
    for (;;) {
      FF_TRY(auto record, reader.next());
      if (!record) return out;
      out.push_back(std::move(*record));
    }
  }

  HeaderRecord header() const {
    HeaderRecord record;
    record.run = "run-1";
    record.step = 12;
    record.world = 2;
    record.attempt = "try \"1\"\n";
    record.digest = kind_;
    record.created_ns = 1'700'000'000'123'456'789;
    record.ff_version = "0.1.0";
    record.host = "node<1>";
    record.user = "someone";
    record.uid = 1000;
    return record;
  }

  FileRecord opaque() const {
    return {.name = "dir/\xc3\xa9 \"quoted\"",
            .rank = 1,
            .kind = EntryKind::opaque,
            .size = 150,
            .mode = 04755,
            .mtime_ns = -5,
            .target = {},
            .extents = {{digest_of(kind_, "a"), 50, 50, 0xdeadbeef}, {{}, 0, 100, 0}}};
  }

  TensorRecord tensor() const {
    return {.name = "layer.0.weight",
            .dtype = "BF16",
            .shape = {3, 4},
            .offset = 16,
            .size = 24,
            .global_shape = {6, 4},
            .slice_start = {3, 0},
            .slice_of = "layer \"0\"",
            .is_object = true,
            .extents = {{digest_of(kind_, "b"), 0, 24, 1}}};
  }

  // A small index with one record of each kind.
  std::string small_index() {
    const std::string file = path("index.jsonl");
    fs::remove(file);
    auto writer = IndexWriter::create(disk_, file, header()).value();
    EXPECT_TRUE(writer.add(opaque()).ok());
    FileRecord tensors = named("m.safetensors", EntryKind::safetensors);
    tensors.size = 100;
    tensors.extents = {{digest_of(kind_, "head"), 0, 60, 7}};
    EXPECT_TRUE(writer.add(tensors).ok());
    EXPECT_TRUE(writer.add(tensor()).ok());
    EXPECT_TRUE(writer.add(named("d", EntryKind::directory)).ok());
    FileRecord link = named("l", EntryKind::symlink);
    link.target = "../somewhere";
    EXPECT_TRUE(writer.add(link).ok());
    end_ = writer.finish().value();
    return file;
  }

  simd::DigestKind kind_ = simd::DigestKind::xxh128;
  EndRecord end_;
};

TEST_F(IndexTest, RoundTrip) {
  for (const auto kind : {simd::DigestKind::xxh128, simd::DigestKind::sha256}) {
    kind_ = kind;
    const std::string file = small_index();
    auto reader = open(file);
    EXPECT_EQ(reader.header().run, "run-1");
    EXPECT_EQ(reader.header().step, 12U);
    EXPECT_EQ(reader.header().world, 2U);
    EXPECT_EQ(reader.header().attempt, "try \"1\"\n");
    EXPECT_EQ(reader.header().digest, kind);
    EXPECT_EQ(reader.header().created_ns, header().created_ns);
    EXPECT_EQ(reader.header().host, "node<1>");
    EXPECT_EQ(reader.header().uid, 1000U);
    EXPECT_FALSE(reader.header().rank.has_value());
    const auto records = read(file).value();
    ASSERT_EQ(records.size(), 5U);
    const auto& first = std::get<FileRecord>(records[0]);
    EXPECT_EQ(first.name, opaque().name);
    EXPECT_EQ(first.rank, 1U);
    EXPECT_EQ(first.mode, 04755U);
    EXPECT_EQ(first.mtime_ns, -5);
    ASSERT_EQ(first.extents.size(), 2U);
    EXPECT_EQ(first.extents[0].chunk, opaque().extents[0].chunk);
    EXPECT_EQ(first.extents[0].offset, 50U);
    EXPECT_EQ(first.extents[0].length, 50U);
    EXPECT_EQ(first.extents[0].crc, 0xdeadbeefU);
    EXPECT_FALSE(first.extents[1].chunk.has_value());
    EXPECT_EQ(first.extents[1].length, 100U);
    const auto& third = std::get<TensorRecord>(records[2]);
    EXPECT_EQ(third.name, "layer.0.weight");
    EXPECT_EQ(third.shape, tensor().shape);
    EXPECT_EQ(third.global_shape, tensor().global_shape);
    EXPECT_EQ(third.slice_start, tensor().slice_start);
    EXPECT_EQ(third.slice_of, tensor().slice_of);
    EXPECT_EQ(whole_name(third), tensor().slice_of);
    EXPECT_TRUE(third.is_object);
    EXPECT_EQ(third.offset, 16U);
    EXPECT_EQ(std::get<FileRecord>(records[3]).kind, EntryKind::directory);
    EXPECT_EQ(std::get<FileRecord>(records[4]).target, "../somewhere");
    const auto summary = read_summary(disk_, file).value();
    EXPECT_EQ(summary.end.files, 4U);
    EXPECT_EQ(summary.end.tensors, 1U);
    EXPECT_EQ(summary.end.size, 250U);
    EXPECT_EQ(summary.end.index, end_.index);
    EXPECT_EQ(summary.end.content, end_.content);
  }
}

TEST_F(IndexTest, EveryFlippedBitIsDetected) {
  const std::string file = small_index();
  const std::string good = read_whole(file);
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](size_t at, int byte) {
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(static_cast<char>(byte));
    ASSERT_TRUE(bytes.flush());
  };
  for (size_t bit = 0; bit < good.size() * 8; bit += kPointStep) {
    put(bit / 8, good[bit / 8] ^ (1 << bit % 8));
    const auto records = read(file);
    ASSERT_FALSE(records.ok()) << "bit " << bit;
    ASSERT_EQ(records.error().code, Errc::corrupt) << "bit " << bit;
    put(bit / 8, good[bit / 8]);
  }
  EXPECT_TRUE(read(file).ok());
}

TEST_F(IndexTest, EveryTruncationIsDetected) {
  const std::string file = small_index();
  const std::string good = read_whole(file);
  write_whole(path("cut.jsonl"), good);
  for (size_t length = good.size(); length >= kPointStep;) {
    length -= kPointStep;
    fs::resize_file(path("cut.jsonl"), length);
    const auto records = read(path("cut.jsonl"));
    ASSERT_FALSE(records.ok()) << length;
    ASSERT_EQ(records.error().code, Errc::corrupt);
    ASSERT_FALSE(read_summary(disk_, path("cut.jsonl")).ok()) << length;
  }
  write_whole(path("cut.jsonl"), good + "x");
  EXPECT_FALSE(read(path("cut.jsonl")).ok());
  write_whole(path("cut.jsonl"), good + good);
  EXPECT_FALSE(read(path("cut.jsonl")).ok());
}

TEST_F(IndexTest, MissingOrSwappedLinesAreDetected) {
  const std::string good = read_whole(small_index());
  std::vector<std::string> lines;
  for (size_t at = 0; at < good.size();) {
    const size_t end = good.find('\n', at) + 1;
    lines.push_back(good.substr(at, end - at));
    at = end;
  }
  for (size_t i = 0; i < lines.size(); i++) {
    std::string without;
    for (size_t j = 0; j < lines.size(); j++) without += i == j ? "" : lines[j];
    write_whole(path("bad.jsonl"), without);
    EXPECT_FALSE(read(path("bad.jsonl")).ok()) << "without line " << i;
    std::string twice;
    for (size_t j = 0; j < lines.size(); j++) twice += lines[j] + (i == j ? lines[j] : "");
    write_whole(path("bad.jsonl"), twice);
    EXPECT_FALSE(read(path("bad.jsonl")).ok()) << "twice line " << i;
  }
}

TEST_F(IndexTest, UnknownKeysAreSkipped) {
  const auto record = parse_record(
      R"({"file":"f","new_text":"x","new_list":[1,2],"new_null":null,"new_bool":true,"rank":0,)"
      R"("kind":"opaque","size":3,"new_float":1.5,"mode":420,"mtime_ns":0,"extents":[[3]]})",
      kind_);
  FF_ASSERT_OK(record);
  EXPECT_EQ(std::get<FileRecord>(*record).size, 3U);
}

TEST_F(IndexTest, MalformedLinesAreRefused) {
  const std::string chunk = digest_of(kind_, "a").hex();
  const auto file = [](const std::string& name, const std::string& size,
                       const std::string& extents) {
    return R"({"file":")" + name + R"(","rank":0,"kind":"opaque","size":)" + size +
           R"(,"mode":420,"mtime_ns":0,"extents":)" + extents + "}";
  };
  ASSERT_TRUE(parse_record(file("f", "3", "[[\"" + chunk + "\",0,3,\"00000000\"]]"), kind_).ok());
  const std::vector<std::string> bad = {
      "",
      "{}",
      "[]",
      "nonsense",
      R"({"other":1})",
      file("../f", "0", "[]"),
      file("/f", "0", "[]"),
      file("a//b", "0", "[]"),
      file("", "0", "[]"),
      file("a/./b", "0", "[]"),
      file("a\\u0000b", "0", "[]"),
      file("..", "0", "[]"),
      file("f", "3", "[[2]]"),
      file("f", "3", "[[0],[3]]"),
      file("f", "0", "[[]]"),
      file("f", "-1", "[]"),
      file("f", "1.5", "[]"),
      file("f", "9223372036854775808", "[]"),
      file("f", "3", "[[\"" + chunk + "\",0,3]]"),
      file("f", "3", "[[\"" + chunk + "\",0,3,\"0\"]]"),
      file("f", "3", "[[\"" + chunk + "\",0,3,\"0000000G\"]]"),
      file("f", "3", "[[\"12\",0,3,\"00000000\"]]"),
      file("f", "3", "[[\"" + chunk + "\",4194302,3,\"00000000\"]]"),
      // Sums that would wrap: four times 2^62 and 3.
      file("f", "3",
           "[[4611686018427387904],[4611686018427387904],[4611686018427387904],"
           "[4611686018427387904],[3]]"),
      file("f", "3", "[3]"),
      file("f", "3", "[[[3]]]"),
      file("f", "3", "{}"),
      file("f", "3", "\"x\""),
      R"({"file":"f","rank":0,"kind":"strange","size":0,"mode":420,"mtime_ns":0,"extents":[]})",
      R"({"file":"f","rank":0,"kind":"opaque","size":0,"mode":65536,"mtime_ns":0,"extents":[]})",
      R"({"file":"f","rank":0,"kind":"opaque","size":0,"mode":420,"mtime_ns":0})",
      R"({"tensor":"t","dtype":"F32","shape":[1],"offset":0,"size":4,)"
      R"("global_shape":[1,2],"slice_start":[0],"extents":[[4]]})",
      R"({"tensor":"t","dtype":"F32","shape":["1"],"offset":0,"size":4,"extents":[[4]]})",
      R"({"end":true,"files":0,"tensors":0,"size":0,"content":"12","index":"12"})",
      // Shapes that do not fit the size, or whose product wraps to it.
      R"({"tensor":"t","dtype":"F32","shape":[2],"offset":0,"size":4,"extents":[[4]]})",
      R"({"tensor":"t","dtype":"U8","shape":[4294967296,4294967296],"offset":0,"size":0,)"
      R"("extents":[]})",
      // Slices beyond the whole tensor.
      R"({"tensor":"t","dtype":"U8","shape":[4],"offset":0,"size":4,)"
      R"("global_shape":[6],"slice_start":[3],"extents":[[4]]})",
      R"({"tensor":"t","dtype":"U8","shape":[4],"offset":0,"size":4,)"
      R"("global_shape":[3],"slice_start":[0],"extents":[[4]]})",
      R"({"tensor":"t","dtype":"U8","shape":[4],"offset":0,"size":4,)"
      R"("global_shape":[4,1],"slice_start":[0,0],"extents":[[4]]})",
      "{\"tensor\":\"\xff\",\"dtype\":\"U8\",\"shape\":[4],\"offset\":0,\"size\":4,"
      "\"extents\":[[4]]}",
      file("a\xff", "0", "[]"),
      file(std::string(5000, 'a'), "0", "[]"),
      R"({"file":"d","rank":0,"kind":"directory","size":3,"mode":0,"mtime_ns":0,"extents":[[3]]})",
  };
  for (const auto& line : bad) {
    const auto record = parse_record(line, kind_);
    ASSERT_FALSE(record.ok()) << line;
    EXPECT_EQ(record.error().code, Errc::corrupt) << line;
  }
}

// What an index makes the parser keep is in proportion to its length, whatever is in it.
TEST_F(IndexTest, ALineTakesMemoryInProportion) {
  const auto line = [](const std::string& more) {
    return R"({"file":"f","rank":0,"kind":"opaque","size":1000000,"mode":420,"mtime_ns":0)" + more +
           "}";
  };
  std::string zeros = R"(,"extents":[[1])";
  for (int i = 1; i < 1'000'000; i++) zeros += ",[1]";
  const auto sparse = parse_record(line(zeros + "]"), kind_);
  FF_ASSERT_OK(sparse);
  EXPECT_EQ(std::get<FileRecord>(*sparse).extents.size(), 1U);
  EXPECT_EQ(std::get<FileRecord>(*sparse).extents[0].length, 1'000'000U);

  std::string keys;
  for (int i = 0; i < 5000; i++) keys += R"(,"a":1)";
  EXPECT_FALSE(parse_record(line(keys + R"(,"extents":[[1000000]])"), kind_).ok());
  std::string shape = "1";
  for (int i = 0; i < 100; i++) shape += ",1";
  EXPECT_FALSE(parse_record(R"({"tensor":"t","dtype":"U8","shape":[)" + shape +
                                R"(],"offset":0,"size":1,"extents":[[1]]})",
                            kind_)
                   .ok());
  // Zeros whose sum wraps.
  EXPECT_FALSE(parse_record(line(R"(,"extents":[[4611686018427387904],[4611686018427387904],)"
                                 R"([4611686018427387904],[4611686018427387904],[1000000]])"),
                            kind_)
                   .ok());
  const std::string deep(1'000'000, '[');
  EXPECT_FALSE(parse_record(line(R"(,"extents":)" + deep), kind_).ok());
  EXPECT_FALSE(parse_record(line(R"(,"other":)" + deep), kind_).ok());
}

TEST_F(IndexTest, AHeaderIsShort) {
  const std::string header =
      R"({"ff_checkpoint":1,"run":"r","step":1,"world":1,"digest":"xxh128","more":)" +
      std::string(1 << 20, '[');
  write_whole(path("deep.jsonl"), seal_line(header));
  const auto opened = IndexReader::open(disk_, path("deep.jsonl"));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Errc::corrupt);
  EXPECT_NE(opened.error().message.find(path("deep.jsonl")), std::string::npos);
}

TEST_F(IndexTest, ASecondHeaderIsRefused) {
  const std::string good = read_whole(small_index());
  const std::string first = good.substr(0, good.find('\n') + 1);
  write_whole(path("two.jsonl"), first + good);
  EXPECT_EQ(read(path("two.jsonl")).error().code, Errc::corrupt);
}

TEST_F(IndexTest, NewerFormatIsRefusedAsSuch) {
  write_whole(path("new.jsonl"), seal_line(R"({"ff_checkpoint":2,"surprise":{"a":[{}]})"));
  const auto nested = IndexReader::open(disk_, path("new.jsonl"));
  ASSERT_FALSE(nested.ok());
  EXPECT_EQ(nested.error().code, Errc::newer_format) << nested.error().message;
  write_whole(path("new.jsonl"), seal_line(R"({"ff_checkpoint":18446744073709551615)"));
  EXPECT_EQ(IndexReader::open(disk_, path("new.jsonl")).error().code, Errc::newer_format);
  write_whole(path("new.jsonl"), seal_line(R"({"ff_checkpoint":2)"));
  EXPECT_EQ(IndexReader::open(disk_, path("new.jsonl")).error().code, Errc::newer_format);
  const auto tolerant = IndexReader::open_damaged(disk_, path("new.jsonl"), kind_, {});
  EXPECT_EQ(tolerant.error().code, Errc::newer_format);
}

TEST_F(IndexTest, LongLinesAreReadAndEndlessOnesRefused) {
  const std::string file = path("long.jsonl");
  auto writer = IndexWriter::create(disk_, file, header()).value();
  TensorRecord big = tensor();
  big.extents.assign(100'000, {digest_of(kind_, "x"), 0, 4096, 5});
  big.size = 100'000 * 4096;
  big.shape = {big.size / 2};
  big.global_shape = big.slice_start = {};
  FF_ASSERT_OK(writer.add(named("m", EntryKind::safetensors)));
  for (int i = 0; i < 3; i++) FF_ASSERT_OK(writer.add(big));
  FF_ASSERT_OK(writer.finish());
  const auto records = read(file);
  FF_ASSERT_OK(records);
  ASSERT_EQ(records->size(), 4U);
  EXPECT_EQ(std::get<TensorRecord>((*records)[3]).extents.size(), 100'000U);

  // A header, and then a line without an end: sparse, so that it costs no disk.
  write_whole(file, read_whole(small_index()).substr(0, 400));
  fs::resize_file(file, uint64_t{4} << 30);
  const auto endless = read(file);
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().code, Errc::corrupt);
}

TEST_F(IndexTest, TolerantReadingSkipsAndReports) {
  const std::string file = small_index();
  const std::string good = read_whole(file);
  size_t lines = 0;
  for (size_t at = 0; at < good.size(); lines++) {
    const size_t end = good.find('\n', at);
    std::string bad = good;
    bad[(at + end) / 2] = static_cast<char>(bad[(at + end) / 2] ^ 1);
    write_whole(path("bad.jsonl"), bad);
    std::vector<uint64_t> told;
    auto reader = IndexReader::open_damaged(
        disk_, path("bad.jsonl"), kind_,
        [&](uint64_t number, std::string_view) { told.push_back(number); });
    FF_ASSERT_OK(reader);
    size_t count = 0;
    for (;;) {
      const auto record = reader->next();
      FF_ASSERT_OK(record);
      if (!*record) break;
      count++;
    }
    const bool first = at == 0;
    const bool last = end + 1 == good.size();
    EXPECT_EQ(told, std::vector<uint64_t>{lines + 1});
    EXPECT_EQ(reader->damaged_lines(), 1U);
    EXPECT_EQ(count, first || last ? 5U : 4U);
    EXPECT_EQ(reader->end().has_value(), !last);
    at = end + 1;
  }
  EXPECT_EQ(lines, 7U);
}

TEST_F(IndexTest, TolerantReadingReportsATruncation) {
  const std::string good = read_whole(small_index());
  write_whole(path("cut.jsonl"), good.substr(0, good.size() - 1));
  auto reader = IndexReader::open_damaged(disk_, path("cut.jsonl"), kind_, {}).value();
  size_t count = 0;
  for (;;) {
    const auto record = reader.next();
    FF_ASSERT_OK(record);
    if (!*record) break;
    count++;
  }
  EXPECT_EQ(count, 5U);
  EXPECT_EQ(reader.damaged_lines(), 1U);
}

TEST_F(IndexTest, ARecordIsReadAgainByItsPosition) {
  const std::string file = small_index();
  auto reader = open(file);
  auto index = disk_.open(file, {}).value();
  for (;;) {
    const auto line = reader.next_line();
    FF_ASSERT_OK(line);
    if (!*line) break;
    const auto again = read_record_at(*index, reader.line_position(), kind_);
    FF_ASSERT_OK(again);
    const auto name = line_name(**line).value();
    if (const auto* found = std::get_if<FileRecord>(&*again)) {
      EXPECT_EQ(found->name, name);
    } else {
      EXPECT_EQ(std::get<TensorRecord>(*again).name, name);
    }
  }
  EXPECT_EQ(read_record_at(*index, {1, 10}, kind_).error().code, Errc::corrupt);
}

TEST_F(IndexTest, ContentDigestCoversBytesAndNotTimes) {
  const auto content = [&](const FileRecord& file) {
    ContentDigest digest(kind_);
    digest.add(file);
    return digest.finish();
  };
  FileRecord other = opaque();
  other.mode = 0;
  other.mtime_ns = 99;
  EXPECT_EQ(content(other), content(opaque()));
  other.name = "elsewhere";
  EXPECT_NE(content(other), content(opaque()));
  other = opaque();
  other.extents[0].offset++;
  EXPECT_NE(content(other), content(opaque()));
}

}  // namespace
}  // namespace ff::checkpoint
