// The state directory: its choice, its mode, network file systems, hostile fallback directories.
#include "platform/base/state_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "platform/io/temp_dir.h"

namespace ff {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

class StateDirRules : public testing::Test {
 protected:
  // All paths are below dir_; those below dir_/net count as a network file system.
  StateDirEnvironment sources() const {
    StateDirEnvironment from;
    from.home = dir_ / "home";
    from.uid = ::geteuid();
    from.root_default = dir_ / "var/lib/ff";
    from.fallback_root = dir_ / "tmp";
    const std::string net = dir_ / "net";
    from.is_network = [net](const std::string& path) -> Result<bool> {
      EXPECT_TRUE(fs::exists(path)) << path;
      return path.starts_with(net);
    };
    return from;
  }

  void SetUp() override {
    fs::create_directory(dir_ / "tmp");
    fs::create_directories(dir_ / "net/home");
  }

  StateDirEnvironment network_sources() const {
    StateDirEnvironment from = sources();
    from.ff_state = dir_ / "net/home/me/state";
    return from;
  }

  std::string fallback() const { return dir_ / fmt::format("tmp/ff-{}", ::geteuid()); }

  io::TempDir dir_;
};

TEST_F(StateDirRules, DefaultsByUser) {
  StateDirEnvironment from = sources();
  from.uid = 0;
  auto found = state_dir(StateUse::daemon, from);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->path, dir_ / "var/lib/ff");
  from.uid = 1000;
  found = state_dir(StateUse::user, from);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->path, dir_ / "home/.local/state/ff");
  EXPECT_TRUE(found->network_path.empty());
  for (const char* made : {"home", "home/.local", "home/.local/state", "home/.local/state/ff"}) {
    EXPECT_EQ(mode_of(dir_ / made), 0700u) << made;
  }
  EXPECT_TRUE(state_dir(StateUse::user, from).ok());  // and again
}

TEST_F(StateDirRules, EnvironmentWins) {
  StateDirEnvironment from = sources();
  from.ff_state = dir_ / "elsewhere";
  const auto found = state_dir(StateUse::daemon, from);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->path, dir_ / "elsewhere");
  EXPECT_EQ(mode_of(found->path), 0700u);
}

TEST_F(StateDirRules, ExistingDirectoryIsLeftAsItIs) {
  StateDirEnvironment from = sources();
  from.ff_state = dir_ / "mine";
  fs::create_directory(from.ff_state);
  ::chmod(from.ff_state.c_str(), 0750);
  ASSERT_TRUE(state_dir(StateUse::user, from).ok());
  EXPECT_EQ(mode_of(from.ff_state), 0750u);
}

TEST_F(StateDirRules, WrongSettingsAreUsageErrors) {
  StateDirEnvironment from = sources();
  from.ff_state = "relative/path";
  EXPECT_EQ(state_dir(StateUse::user, from).error().code, Errc::usage);
  from = sources();
  from.uid = 1000;
  from.home.clear();
  const auto homeless = state_dir(StateUse::user, from);
  ASSERT_FALSE(homeless.ok());
  EXPECT_EQ(homeless.error().code, Errc::usage);
  EXPECT_NE(homeless.error().hint.find("FF_STATE"), std::string::npos);
}

TEST_F(StateDirRules, FileInTheWayIsAnError) {
  StateDirEnvironment from = sources();
  from.ff_state = dir_ / "file";
  std::ofstream(from.ff_state) << "x";
  const auto found = state_dir(StateUse::user, from);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find(from.ff_state), std::string::npos);
  from.ff_state += "/below";
  EXPECT_FALSE(state_dir(StateUse::user, from).ok());
}

TEST_F(StateDirRules, UserStateLeavesTheNetwork) {
  const auto found = state_dir(StateUse::user, network_sources());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->path, fallback());
  EXPECT_EQ(found->network_path, dir_ / "net/home/me/state");
  EXPECT_EQ(mode_of(found->path), 0700u);
  EXPECT_FALSE(fs::exists(dir_ / "net/home/me"));  // nothing is made over there
  EXPECT_TRUE(state_dir(StateUse::user, network_sources()).ok());
}

TEST_F(StateDirRules, DaemonStateOnTheNetworkIsRefused) {
  const auto found = state_dir(StateUse::daemon, network_sources());
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::refused);
  EXPECT_NE(found.error().hint.find("FF_STATE"), std::string::npos);
  EXPECT_FALSE(fs::exists(fallback()));
}

TEST_F(StateDirRules, NoLocalDiskAtAll) {
  StateDirEnvironment from = network_sources();
  from.fallback_root = dir_ / "net";
  const auto found = state_dir(StateUse::user, from);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::refused);
}

TEST_F(StateDirRules, FallbackOfOthersIsRefused) {
  const auto refused = [&](const char* what) {
    const auto found = state_dir(StateUse::user, network_sources());
    ASSERT_FALSE(found.ok()) << what;
    EXPECT_EQ(found.error().code, Errc::refused) << what;
    EXPECT_NE(found.error().message.find(fallback()), std::string::npos) << what;
  };
  fs::create_directory(dir_ / "trap");
  ::chmod((dir_ / "trap").c_str(), 0700);
  fs::create_directory_symlink(dir_ / "trap", fallback());
  refused("a symbolic link");
  fs::remove(fallback());

  std::ofstream(fallback()) << "x";
  refused("a file");
  fs::remove(fallback());

  fs::create_directory(fallback());
  ::chmod(fallback().c_str(), 0770);
  refused("open to the group");
  ::chmod(fallback().c_str(), 0701);
  refused("open to all");
  ::chmod(fallback().c_str(), 0700);
  EXPECT_TRUE(state_dir(StateUse::user, network_sources()).ok());

  if (::geteuid() != 0) GTEST_SKIP() << "giving a directory away needs root";
  ASSERT_EQ(::chown(fallback().c_str(), 65534, 65534), 0);
  refused("of another owner");
}

TEST(NetworkFileSystem, KnowsTheMagicNumbers) {
  for (const uint32_t magic : {0x6969u, 0x517bu, 0xfe534d42u, 0xff534d42u, 0x01021997u, 0x0bd00bd0u,
                               0x65735546u, 0x00c36400u}) {
    EXPECT_TRUE(is_network_file_system(magic)) << magic;
  }
  // ext4, xfs, btrfs, tmpfs, overlayfs, zfs
  for (const uint32_t magic :
       {0xef53u, 0x58465342u, 0x9123683eu, 0x01021994u, 0x794c7630u, 0x2fc12fc1u}) {
    EXPECT_FALSE(is_network_file_system(magic)) << magic;
  }
}

TEST(ProcessStateSources, ReadTheEnvironmentAndTheDisk) {
  const io::TempDir dir;
  ::setenv("FF_STATE", dir.path().c_str(), 1);
  const StateDirEnvironment from = process_state_environment();
  ::unsetenv("FF_STATE");
  EXPECT_EQ(from.ff_state, dir.path());
  EXPECT_EQ(from.uid, ::geteuid());
  EXPECT_EQ(from.root_default, "/var/lib/ff");
  EXPECT_EQ(from.fallback_root, "/var/tmp");
  const auto proc = from.is_network("/proc");
  ASSERT_TRUE(proc.ok());
  EXPECT_FALSE(*proc);
  EXPECT_FALSE(from.is_network(dir / "missing").ok());
}

}  // namespace
}  // namespace ff
