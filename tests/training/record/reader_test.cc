// Batches of samples from several files: any order, any length, damage, several threads, and reads
// that fail.
#include "training/record/reader.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/io/system_disk.h"
#include "platform/sim/sim_disk.h"
#include "training/record/verify.h"
#include "training/record/writer.h"

namespace ff::record {
namespace {

// Sample i of length bytes.
std::string content_of(uint64_t sample, size_t length) {
  std::string bytes(length, '\0');
  SeededRng rng(sample);
  for (char& byte : bytes) byte = static_cast<char>(rng.next());
  return bytes;
}

void write_file(io::Disk& disk, const std::string& path, const std::vector<std::string>& samples) {
  SeededRng rng(1);
  auto writer = Writer::create(disk, rng, path, samples.size(), true);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (const std::string& sample : samples) ASSERT_TRUE((*writer)->add(as_bytes(sample)).ok());
  const auto finished = (*writer)->finish();
  ASSERT_TRUE(finished.ok()) << finished.error().message;
}

Result<std::vector<std::string>> read(Reader& reader, const std::vector<uint64_t>& samples) {
  std::vector<std::string> data;
  std::vector<std::byte*> places;
  for (const uint64_t sample : samples) {
    const auto bytes = reader.bytes_of(sample);
    data.emplace_back(bytes ? *bytes : 0, '\0');
  }
  for (std::string& one : data) places.push_back(reinterpret_cast<std::byte*>(one.data()));
  FF_TRY(reader.read(samples, places));
  return data;
}

class RecordReader : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "ff-record-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    // Two files, an empty one between them; one sample is longer than the pieces of a read.
    for (uint64_t i = 0; i < 200; i++) samples_.push_back(content_of(i, i * 37 % 5000));
    samples_.push_back(content_of(200, 9'000'001));
    write_file(disk_, dir_ + "/a.ffr", {samples_.begin(), samples_.begin() + 90});
    write_file(disk_, dir_ + "/b.ffr", {});
    write_file(disk_, dir_ + "/c.ffr", {samples_.begin() + 90, samples_.end()});
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<Reader> open(bool check = true, unsigned depth = 64) {
    const auto files = record_files(disk_, {dir_});
    EXPECT_TRUE(files.ok() && files->size() == 3);
    auto reader = Reader::open(disk_, *files, {.check = check, .depth = depth});
    EXPECT_TRUE(reader.ok());
    return std::move(*reader);
  }
  void flip(const std::string& path, uint64_t offset) {
    auto file = disk_.open(path, {.access = io::AccessMode::read_write});
    std::byte byte{};
    ASSERT_TRUE((*file)->read_at({&byte, 1}, offset).ok());
    byte ^= std::byte{16};
    ASSERT_TRUE((*file)->write_at({&byte, 1}, offset).ok());
  }

  io::SystemDisk disk_;
  std::string dir_;
  std::vector<std::string> samples_;
};

TEST_F(RecordReader, AllSamplesInAnyOrderAndTwice) {
  const auto reader = open();
  ASSERT_EQ(reader->samples(), samples_.size());
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < samples_.size(); i++) order.push_back((i * 73 + 5) % samples_.size());
  order.insert(order.end(), {200, 89, 90, 0, 200});
  for (const unsigned depth : {1U, 3U, 64U}) {
    const auto got = read(*open(true, depth), order);
    ASSERT_TRUE(got.ok()) << got.error().message;
    for (size_t i = 0; i < order.size(); i++) EXPECT_TRUE((*got)[i] == samples_[order[i]]) << i;
  }
  EXPECT_TRUE(read(*reader, {}).ok());
}

TEST_F(RecordReader, ThereIsNoSampleBeyondTheLast) {
  const auto reader = open();
  EXPECT_EQ(reader->bytes_of(201).error().code, Errc::usage);
  const auto got = read(*reader, {3, 201});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "there is no sample 201: there are 201, counted from 0");
}

TEST_F(RecordReader, ADirectoryWithoutFilesAndMissingFiles) {
  std::filesystem::create_directory(dir_ + "/empty");
  EXPECT_EQ(record_files(disk_, {dir_ + "/empty"}).error().code, Errc::not_found);
  const auto files = record_files(disk_, {dir_ + "/none.ffr"});
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(Reader::open(disk_, *files, {}).error().code, Errc::not_found);
}

TEST_F(RecordReader, ADamagedSampleIsNamed) {
  auto info = open()->files()[2].index.offsets[3];
  flip(dir_ + "/c.ffr", info + 1);
  const auto reader = open();
  EXPECT_TRUE(read(*reader, {92, 94}).ok());
  const auto got = read(*reader, {92, 93, 94});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Errc::corrupt);
  EXPECT_NE(got.error().message.find("/c.ffr: sample 3 is damaged: its CRC-32 is"),
            std::string::npos)
      << got.error().message;
  EXPECT_TRUE(read(*open(false), {93}).ok());
}

TEST_F(RecordReader, AFileThatBecameShorterIsAnError) {
  const auto reader = open();
  std::filesystem::resize_file(dir_ + "/c.ffr", reader->files()[2].index.offsets[111] - 1);
  EXPECT_TRUE(read(*reader, {90}).ok());
  const auto got = read(*reader, {200});
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("sample 110 is damaged: the file became shorter"),
            std::string::npos)
      << got.error().message;
}

TEST_F(RecordReader, VerifyNamesEachDamagedSample) {
  const RecordIndex index = open()->files()[0].index;
  flip(dir_ + "/a.ffr", index.offsets[1]);
  flip(dir_ + "/a.ffr", index.offsets[89]);
  SystemClock clock;
  const StopToken stop(clock);
  SeededRng rng(1);
  Progress progress;
  RunContext work{.rng = rng, .stop = stop, .progress = progress};
  std::vector<uint64_t> found;
  const auto reader = open();
  ASSERT_TRUE(verify(work, *reader, [&](const Damage& damage) {
                EXPECT_EQ(damage.path, dir_ + "/a.ffr");
                found.push_back(damage.sample);
              }).ok());
  EXPECT_EQ(found, (std::vector<uint64_t>{1, 89}));
  EXPECT_EQ(progress.done, progress.total);
}

TEST_F(RecordReader, SeveralThreadsReadAtOnce) {
  const auto reader = open();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint64_t thread = 0; thread < 4; thread++) {
    threads.emplace_back([&, thread] {
      for (uint64_t round = 0; round < 20; round++) {
        std::vector<uint64_t> order;
        for (uint64_t i = 0; i < 32; i++) order.push_back((thread + round * 31 + i * 7) % 200);
        const auto got = read(*reader, order);
        for (size_t i = 0; i < order.size(); i++) {
          wrong += !got || (*got)[i] != samples_[order[i]] ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(RecordReaderFaults, AFailedReadIsAnErrorAndTheNextOneWorks) {
  SystemClock clock;
  sim::SimDisk disk(7, clock);
  write_file(disk, "a.ffr", {"one", "two", "three"});
  auto reader = Reader::open(disk, {"a.ffr"}, {});
  ASSERT_TRUE(reader.ok());
  disk.set_fault(sim::SimOp::read, 1, EIO);
  EXPECT_EQ(read(**reader, {0, 1, 2}).error().code, Errc::failed);
  disk.set_fault(sim::SimOp::read, 0, EIO);
  EXPECT_EQ(*read(**reader, {2, 0}), (std::vector<std::string>{"three", "one"}));
}

}  // namespace
}  // namespace ff::record
