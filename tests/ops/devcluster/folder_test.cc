// The folder of a cluster on one machine: what it keeps, whose folder it refuses, and the ports it
// chooses.
#include "ops/devcluster/folder.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "platform/auth/key.h"
#include "platform/base/clock.h"
#include "platform/base/fd.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"
#include "platform/net/address.h"

namespace ff::devcluster {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  // Makes directories, too.
  void write(const std::string& path, std::string_view text) {
    ASSERT_TRUE(io::ok(io::make_dirs(disk_, io::parent(path))));
    ASSERT_TRUE(io::ok(io::put(disk_, path, text)));
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  Folder folder_{disk_, dir_ / "up"};
  SeededRng rng_{system_seed()};
};

TEST_F(FolderTest, KeepsWhatItWasMadeWith) {
  ASSERT_TRUE(folder_.make("").ok());
  EXPECT_EQ(folder_.made().error().code, Errc::not_found);
  ASSERT_TRUE(folder_.fill({.storage = 5, .replicas = 3, .targets_per_disk = 7}).ok());
  EXPECT_TRUE(auth::read_key_file(disk_, folder_.key()).ok());  // refuses one that others can read
  EXPECT_EQ(fs::status(folder_.path()).permissions(), fs::perms::owner_all);
  Made made = folder_.made().value();
  EXPECT_EQ(made.shape, (Shape{5, 3, 7}));
  EXPECT_FALSE(made.formed);
  EXPECT_EQ(made.storage.size(), 5u);
  made.formed = true;
  made.meta = "127.0.0.1:12345";
  made.storage[4] = "127.0.0.1:12346";
  ASSERT_TRUE(folder_.set_made(made).ok());
  const Made again = folder_.made().value();
  EXPECT_TRUE(again.formed);
  EXPECT_EQ(again.meta, made.meta);
  EXPECT_EQ(again.storage, made.storage);
}

TEST_F(FolderTest, KeepsWhatRuns) {
  ASSERT_TRUE(folder_.make("").ok());
  EXPECT_EQ(folder_.running().error().code, Errc::not_found);
  const Running running{.supervisor = 12,
                        .since_ns = 34,
                        .mount = "/mnt/ff",
                        .services = {{.name = "meta",
                                      .pid = 56,
                                      .serves = true,
                                      .served = true,
                                      .restarts = 7,
                                      .ended_ns = 89,
                                      .end = "exit 1",
                                      .last_words = {"a", "b\x1b\xff"}}}};
  ASSERT_TRUE(folder_.set_running(running).ok());
  const Running again = folder_.running().value();
  EXPECT_EQ(again.supervisor, 12);
  EXPECT_EQ(again.since_ns, 34);
  EXPECT_EQ(again.mount, "/mnt/ff");
  ASSERT_EQ(again.services.size(), 1u);
  EXPECT_EQ(again.services[0].name, "meta");
  EXPECT_EQ(again.services[0].pid, 56);
  EXPECT_TRUE(again.services[0].serves);
  EXPECT_EQ(again.services[0].restarts, 7u);
  EXPECT_EQ(again.services[0].ended_ns, 89);
  EXPECT_EQ(again.services[0].end, "exit 1");
  EXPECT_EQ(again.services[0].last_words, (std::vector<std::string>{"a", "b\\x1b\\xff"}));
  ASSERT_TRUE(folder_.forget_running().ok());
  EXPECT_EQ(folder_.running().error().code, Errc::not_found);
}

// A number that was a daemon's may be another process's by now.
TEST_F(FolderTest, OnlyProcessesThatNameTheKeyAreLeft) {
  const auto left = [this](int64_t pid) {
    Running running;
    running.services.push_back({.name = "meta", .pid = static_cast<pid_t>(pid)});
    return folder_.any_left(running);
  };
  EXPECT_FALSE(left(0));
  EXPECT_FALSE(left(::getpid()));
  EXPECT_FALSE(left(INT32_MAX));
  const std::string key = folder_.key();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(STDERR_FILENO);
    ::execl("/usr/bin/tail", "tail", "-f", "/dev/null", key.c_str(), nullptr);
    ::_exit(127);
  }
  SystemClock clock;
  const int64_t end_ns = clock.steady_ns() + 60 * kSecond;
  while (!left(child) && clock.steady_ns() < end_ns) clock.sleep_ns(kMillisecond);
  EXPECT_TRUE(left(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(left(child));
}

TEST_F(FolderTest, OneOfAnotherKindIsRefused) {
  fs::create_directory(folder_.path());
  write(folder_.path() + "/thesis.tex", "mine");
  const auto made = folder_.make("");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::refused);
  EXPECT_NE(made.error().message.find("thesis.tex"), std::string::npos);
  fs::remove(folder_.path() + "/thesis.tex");
  fs::create_directory(folder_.path() + "/mnt");
  EXPECT_FALSE(folder_.make("").ok());
  EXPECT_TRUE(folder_.make(folder_.path() + "/mnt").ok());
}

TEST_F(FolderTest, OneThatWasOnlyBegunIsTakenUp) {
  ASSERT_TRUE(folder_.make("").ok());
  ASSERT_NE(folder_.lock().value(), nullptr);
  ASSERT_TRUE(auth::make_key_file(disk_, folder_.key()).ok());
  const std::string key = io::get(disk_, folder_.key());
  ASSERT_TRUE(folder_.make("").ok());
  ASSERT_TRUE(folder_.fill({}).ok());
  EXPECT_EQ(io::get(disk_, folder_.key()), key);
}

TEST_F(FolderTest, DamageAndNewerOnesAreTold) {
  ASSERT_TRUE(folder_.make("").ok());
  const std::string path = folder_.path() + "/made.json";
  write(path, "{\"ff_up\": 1, \"storage\": 3");
  EXPECT_EQ(folder_.made().error().code, Errc::corrupt);
  write(path, "{\"ff_up\": 1, \"storage\": 3}");
  EXPECT_EQ(folder_.made().error().code, Errc::corrupt);
  write(path, "{\"ff_up\": 2}");
  EXPECT_EQ(folder_.made().error().code, Errc::newer_format);
}

TEST_F(FolderTest, OneHoldsTheLock) {
  ASSERT_TRUE(folder_.make("").ok());
  auto first = folder_.lock().value();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(folder_.lock().value(), nullptr);
  first.reset();
  EXPECT_NE(folder_.lock().value(), nullptr);
}

TEST_F(FolderTest, PurgeLeavesWhatIsNotItsOwn) {
  ASSERT_TRUE(folder_.make("").ok());
  ASSERT_TRUE(folder_.fill({}).ok());
  for (const uint64_t number : {1, 2, 3}) {
    write(folder_.storage(number) + "/data", "x");
  }
  write(folder_.meta() + "/meta.db", "x");
  write(folder_.logs() + "/meta.log", "x");
  write(folder_.path() + "/storage-4/mine", "x");
  EXPECT_FALSE(folder_.purge().value());
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    left.insert(entry.path().filename());
  }
  EXPECT_EQ(left, std::set<std::string>{"storage-4"});
  EXPECT_FALSE(folder_.purge().ok());  // it is no such folder any more

