// Every operation of the namespace on every engine: its effect, and the errno of each refusal.
#include "storage/meta/namespace.h"

#include <cerrno>

#include "storage/meta/namespace_world.h"
#include "storage/meta/records.h"

namespace ff::meta {
namespace {

class NamespaceTest : public testing::TestWithParam<kv::EngineKind>, protected NamespaceWorld {
 protected:
  NamespaceTest() : NamespaceWorld(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Engines, NamespaceTest, testing::ValuesIn(kv::engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(NamespaceTest, ANewFileIsWhatItsMakerSays) {
  const auto made = create(kAlice, kRoot, "a", {.mode = 0640});
  ASSERT_EQ(sys_of(made), EACCES);  // the root directory is root's
  const auto home = dir(kRootUser, kRoot, "home", 0777);
  ASSERT_TRUE(home.ok());
  const auto file = create(kAlice, home->id, "a", {.mode = 0640});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->mode, 0640u);
  EXPECT_EQ(file->uid, kAlice.uid);
  EXPECT_EQ(file->gid, kAlice.gid);
  EXPECT_EQ(file->links, 1u);
  EXPECT_EQ(file->length, 0u);
  EXPECT_EQ(file->layout.table, 1u);
  EXPECT_EQ(file->layout.version, 3u);
  EXPECT_EQ(file->layout.chunk_size, kDefaultChunkSize);
  EXPECT_EQ(stat(file->id).value(), *file);
  const auto found = run(names().lookup(kAlice, home->id, "a"));
  EXPECT_EQ(found.value(), *file);
  EXPECT_EQ(stat(kRoot)->links, 3u);
}

TEST_P(NamespaceTest, NamesThatCannotBe) {
  for (const std::string& name : {std::string(), std::string("."), std::string(".."),
                                  std::string("a/b"), std::string("a\0b", 3)}) {
    EXPECT_EQ(sys_of(file(kRootUser, kRoot, name)), EINVAL) << name.size();
    EXPECT_EQ(sys_of(unlink(kRootUser, kRoot, name)), EINVAL);
  }
  EXPECT_EQ(sys_of(file(kRootUser, kRoot, std::string(256, 'x'))), ENAMETOOLONG);
  EXPECT_EQ(sys_of(walk(kRootUser, "/" + std::string(256, 'x'))), ENAMETOOLONG);
  EXPECT_TRUE(file(kRootUser, kRoot, std::string(255, 'x')).ok());
  // All other bytes are allowed in names.
  const std::string odd = "\xff\xfe \n\x1b";
  ASSERT_TRUE(file(kRootUser, kRoot, odd).ok());
  const auto page = run(names().list(kRootUser, kRoot, "", 10, false));
  ASSERT_EQ(page->entries.size(), 2u);
  EXPECT_TRUE(page->entries[1].name == odd);
}

TEST_P(NamespaceTest, WhatIsThereAlready) {
  const auto first = file(kRootUser, kRoot, "a");
  EXPECT_EQ(sys_of(file(kRootUser, kRoot, "a")), EEXIST);
  EXPECT_EQ(sys_of(dir(kRootUser, kRoot, "a")), EEXIST);
  // Existence is checked before the right to create.
  EXPECT_EQ(sys_of(file(kAlice, kRoot, "a")), EEXIST);
  const auto again = create(kRootUser, kRoot, "a", {.mode = 0600, .exclusive = false});
  EXPECT_EQ(again->id, first->id);
  EXPECT_EQ(again->mode, 0644u);
  const auto barred = create(kAlice, kRoot, "a", {.exclusive = false, .rights = kMayWrite});
  EXPECT_EQ(sys_of(barred), EACCES);
  ASSERT_TRUE(dir(kRootUser, kRoot, "d").ok());
  EXPECT_EQ(sys_of(create(kRootUser, kRoot, "d", {.exclusive = false})), EISDIR);
}

TEST_P(NamespaceTest, ARequestIsDoneOnce) {
  const RequestId once = request();
  const auto first = run(names().create(kRootUser, once, kRoot, "a", {.mode = 0600}));
  ASSERT_TRUE(first.ok());
  const auto again = run(names().create(kRootUser, once, kRoot, "a", {.mode = 0600}));
  EXPECT_EQ(again.value(), *first);
  const RequestId removal = request();
  EXPECT_TRUE(run(names().unlink(kRootUser, removal, kRoot, "a", {})).ok());
  // Another client creates it again: the late attempt must not remove it.
  ASSERT_TRUE(run(names().create(kRootUser, {.client = 8, .sequence = 1}, kRoot, "a", {})).ok());
  EXPECT_EQ(run(names().unlink(kRootUser, removal, kRoot, "a", {}))->id, first->id);
  EXPECT_TRUE(run(names().lookup(kRootUser, kRoot, "a")).ok());
  const auto late = run(names().create(kRootUser, once, kRoot, "b", {}));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::refused);
}

TEST_P(NamespaceTest, WhatWasGivenUpIsNotDoneByAnEarlierTry) {
  const RequestId refused = request();
  const auto told = run(names().unlink(kRootUser, refused, kRoot, "a", {}));
  ASSERT_EQ(sys_of(told), ENOENT);
  EXPECT_TRUE(run(names().record_refusal(refused, told.error())).value());
  ASSERT_TRUE(run(names().create(kRootUser, {.client = 8, .sequence = 1}, kRoot, "a", {})).ok());
  // Now the slow attempt arrives, and a retry that asks for the reply.
  EXPECT_EQ(sys_of(run(names().unlink(kRootUser, refused, kRoot, "a", {}))), ENOENT);
  EXPECT_TRUE(run(names().lookup(kRootUser, kRoot, "a")).ok());
  EXPECT_FALSE(run(names().record_refusal(refused, told.error())).value());
  const RequestId done = request();
  ASSERT_TRUE(run(names().unlink(kRootUser, done, kRoot, "a", {})).ok());
  EXPECT_FALSE(run(names().record_refusal(done, told.error())).value());
  EXPECT_TRUE(run(names().unlink(kRootUser, done, kRoot, "a", {})).ok());
}

TEST_P(NamespaceTest, LinksAreCounted) {
  const auto file_made = file(kRootUser, kRoot, "a");
  const InodeId id = file_made->id;
  EXPECT_EQ(link(kRootUser, id, kRoot, "b")->links, 2u);
  EXPECT_EQ(sys_of(link(kRootUser, id, kRoot, "b")), EEXIST);
  EXPECT_EQ(sys_of(link(kRootUser, kRoot, kRoot, "c")), EPERM);
  EXPECT_EQ(sys_of(link(kRootUser, 999, kRoot, "c")), ESTALE);
  EXPECT_EQ(unlink(kRootUser, kRoot, "a")->links, 1u);
  EXPECT_EQ(unlink(kRootUser, kRoot, "b")->links, 0u);
  EXPECT_EQ(sys_of(unlink(kRootUser, kRoot, "b")), ENOENT);
  // Openers still see it; it cannot get a name again.
  EXPECT_EQ(stat(id)->links, 0u);
  EXPECT_EQ(sys_of(link(kRootUser, id, kRoot, "c")), ENOENT);
}

TEST_P(NamespaceTest, DirectoriesAreRemovedEmpty) {
  const auto top = dir(kRootUser, kRoot, "d");
  const auto below = dir(kRootUser, top->id, "e");
  EXPECT_EQ(stat(top->id)->links, 3u);
  EXPECT_EQ(sys_of(unlink(kRootUser, kRoot, "d")), EISDIR);
  EXPECT_EQ(sys_of(rmdir(kRootUser, kRoot, "d")), ENOTEMPTY);
  EXPECT_TRUE(rmdir(kRootUser, top->id, "e").ok());
  EXPECT_EQ(stat(top->id)->links, 2u);
  EXPECT_EQ(sys_of(stat(below->id)), ESTALE);
  EXPECT_EQ(sys_of(file(kRootUser, below->id, "x")), ENOENT);
  ASSERT_TRUE(file(kRootUser, top->id, "f").ok());
  EXPECT_EQ(sys_of(rmdir(kRootUser, top->id, "f")), ENOTDIR);
  EXPECT_EQ(sys_of(rmdir(kRootUser, kRoot, "d")), ENOTEMPTY);
  EXPECT_TRUE(unlink(kRootUser, top->id, "f").ok());
  EXPECT_TRUE(rmdir(kRootUser, kRoot, "d").ok());
  EXPECT_EQ(stat(kRoot)->links, 2u);
}

TEST_P(NamespaceTest, RenameMovesAndReplaces) {
  const auto a = file(kRootUser, kRoot, "a");
  const auto b = file(kRootUser, kRoot, "b");
  EXPECT_EQ(sys_of(rename(kRootUser, {kRoot, "x", kRoot, "y"})), ENOENT);
  EXPECT_EQ(sys_of(rename(kRootUser, {kRoot, "a", kRoot, "b", true})), EEXIST);
  EXPECT_TRUE(rename(kRootUser, {kRoot, "a", kRoot, "b"}).ok());
  EXPECT_EQ(stat(b->id)->links, 0u);
  EXPECT_EQ(run(names().lookup(kRootUser, kRoot, "b"))->id, a->id);
  EXPECT_EQ(sys_of(run(names().lookup(kRootUser, kRoot, "a"))), ENOENT);
  // Two names of one file both stay.
  ASSERT_TRUE(link(kRootUser, a->id, kRoot, "a").ok());
  EXPECT_TRUE(rename(kRootUser, {kRoot, "a", kRoot, "b"}).ok());
  EXPECT_EQ(stat(a->id)->links, 2u);
  EXPECT_TRUE(run(names().lookup(kRootUser, kRoot, "a")).ok());
}

TEST_P(NamespaceTest, RenameOfDirectories) {
  const auto a = dir(kRootUser, kRoot, "a");
  const auto b = dir(kRootUser, a->id, "b");
  const auto c = dir(kRootUser, b->id, "c");
  const auto full = dir(kRootUser, kRoot, "full");
  ASSERT_TRUE(file(kRootUser, full->id, "f").ok());
  ASSERT_TRUE(dir(kRootUser, kRoot, "empty").ok());
  EXPECT_EQ(sys_of(rename(kRootUser, {kRoot, "a", c->id, "loop"})), EINVAL);
  EXPECT_EQ(sys_of(rename(kRootUser, {kRoot, "a", a->id, "loop"})), EINVAL);
  EXPECT_EQ(sys_of(rename(kRootUser, {kRoot, "a", kRoot, "full"})), ENOTEMPTY);
  EXPECT_EQ(sys_of(rename(kRootUser, {kRoot, "a", full->id, "f"})), ENOTDIR);
  EXPECT_EQ(sys_of(rename(kRootUser, {full->id, "f", kRoot, "a"})), EISDIR);
  EXPECT_EQ(stat(kRoot)->links, 5u);
  EXPECT_TRUE(rename(kRootUser, {kRoot, "a", kRoot, "empty"}).ok());
  EXPECT_EQ(stat(kRoot)->links, 4u);
  EXPECT_TRUE(rename(kRootUser, {a->id, "b", full->id, "b"}).ok());
  EXPECT_EQ(stat(a->id)->links, 2u);
  EXPECT_EQ(stat(full->id)->links, 3u);
  EXPECT_EQ(stat(b->id)->parent, full->id);
  EXPECT_EQ(walk(kRootUser, "/full/b/c/..")->inode->id, b->id);
  // Now that b has moved, its former parent can move below it.
  EXPECT_TRUE(rename(kRootUser, {kRoot, "empty", c->id, "a"}).ok());
  EXPECT_EQ(walk(kRootUser, "/full/b/c/a/../../../..")->inode->id, kRoot);
}

TEST_P(NamespaceTest, ExchangeSwapsTwo) {
  const auto d = dir(kRootUser, kRoot, "d");
  const auto e = dir(kRootUser, d->id, "e");
  const auto f = file(kRootUser, kRoot, "f");
  Namespace::Rename swap{kRoot, "f", d->id, "e"};
  swap.exchange = true;
  EXPECT_TRUE(rename(kRootUser, swap).ok());
  EXPECT_EQ(walk(kRootUser, "/f")->inode->id, e->id);
  EXPECT_EQ(walk(kRootUser, "/d/e")->inode->id, f->id);
  EXPECT_EQ(stat(e->id)->parent, kRoot);
  EXPECT_EQ(stat(kRoot)->links, 4u);
  EXPECT_EQ(stat(d->id)->links, 2u);
  swap.to = "nothing";
  EXPECT_EQ(sys_of(rename(kRootUser, swap)), ENOENT);
  // One of them would move below itself.
  Namespace::Rename loop{kRoot, "d", d->id, "e"};
  loop.exchange = true;
  EXPECT_EQ(sys_of(rename(kRootUser, loop)), EINVAL);
  loop.no_replace = true;
  EXPECT_EQ(sys_of(rename(kRootUser, loop)), EINVAL);
}

TEST_P(NamespaceTest, PathsAreWalked) {
  const auto d = dir(kRootUser, kRoot, "d");
  const auto f = file(kRootUser, d->id, "f");
  const auto s = [&](InodeId at, std::string name, std::string target) {
    Namespace::CreateOptions link{
        .kind = InodeType::symlink, .mode = 0777, .target = std::move(target)};
    EXPECT_TRUE(create(kRootUser, at, std::move(name), std::move(link)).ok());
  };
  s(kRoot, "to_f", "d/f");
  s(d->id, "up", "../to_f");
  s(kRoot, "abs", "/d");
  s(kRoot, "loop", "loop");
  s(kRoot, "gone", "nowhere/at/all");
  EXPECT_EQ(walk(kRootUser, "/")->inode->id, kRoot);
  EXPECT_EQ(walk(kRootUser, "//d/.//f")->inode->id, f->id);
  EXPECT_EQ(walk(kRootUser, "/to_f")->inode->id, f->id);
  EXPECT_EQ(walk(kRootUser, "/to_f", false)->inode->kind, InodeType::symlink);
  EXPECT_EQ(walk(kRootUser, "/d/up")->inode->id, f->id);
  EXPECT_EQ(walk(kRootUser, "/abs/f", false)->inode->id, f->id);
  EXPECT_EQ(walk(kRootUser, "/abs/", false)->inode->id, d->id);
  EXPECT_EQ(sys_of(walk(kRootUser, "/loop")), ELOOP);
  EXPECT_EQ(sys_of(walk(kRootUser, "/gone/x")), ENOENT);
  EXPECT_EQ(sys_of(walk(kRootUser, "/d/f/x")), ENOTDIR);
  EXPECT_EQ(sys_of(walk(kRootUser, "/d/f/")), ENOTDIR);
  EXPECT_EQ(sys_of(walk(kRootUser, "")), ENOENT);
  EXPECT_EQ(sys_of(walk(kRootUser, std::string("/d\0f", 4))), EINVAL);
  const auto absent = walk(kRootUser, "/d/new");
  ASSERT_TRUE(absent.ok());
  EXPECT_FALSE(absent->inode);
  EXPECT_EQ(absent->dir.id, d->id);
  EXPECT_EQ(absent->name, "new");
  EXPECT_EQ(walk(kRootUser, "/../../d")->inode->id, d->id);
}

TEST_P(NamespaceTest, ModesRightsAndOwners) {
  const auto home = dir(kRootUser, kRoot, "home", 0777);
  const auto shut = dir(kAlice, home->id, "shut", 0700);
  const auto f = file(kAlice, shut->id, "f", 0666);
  EXPECT_EQ(sys_of(run(names().lookup(kBob, shut->id, "f"))), EACCES);
  EXPECT_EQ(sys_of(walk(kBob, "/home/shut/f")), EACCES);
  EXPECT_EQ(sys_of(run(names().list(kBob, shut->id, "", 9, false))), EACCES);
  EXPECT_EQ(sys_of(unlink(kBob, shut->id, "f")), EACCES);
  EXPECT_EQ(sys_of(change(kBob, f->id, {.mode = 0777})), EPERM);
  EXPECT_EQ(sys_of(change(kAlice, f->id, {.uid = kBob.uid})), EPERM);
  EXPECT_EQ(sys_of(change(kAlice, f->id, {.gid = 4})), EPERM);
  EXPECT_EQ(change(kAlice, f->id, {.gid = 50})->gid, 50u);
  EXPECT_EQ(change(kRootUser, f->id, {.mode = 06777})->mode, 06777u);
  // A change of owner clears these bits.
  EXPECT_EQ(change(kRootUser, f->id, {.uid = kBob.uid})->mode, 0777u);
  EXPECT_EQ(sys_of(run(names().open(kAlice, f->id, kMayRead | kMayWrite, {}))), 0);
  EXPECT_EQ(change(kBob, f->id, {.mode = 0604})->mode, 0604u);
  // A member of the group, which has no right although all others have.
  EXPECT_EQ(sys_of(run(names().open(kAlice, f->id, kMayRead, {}))), EACCES);
  EXPECT_EQ(sys_of(run(names().open({.uid = 7, .gid = 7}, f->id, kMayRead, {}))), 0);
  EXPECT_EQ(sys_of(run(names().open(kRootUser, f->id, kMayWrite, {}))), 0);
  EXPECT_EQ(sys_of(run(names().open(kRootUser, f->id, kMaySearch, {}))), EACCES);
}

// As in Linux: not regular files alone.
TEST_P(NamespaceTest, AChangeOfOwnerClearsSetIdsOfEverythingButDirectories) {
  const auto home = dir(kRootUser, kRoot, "home", 0777);
  for (const InodeType kind : {InodeType::file, InodeType::fifo, InodeType::socket}) {
    const auto made = run(names().create(kAlice, request(), home->id, fmt::format("{}", int(kind)),
                                         {.kind = kind, .mode = 0755}));
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_EQ(change(kRootUser, made->id, {.mode = 06755})->mode, 06755u);
    EXPECT_EQ(change(kAlice, made->id, {.gid = 50})->mode, 0755u);
  }
  const auto sub = dir(kAlice, home->id, "sub", 0755);
  ASSERT_EQ(change(kRootUser, sub->id, {.mode = 02755})->mode, 02755u);
  EXPECT_EQ(change(kAlice, sub->id, {.gid = 50})->mode, 02755u);
}

TEST_P(NamespaceTest, OnlyMembersOfTheGroupSetSetGroupId) {
  const auto home = dir(kRootUser, kRoot, "home", 0777);
  const auto f = file(kAlice, home->id, "f", 0755);
  const auto sub = dir(kAlice, home->id, "sub", 0755);
  for (const InodeId id : {f->id, sub->id}) {
    ASSERT_TRUE(change(kRootUser, id, {.gid = 4}).ok());
    EXPECT_EQ(change(kAlice, id, {.mode = 02755})->mode, 0755u);
    ASSERT_TRUE(change(kRootUser, id, {.gid = 50}).ok());
    EXPECT_EQ(change(kAlice, id, {.mode = 02755})->mode, 02755u);
  }
}

// The writes of a client that is not trusted pass by the server.
TEST_P(NamespaceTest, AnOpenForWritingMayClearSetIds) {
  const auto home = dir(kRootUser, kRoot, "home", 0777);
  const auto f = file(kRootUser, home->id, "f", 0777);
  ASSERT_EQ(change(kRootUser, f->id, {.mode = 06777})->mode, 06777u);
  EXPECT_EQ(run(names().open(kAlice, f->id, kMayRead, {}, true))->mode, 06777u);
  EXPECT_EQ(run(names().open(kAlice, f->id, kMayWrite, {}, false))->mode, 06777u);
  EXPECT_EQ(run(names().open(kRootUser, f->id, kMayWrite, {}, true))->mode, 06777u);
  EXPECT_EQ(run(names().open(kAlice, f->id, kMayWrite, {}, true))->mode, 0777u);
  EXPECT_EQ(run(names().stat(f->id))->mode, 0777u);
}

TEST_P(NamespaceTest, StickyAndSetGroupDirectories) {
  const auto tmp = dir(kRootUser, kRoot, "tmp", 01777);
  ASSERT_TRUE(file(kAlice, tmp->id, "a", 0666).ok());
  EXPECT_EQ(sys_of(unlink(kBob, tmp->id, "a")), EPERM);
  EXPECT_EQ(sys_of(rename(kBob, {tmp->id, "a", tmp->id, "b"})), EPERM);
  EXPECT_TRUE(rename(kAlice, {tmp->id, "a", tmp->id, "b"}).ok());
  EXPECT_TRUE(unlink(kRootUser, tmp->id, "b").ok());
  const auto team = dir(kRootUser, kRoot, "team", 0777);
  ASSERT_TRUE(change(kRootUser, team->id, {.mode = 02777, .gid = 50}).ok());
  EXPECT_EQ(file(kAlice, team->id, "f")->gid, 50u);
  const auto below = dir(kAlice, team->id, "d");
  EXPECT_EQ(below->gid, 50u);
  EXPECT_EQ(below->mode, 02755u);
  // Moves a directory that she does not own, which changes its "..".
  const auto other = dir(kBob, team->id, "bobs", 0755);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(sys_of(rename(kAlice, {team->id, "bobs", tmp->id, "x"})), EACCES);
}

TEST_P(NamespaceTest, TimesMoveWithWhatChanges) {
  const auto d = dir(kRootUser, kRoot, "d");
  clock().pass(kSecond);
  const auto f = file(kRootUser, d->id, "f");
  EXPECT_EQ(stat(d->id)->mtime_ns, f->btime_ns);
  EXPECT_EQ(stat(d->id)->ctime_ns, f->btime_ns);
  clock().pass(kSecond);
  ASSERT_TRUE(change(kRootUser, f->id, {.mode = 0600}).ok());
  EXPECT_EQ(stat(f->id)->ctime_ns, clock().wall_ns());
  EXPECT_EQ(stat(f->id)->mtime_ns, f->btime_ns);
  EXPECT_EQ(change(kRootUser, d->id, {.atime_ns = 5, .mtime_ns = 6})->mtime_ns, 6);
  EXPECT_EQ(stat(d->id)->atime_ns, 5);
  EXPECT_EQ(stat(d->id)->mtime_ns, 6);
  EXPECT_EQ(stat(d->id)->ctime_ns, clock().wall_ns());
  EXPECT_EQ(sys_of(change(kAlice, f->id, {.atime_ns = 5})), EPERM);
  EXPECT_EQ(sys_of(change(kAlice, f->id, {.times_now = true})), EACCES);
  ASSERT_TRUE(change(kRootUser, f->id, {.mode = 0666}).ok());
  EXPECT_EQ(change(kAlice, f->id, {.times_now = true})->mtime_ns, clock().wall_ns());
}

TEST_P(NamespaceTest, ListsPageByPage) {
  const auto d = dir(kRootUser, kRoot, "d");
  for (int i = 0; i < 25; i++) {
    ASSERT_TRUE(file(kRootUser, d->id, fmt::format("f{:02}", i)).ok());
  }
  std::vector<std::string> seen;
  std::string after;
  for (bool end = false; !end;) {
    const auto page = run(names().list(kRootUser, d->id, after, 10, seen.size() >= 10));
    ASSERT_TRUE(page.ok());
    ASSERT_LE(page->entries.size(), 10u);
    for (const auto& entry : page->entries) {
      EXPECT_EQ(entry.inode.has_value(), seen.size() >= 10);
      EXPECT_EQ(entry.inode.value_or(Inode{.id = entry.id}).id, entry.id);
      seen.push_back(entry.name);
      if (seen.size() % 10 == 0) break;
    }
    after = seen.back();
    end = page->end;
  }
  ASSERT_EQ(seen.size(), 25u);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(sys_of(run(names().list(kRootUser, 999, "", 10, false))), ENOENT);
}

TEST_P(NamespaceTest, AttributesOfUsers) {
  const auto f = file(kRootUser, kRoot, "f", 0644);
  const auto set = [&](const Caller& who, std::string name, std::optional<std::string> value,
                       Namespace::XattrMode mode = Namespace::XattrMode::any) {
    return sys_of(run(names().set_xattr(who, request(), f->id, name, value, mode)));
  };
  EXPECT_EQ(set(kRootUser, "user.a", "1"), 0);
  EXPECT_EQ(set(kRootUser, "user.a", "2", Namespace::XattrMode::create), EEXIST);
  EXPECT_EQ(set(kRootUser, "user.b", "2", Namespace::XattrMode::replace), ENODATA);
  EXPECT_EQ(set(kAlice, "user.b", "2"), EACCES);
  EXPECT_EQ(set(kAlice, "trusted.b", "2"), EPERM);
  EXPECT_EQ(set(kRootUser, "system.b", "2"), EOPNOTSUPP);
  EXPECT_EQ(set(kRootUser, "user.b", std::string(64 * kKiB + 1, 'x')), E2BIG);
  EXPECT_EQ(set(kRootUser, "user." + std::string(251, 'x'), "1"), ERANGE);
  EXPECT_EQ(set(kRootUser, "user.b", std::string("\0\xff", 2)), 0);
  EXPECT_EQ(run(names().get_xattr(kAlice, f->id, "user.a")).value(), "1");
  EXPECT_TRUE(run(names().get_xattr(kAlice, f->id, "user.b")).value() == std::string("\0\xff", 2));
  const auto all = run(names().list_xattrs(f->id));
  EXPECT_EQ(all.value(), (std::vector<std::string>{"user.a", "user.b"}));
  EXPECT_EQ(set(kRootUser, "user.a", std::nullopt), 0);
  EXPECT_EQ(set(kRootUser, "user.a", std::nullopt), ENODATA);
  EXPECT_EQ(stat(f->id)->xattrs, 1u);
  for (uint32_t i = 1; i < kXattrsMax; i++)
    ASSERT_EQ(set(kRootUser, fmt::format("user.{}", i), ""), 0);
  EXPECT_EQ(set(kRootUser, "user.more", ""), ENOSPC);
}

TEST_P(NamespaceTest, LayoutsComeFromTheDirectory) {
  const auto d = dir(kRootUser, kRoot, "d");
  const Layout wanted{.table = 2, .chunk_size = 256 * kKiB, .stripe = 2};
  ASSERT_TRUE(run(names().set_layout(kRootUser, request(), d->id, wanted)).ok());
  const auto below = dir(kRootUser, d->id, "below");
  const auto f = file(kRootUser, below->id, "f");
  EXPECT_EQ(f->layout.table, 2u);
  EXPECT_EQ(f->layout.version, 1u);
  EXPECT_EQ(f->layout.chunk_size, 256 * kKiB);
  EXPECT_EQ(f->layout.stripe, 2u);
  EXPECT_EQ(file(kRootUser, kRoot, "g")->layout.table, 1u);
  const auto set = [&](const Caller& who, InodeId id, Layout layout) {
    return run(names().set_layout(who, request(), id, layout));
  };
  EXPECT_EQ(sys_of(set(kAlice, d->id, wanted)), EPERM);
  EXPECT_EQ(sys_of(set(kRootUser, f->id, wanted)), ENOTDIR);
  EXPECT_FALSE(set(kRootUser, d->id, {.table = 9}).ok());
  EXPECT_FALSE(set(kRootUser, d->id, {.table = 1, .chunk_size = 100'000}).ok());
  EXPECT_FALSE(set(kRootUser, d->id, {.table = 1, .stripe = 257}).ok());
  ASSERT_TRUE(set(kRootUser, d->id, {}).ok());
  EXPECT_EQ(file(kRootUser, d->id, "h")->layout.table, 1u);
}

TEST_P(NamespaceTest, AChunkSizeThatIsAskedForYieldsToTheDirectory) {
  const auto asked = create(kRootUser, kRoot, "asked", {.chunk_size = 4 * kMiB});
  EXPECT_EQ(asked->layout.chunk_size, 4 * kMiB);
  const auto dir =
      create(kRootUser, kRoot, "dir",
             {.kind = InodeType::directory, .layout = Layout{.table = 1, .chunk_size = 2 * kMiB}});
  EXPECT_EQ(create(kRootUser, dir->id, "a", {.chunk_size = 4 * kMiB})->layout.chunk_size, 2 * kMiB);
  EXPECT_FALSE(create(kRootUser, kRoot, "odd", {.chunk_size = 12'345}).ok());
}

TEST_P(NamespaceTest, LengthsGrowAndAreCut) {
  const auto f = file(kRootUser, kRoot, "f");
  const SessionId me{.client = 7, .number = 1};
  ASSERT_TRUE(run(names().open(kRootUser, f->id, kMayWrite, me)).ok());
  const auto report = [&](Namespace::LengthReport sent) {
    return run(names().report_length(f->id, me, sent));
  };
  EXPECT_EQ(report({.min_length = 100, .mtime_ns = 1})->length, 100u);
  EXPECT_EQ(report({.min_length = 50})->length, 100u);
  const auto cut = run(names().truncate(kRootUser, request(), f->id, 10, true));
  EXPECT_EQ(cut->length, 10u);
  EXPECT_TRUE(cut->truncating);
  EXPECT_EQ(cut->truncate_seq, 1u);
  // Reported for the time before the truncation: ignored.
  EXPECT_EQ(report({.min_length = 100})->length, 10u);
  EXPECT_EQ(report({.min_length = 20, .truncate_seq = 1})->length, 20u);
  ASSERT_TRUE(run(names().truncation_done(f->id, 0)).ok());
  EXPECT_TRUE(stat(f->id)->truncating);
  ASSERT_TRUE(run(names().truncation_done(f->id, 1)).ok());
  EXPECT_FALSE(stat(f->id)->truncating);
  EXPECT_EQ(run(names().extend_length(f->id, 30, 0))->length, 20u);
  EXPECT_EQ(run(names().extend_length(f->id, 30, 1))->length, 30u);
  EXPECT_EQ(run(names().append(request(), f->id, 5))->length, 35u);
  EXPECT_EQ(stat(f->id)->min_length, 35u);
  EXPECT_EQ(sys_of(run(names().truncate(kRootUser, request(), f->id, kLengthMax + 1, true))),
            EFBIG);
  EXPECT_EQ(sys_of(run(names().append(request(), f->id, kLengthMax))), EFBIG);
  EXPECT_EQ(sys_of(run(names().truncate(kAlice, request(), f->id, 0, false))), EACCES);
  EXPECT_EQ(sys_of(run(names().truncate(kRootUser, request(), kRoot, 0, false))), EISDIR);
}

TEST_P(NamespaceTest, NobodyElseWritesToAFileWhoseWriterKeepsBytes) {
  const auto f = file(kRootUser, kRoot, "f");
  const SessionId me{.client = 7, .number = 1}, other{.client = 8, .number = 1};
  const auto report = [&](Namespace::LengthReport sent) {
    EXPECT_TRUE(run(names().report_length(f->id, me, sent)).ok());
  };
  const auto open = [&](SessionId session) {
    return sys_of(run(names().open(kRootUser, f->id, kMayWrite, session)));
  };
  const auto truncate = [&](bool opened) {
    return sys_of(run(names().truncate(kRootUser, request(), f->id, 0, opened)));
  };
  ASSERT_EQ(open(me), 0);
  report({.unstored = true});
  EXPECT_EQ(open(other), ENOSPC);
  EXPECT_EQ(sys_of(create(kRootUser, kRoot, "f",
                          {.exclusive = false, .session = other, .rights = kMayWrite})),
            ENOSPC);
  EXPECT_EQ(truncate(false), ENOSPC);
  EXPECT_EQ(sys_of(run(names().open(kRootUser, f->id, kMayRead, std::nullopt))), 0);
  EXPECT_EQ(open(me), 0);
  EXPECT_EQ(truncate(true), 0);
  EXPECT_EQ(open(other), ENOSPC);
  report({.min_length = 9, .truncate_seq = 1});
  EXPECT_EQ(open(other), 0);
  EXPECT_EQ(truncate(false), 0);
  report({.unstored = true});
  EXPECT_EQ(truncate(false), ENOSPC);
  std::vector<Namespace::EndedSession> ended = {{f->id, me}};
  ASSERT_TRUE(run(names().end_sessions(std::move(ended))).ok());
  EXPECT_EQ(open(other), 0);
  EXPECT_EQ(truncate(false), 0);
}

TEST_P(NamespaceTest, SessionsEndTogether) {
  const SessionId first{.client = 3, .number = 1}, second{.client = 3, .number = 2};
  const auto one = create(kRootUser, kRoot, "one", {.session = first});
  const auto two = create(kRootUser, kRoot, "two", {.session = second});
  const auto sessions = [&] {
    size_t found = 0;
    kv::TxnFunction function = [&found](kv::Txn& txn) -> Task<Result<void>> {
      const std::string begin(keys::kSession);
      auto ranging = txn.range({.begin = begin, .end = kv::end_of_prefix(begin), .limit = 9}, {});
      FF_CO_TRY(const auto entries, co_await std::move(ranging));
      found = entries.size();
      co_return Result<void>();
    };
    EXPECT_TRUE(run(engine().view(std::move(function), loop().now_ns() + kSecond)).ok());
    return found;
  };
  ASSERT_EQ(sessions(), 2u);
  std::vector<Namespace::EndedSession> ended = {{one->id, first}};
  ASSERT_TRUE(run(names().end_sessions(ended)).ok());
  EXPECT_EQ(sessions(), 1u);
  ended.push_back({two->id, second});  // also one that has ended
  ASSERT_TRUE(run(names().end_sessions(ended)).ok());
  EXPECT_EQ(sessions(), 0u);
}

TEST_P(NamespaceTest, ATreeGoesAtOnce) {
  const auto home = dir(kRootUser, kRoot, "home", 0777);
  const auto top = dir(kAlice, home->id, "top");
  const auto below = dir(kAlice, top->id, "below");
  ASSERT_TRUE(file(kAlice, below->id, "f").ok());
  const auto remove = [&](const Caller& who, InodeId at, std::string name) {
    return run(names().remove_tree(who, request(), at, std::move(name)));
  };
  EXPECT_EQ(sys_of(remove(kBob, home->id, "top")), EACCES);
  EXPECT_EQ(sys_of(remove(kAlice, below->id, "f")), ENOTDIR);
  EXPECT_EQ(sys_of(remove(kAlice, home->id, "nothing")), ENOENT);
  EXPECT_TRUE(remove(kAlice, home->id, "top").ok());
  EXPECT_EQ(sys_of(walk(kAlice, "/home/top/below")), ENOENT);
  EXPECT_EQ(stat(home->id)->links, 2u);
  // Nothing can be created in a removed directory.
  EXPECT_EQ(sys_of(file(kAlice, top->id, "new")), ENOENT);
}

TEST_P(NamespaceTest, NumbersAreNotGivenAgainAfterARestore) {
  const auto last = file(kRootUser, kRoot, "last");
  ASSERT_TRUE(last.ok());
  ASSERT_TRUE(run(engine().run(skip_inode_ids, INT64_MAX)).ok());
  InodeIdAllocator ids(engine(), loop());
  EXPECT_GT(run(ids.next(INT64_MAX)).value(), last->id + 1'000'000'000);
}

}  // namespace
}  // namespace ff::meta
