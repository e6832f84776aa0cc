// The rank's job from the variables of torchrun and of ff.
#include "training/collective/environment.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "platform/io/system_disk.h"

namespace ff::collective {
namespace {

using Environment = std::map<std::string, std::string>;

const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"}};

Environment with(Environment more) {
  more.insert(kTorchrun.begin(), kTorchrun.end());
  return more;
}
Environment without(const std::string& name) {
  Environment less = kTorchrun;
  less.erase(name);
  return less;
}

Result<JobConfig> job(const Environment& values, std::optional<uint32_t> here = {}) {
  io::SystemDisk disk;
  return read_job_config(
      [&](const char* name) {
        const auto found = values.find(name);
        return found != values.end() ? found->second.c_str() : nullptr;
      },
      here, disk);
}

TEST(EnvironmentTest, TorchrunsVariablesOfOneRank) {
  const auto part = job(kTorchrun);
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part->self.rank, 1u);
  EXPECT_EQ(part->self.ranks, 4u);
  EXPECT_EQ(part->self.first_rank, 4u);
  EXPECT_EQ(part->network.ranks, 8u);
  EXPECT_EQ(part->network.at.text(), "node0:29505");
  EXPECT_FALSE(part->network.key.has_value());
  EXPECT_EQ(part->network.zone, "0");
  // Ranks of one host have the same job name, those of another host another one.
  EXPECT_EQ(part->self.job, job(with({{"RANK", "6"}, {"LOCAL_RANK", "2"}}))->self.job);
  EXPECT_NE(part->self.job, job(with({{"RANK", "1"}}))->self.job);
  EXPECT_NE(part->self.job, job(with({{"MASTER_PORT", "29501"}}))->self.job);
}

TEST(EnvironmentTest, OneHostNeedsNoNetwork) {
  Environment values = without("LOCAL_WORLD_SIZE");
  values.erase("LOCAL_RANK");
  const auto part = job(values);
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part->self.rank, 5u);
  EXPECT_EQ(part->self.ranks, 8u);
  EXPECT_EQ(part->network.ranks, part->self.ranks);
}

TEST(EnvironmentTest, TheFirstOfSeveralRanks) {
  const auto part = job(with({{"RANK", "4"}}), 4);
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part->self.first_rank, 4u);
  EXPECT_EQ(part->self.ranks, 4u);
  EXPECT_FALSE(job(kTorchrun, 4).ok());  // 5 to 8 of 8
}

TEST(EnvironmentTest, VariablesOfFf) {
  char path[] = "/tmp/ff-key-XXXXXX";
  ::close(::mkstemp(path));
  std::ofstream(path) << std::string(64, 'b') << '\n';
  const Environment more = {{"FF_PORT", "4000"},
                            {"FF_ZONE", "east"},
                            {"FF_WIRE", "fp8"},
                            {"FF_ALGO", "tree"},
                            {"FF_DETERMINISTIC", "1"},
                            {"FF_NET", "tcp"},
                            {"FF_NET_SECURITY", "trusted-network"},
                            {"FF_KEY_FILE", path}};
  const auto part = job(with(more));
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part->network.at.port, 4000);
  EXPECT_EQ(part->network.zone, "east");
  EXPECT_EQ(part->network.pipeline.wire, simd::WireType::fp8);
  EXPECT_EQ(part->network.pipeline.algorithm, Algorithm::tree);
  EXPECT_TRUE(part->network.pipeline.deterministic);
  EXPECT_EQ(part->network.transport.mode, net::NetMode::tcp);
  EXPECT_TRUE(part->network.transport.trusted_network);
  EXPECT_FALSE(job(kTorchrun)->network.transport.trusted_network);
  ASSERT_TRUE(part->network.key.has_value());
  EXPECT_EQ((*part->network.key)[31], std::byte{0xbb});
  ::chmod(path, 0644);
  const auto open = job(with(more));
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.error().code, Errc::refused);
  ::unlink(path);
}

TEST(EnvironmentTest, ErrorsNameTheVariable) {
  const auto says = [](const Result<JobConfig>& part, const std::string& text) {
    ASSERT_FALSE(part.ok());
    EXPECT_NE(part.error().message.find(text), std::string::npos) << part.error().message;
  };
  for (const char* const name : {"RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}) {
    says(job(without(name)), std::string(name) + " is not set");
  }
  says(job(with({{"RANK", "8"}})), "RANK=8 is not below WORLD_SIZE=8");
  says(job(with({{"RANK", "-1"}})), "RANK=-1");
  says(job(with({{"LOCAL_RANK", "4"}})), "do not fit");
  says(job(with({{"LOCAL_WORLD_SIZE", "0"}})), "do not fit");
  says(job(with({{"RANK", "0"}})), "do not fit");
  says(job(with({{"MASTER_PORT", "65533"}})), "FF_PORT");
  says(job(with({{"FF_WIRE", "fp4"}})), "FF_WIRE=fp4");
  says(job(with({{"FF_ALGO", "star"}})), "FF_ALGO=star");
  says(job(with({{"FF_NET", "udp"}})), "FF_NET=udp");
  says(job(with({{"FF_NET_SECURITY", "none"}})), "FF_NET_SECURITY=none");
  says(job(with({{"FF_DETERMINISTIC", "yes"}})), "FF_DETERMINISTIC=yes");
  says(job(with({{"FF_ZONE", std::string(65, 'z')}})), "FF_ZONE=zzz");
  says(job(with({{"FF_KEY_FILE", "/nowhere/key"}})), "/nowhere/key");
}

}  // namespace
}  // namespace ff::collective