  fs::remove_all(folder_.path());
  ASSERT_TRUE(folder_.make("").ok());
  ASSERT_TRUE(folder_.fill({}).ok());
  EXPECT_TRUE(folder_.purge().value());
  EXPECT_FALSE(fs::exists(folder_.path()));
}

TEST_F(FolderTest, PortsAreChosenOnceAndAnewWhenTheyAreTaken) {
  Made made;
  made.storage.resize(3);
  EXPECT_TRUE(choose_ports(made, false, rng_).value().empty());
  EXPECT_EQ(made.scheduler + made.agent, "");
  EXPECT_TRUE(choose_ports(made, true, rng_).value().empty());
  std::set<uint16_t> ports = {net::parse_address(made.meta).value().port};
  for (const std::string& address : made.storage) {
    ports.insert(net::parse_address(address).value().port);
  }
  for (const std::string& address : {made.scheduler, made.agent}) {
    ports.insert(net::parse_address(address).value().port);
  }
  EXPECT_EQ(ports.size(), 6u);
  EXPECT_LT(*ports.rbegin(), 32768);

  const Fd other(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(net::parse_address(made.storage[1]).value().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(other.get(), 1), 0);
  const Made before = made;
  const auto told = choose_ports(made, true, rng_).value();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find(before.storage[1]), std::string::npos) << told[0];
  EXPECT_NE(made.storage[1], before.storage[1]);
  EXPECT_EQ(made.meta, before.meta);
  EXPECT_EQ(made.storage[0], before.storage[0]);
  EXPECT_EQ(made.storage[2], before.storage[2]);
}

}  // namespace
}  // namespace ff::devcluster
