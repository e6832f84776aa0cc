// What was once allowed ends: an open file of a user after chmod, after the user is removed, and
// after its key is revoked (finding 5).
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "attack/attack_world.h"
#include "cmd/options/cluster_access.h"
#include "platform/base/stop_token.h"
#include "platform/io/system_disk.h"

namespace ff::test {
namespace {

class CapabilitiesAttack : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root reads the files of other users";
    write_file(world_.file("x"), std::string(100'000, 'x'));
    world_.good({"fs", "cp", world_.file("x"), "ff:///x"});
    world_.good({"fs", "chown", "1002", "/x"});
    world_.good({"fs", "chmod", "666", "/x"});
  }
  std::unique_ptr<cmd::ClusterAccess> access(const std::string& key, bool is_token) {
    cmd::ClusterAccess::Options options{
        .url = {}, .meta = world_.address(), .net = {}, .name = "a"};
    options.net.mode = is_token && world_.net() == "verbs" ? "auto" : world_.net();
    (is_token ? options.net.token : options.net.key) = key;
    auto made = cmd::ClusterAccess::open(stop_, local_, options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }
  static std::optional<Error> read(io::File& file) {
    std::array<std::byte, 100> bytes;
    const auto got = file.read_at(bytes, 0);
    return got ? std::nullopt : std::optional(got.error());
  }
  static std::optional<Error> write(io::File& file) {
    const std::string text = "hello";
    auto done = file.write_at(as_bytes(text), 0);
    if (done) done = file.sync();
    return done ? std::nullopt : std::optional(done.error());
  }

  // Waits until no storage node serves `call` any more. Each replica learns it for itself, so one
  // refusal does not speak for the next call. Returns the last error.
  template <typename Call>
  static std::optional<Error> until_refused_everywhere(const char* what, Call call) {
    std::optional<Error> failed;
    AttackWorld::until(what, [&] {
      for (int i = 0; i < 20; ++i) {
        failed = call();
        if (!failed) return false;
      }
      return true;
    });
    return failed;
  }

  AttackWorld world_{GetParam()};
  io::SystemDisk local_;
  SystemClock clock_;
  StopToken stop_{clock_};
};

TEST_P(CapabilitiesAttack, AnOpenFileEndsWithItsMode) {
  const auto ann = access(world_.add_user("ann", 1001), true);
  ASSERT_NE(ann, nullptr);
  {
    const auto reads = ann->disk().open(ann->path("/x"), {});
    ASSERT_TRUE(reads.ok()) << reads.error().message;
    const auto writes = ann->disk().open(ann->path("/x"), {.access = io::AccessMode::read_write});
    ASSERT_TRUE(writes.ok()) << writes.error().message;
    EXPECT_FALSE(read(**reads));
    EXPECT_FALSE(write(**writes));
    world_.good({"fs", "chmod", "600", "/x"});
    const auto refused =
        until_refused_everywhere("reading is refused", [&] { return read(**reads); });
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, Errc::refused) << refused->message;
    AttackWorld::until("writing is refused", [&] { return write(**writes).has_value(); });
    world_.good({"fs", "chmod", "666", "/x"});
    AttackWorld::until("reading works again", [&] { return !read(**reads).has_value(); });
  }
}

TEST_P(CapabilitiesAttack, ARemovedUserReadsAndWritesNothing) {
  const auto ann = access(world_.add_user("ann", 1001), true);
  ASSERT_NE(ann, nullptr);
  {
    const auto file = ann->disk().open(ann->path("/x"), {.access = io::AccessMode::read_write});
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_FALSE(read(**file));
    EXPECT_FALSE(write(**file));
    ASSERT_EQ(world_.admin({"user", "remove", "1001"}).exit, 0);
    const auto refused =
        until_refused_everywhere("reading is refused", [&] { return read(**file); });
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, Errc::refused) << refused->message;
    AttackWorld::until("writing is refused", [&] { return write(**file).has_value(); });
  }
}

TEST_P(CapabilitiesAttack, ARevokedMountReadsNothingThroughItsOpenConnections) {
  const std::string key = world_.file("host7.key");
  world_.create_key("mount/host7", key);
  const auto mount = access(key, false);
  ASSERT_NE(mount, nullptr);
  {
    const auto file = mount->disk().open(mount->path("/x"), {});
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_FALSE(read(**file));
    ASSERT_EQ(world_.admin({"key", "revoke", "mount/host7"}).exit, 0);
    AttackWorld::until("storage nodes refuse it", [&] { return read(**file).has_value(); });
  }
}

// A file that its owner made read-only while creating it stays writable, as on a local disk.
TEST_P(CapabilitiesAttack, TheOwnerGoesOnWritingAReadOnlyFile) {
  const auto bob = access(world_.add_user("bob", 1002), true);
  ASSERT_NE(bob, nullptr);
  {
    const auto file = bob->disk().open(bob->path("/x"), {.access = io::AccessMode::read_write});
    ASSERT_TRUE(file.ok()) << file.error().message;
    world_.good({"fs", "chmod", "400", "/x"});
    // Longer than a capability is valid.
    SystemClock clock;
    const int64_t end_ns = clock.steady_ns() + 12 * kSecond;
    while (clock.steady_ns() < end_ns) {
      const auto failed = write(**file);
      ASSERT_FALSE(failed) << failed->message;
      clock.sleep_ns(200 * kMillisecond);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Over, CapabilitiesAttack, testing::ValuesIn(nets()),
                         [](const auto& net) { return std::string(net.param); });

}  // namespace
}  // namespace ff::test
