// The folder of a cluster on one machine: its files, refusal of foreign folders, and the choice of
// ports.
#include "ops/devcluster/cluster_dir.h"

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

class ClusterDirTest : public testing::Test {
 protected:
  // Makes directories, too.
  void write(const std::string& path, std::string_view text) {
    ASSERT_TRUE(io::ok(io::make_dirs(disk_, io::parent(path))));
    ASSERT_TRUE(io::ok(io::put(disk_, path, text)));
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  ClusterDir folder_{disk_, dir_ / "up"};
  SeededRng rng_{system_seed()};
};

TEST_F(ClusterDirTest, KeepsWhatItWasMadeWith) {
  ASSERT_TRUE(folder_.create("").ok());
  EXPECT_EQ(folder_.config().error().code, Errc::not_found);
  ASSERT_TRUE(folder_.initialize({.storage = 5, .replicas = 3, .targets_per_disk = 7}).ok());
  EXPECT_TRUE(auth::read_key_file(disk_, folder_.key()).ok());  // refuses one that others can read
  EXPECT_EQ(fs::status(folder_.path()).permissions(), fs::perms::owner_all);
  ClusterConfig config = folder_.config().value();
  EXPECT_EQ(config.shape, (ClusterShape{5, 3, 7}));
  EXPECT_FALSE(config.formed);
  EXPECT_EQ(config.storage.size(), 5u);
  config.formed = true;
  config.meta = "127.0.0.1:12345";
  config.storage[4] = "127.0.0.1:12346";
  config.redis = "127.0.0.1:12347";
  config.s3 = "127.0.0.1:12348";
  ASSERT_TRUE(folder_.set_config(config).ok());
  const ClusterConfig again = folder_.config().value();
  EXPECT_TRUE(again.formed);
  EXPECT_EQ(again.meta, config.meta);
  EXPECT_EQ(again.storage, config.storage);
  EXPECT_EQ(again.redis, config.redis);
  EXPECT_EQ(again.s3, config.s3);
}

TEST_F(ClusterDirTest, KeepsWhatRuns) {
  ASSERT_TRUE(folder_.create("").ok());
  EXPECT_EQ(folder_.status().error().code, Errc::not_found);
  const ClusterStatus status{.supervisor = 12,
                             .since_ns = 34,
                             .mount = "/mnt/ff",
                             .kv = true,
                             .services = {{.name = "meta",
                                           .pid = 56,
                                           .ready = true,
                                           .was_ready = true,
                                           .restarts = 7,
                                           .exited_ns = 89,
                                           .exit_text = "exit 1",
                                           .last_output = {"a", "b\x1b\xff"}}}};
  ASSERT_TRUE(folder_.set_status(status).ok());
  const ClusterStatus again = folder_.status().value();
  EXPECT_EQ(again.supervisor, 12);
  EXPECT_EQ(again.since_ns, 34);
  EXPECT_EQ(again.mount, "/mnt/ff");
  EXPECT_TRUE(again.kv);
  EXPECT_FALSE(again.schedule);
  ASSERT_EQ(again.services.size(), 1u);
  EXPECT_EQ(again.services[0].name, "meta");
  EXPECT_EQ(again.services[0].pid, 56);
  EXPECT_TRUE(again.services[0].ready);
  EXPECT_EQ(again.services[0].restarts, 7u);
  EXPECT_EQ(again.services[0].exited_ns, 89);
  EXPECT_EQ(again.services[0].exit_text, "exit 1");
  EXPECT_EQ(again.services[0].last_output, (std::vector<std::string>{"a", "b\\x1b\\xff"}));
  ASSERT_TRUE(folder_.clear_status().ok());
  EXPECT_EQ(folder_.status().error().code, Errc::not_found);
}

// The pid of a daemon may have been reused.
TEST_F(ClusterDirTest, OnlyProcessesThatNameTheKeyAreLeft) {
  const auto left = [this](int64_t pid) {
    ClusterStatus status;
    status.services.push_back({.name = "meta", .pid = static_cast<pid_t>(pid)});
    return folder_.any_process_left(status);
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

// One that was killed holds the lock until the kernel has taken it down.
TEST_F(ClusterDirTest, AKilledSupervisorSupervisesNothing) {
  const auto supervises = [this](pid_t pid) {
    ClusterStatus status;
    status.supervisor = pid;
    return folder_.is_supervised(status);
  };
  EXPECT_TRUE(supervises(::getpid()));
  EXPECT_FALSE(supervises(INT32_MAX));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  EXPECT_TRUE(supervises(child));
  ::kill(child, SIGKILL);
  EXPECT_FALSE(supervises(child));  // at once, whether it has died or not
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(supervises(child));
}

TEST_F(ClusterDirTest, OneOfAnotherKindIsRefused) {
  fs::create_directory(folder_.path());
  write(folder_.path() + "/thesis.tex", "mine");
  const auto config = folder_.create("");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, Errc::refused);
  EXPECT_NE(config.error().message.find("thesis.tex"), std::string::npos);
  fs::remove(folder_.path() + "/thesis.tex");
  fs::create_directory(folder_.path() + "/mnt");
  EXPECT_FALSE(folder_.create("").ok());
  EXPECT_TRUE(folder_.create(folder_.path() + "/mnt").ok());
}

TEST_F(ClusterDirTest, OneThatWasOnlyBegunIsTakenUp) {
  ASSERT_TRUE(folder_.create("").ok());
  ASSERT_NE(folder_.lock().value(), nullptr);
  ASSERT_TRUE(auth::make_key_file(disk_, folder_.key()).ok());
  const std::string key = io::get(disk_, folder_.key());
  ASSERT_TRUE(folder_.create("").ok());
  ASSERT_TRUE(folder_.initialize({}).ok());
  EXPECT_EQ(io::get(disk_, folder_.key()), key);
}

TEST_F(ClusterDirTest, DamageAndNewerOnesAreTold) {
  ASSERT_TRUE(folder_.create("").ok());
  const std::string path = folder_.path() + "/made.json";
  write(path, "{\"ff_up\": 1, \"storage\": 3");
  EXPECT_EQ(folder_.config().error().code, Errc::corrupt);
  write(path, "{\"ff_up\": 1, \"storage\": 3}");
  EXPECT_EQ(folder_.config().error().code, Errc::corrupt);
  write(path, "{\"ff_up\": 2}");
  EXPECT_EQ(folder_.config().error().code, Errc::newer_format);
}

TEST_F(ClusterDirTest, OneHoldsTheLock) {
  ASSERT_TRUE(folder_.create("").ok());
  auto first = folder_.lock().value();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(folder_.lock().value(), nullptr);
  first.reset();
  EXPECT_NE(folder_.lock().value(), nullptr);
}

TEST_F(ClusterDirTest, PurgeLeavesWhatIsNotItsOwn) {
  ASSERT_TRUE(folder_.create("").ok());
  ASSERT_TRUE(folder_.initialize({}).ok());
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
  EXPECT_FALSE(folder_.purge().ok());  // it is no longer such a folder

  fs::remove_all(folder_.path());
  ASSERT_TRUE(folder_.create("").ok());
  ASSERT_TRUE(folder_.initialize({}).ok());
  EXPECT_TRUE(folder_.purge().value());
  EXPECT_FALSE(fs::exists(folder_.path()));
}

TEST_F(ClusterDirTest, PortsAreChosenOnceAndAnewWhenTheyAreTaken) {
  ClusterConfig config;
  config.storage.resize(3);
  EXPECT_TRUE(choose_ports(config, {}, rng_).value().empty());
  EXPECT_EQ(config.scheduler + config.agent + config.page + config.redis + config.s3, "");
  EXPECT_TRUE(choose_ports(config, {.schedule = true, .kv = true}, rng_).value().empty());
  std::set<uint16_t> ports = {net::parse_address(config.meta).value().port};
  for (const std::string& address : config.storage) {
    ports.insert(net::parse_address(address).value().port);
  }
  for (const std::string& address :
       {config.scheduler, config.agent, config.page, config.redis, config.s3}) {
    ports.insert(net::parse_address(address).value().port);
  }
  EXPECT_EQ(ports.size(), 9u);
  EXPECT_LT(*ports.rbegin(), 32768);

  const Fd other(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(net::parse_address(config.storage[1]).value().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(other.get(), 1), 0);
  const ClusterConfig before = config;
  const auto told = choose_ports(config, {.schedule = true, .kv = true}, rng_).value();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find(before.storage[1]), std::string::npos) << told[0];
  EXPECT_NE(config.storage[1], before.storage[1]);
  EXPECT_EQ(config.meta, before.meta);
  EXPECT_EQ(config.storage[0], before.storage[0]);
  EXPECT_EQ(config.storage[2], before.storage[2]);
}

}  // namespace
}  // namespace ff::devcluster
