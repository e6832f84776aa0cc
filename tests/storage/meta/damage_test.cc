// A metadata store on SQLite with flipped bits: every read returns the right data or an error,
// never wrong or missing data. Also restores one name from a backup.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/kv/backup.h"
#include "platform/kv/record_checksum.h"
#include "platform/kv/sqlite_engine.h"
#include "storage/meta/metadata_scan.h"
#include "storage/meta/namespace.h"
#include "storage/meta/restore.h"

namespace ff::meta {
namespace {

constexpr int kDirs = 4;
constexpr int kFiles = 25;

// Even numbers, so that a flipped lowest bit does not change the order of keys.
std::string file_name(int number) { return fmt::format("file{:02}", number * 2); }

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The answers of the store.
using Answers = std::map<std::string, Result<std::string>>;

class DamageTest : public testing::Test {
 protected:
  // The namespace of a store, while it is open.
  struct Open {
    Open(kv::SqliteStore& of, SystemLoop& on, Clock& clock)
        : loop(on),
          engine(of, on),
          ids(engine, on),
          names(engine, clock,
                {.ids = ids,
                 .rng = rng,
                 .tables = [this] { return tables; },
                 .timeout_ns = 600 * kSecond}) {}
    template <class T>
    T run(Task<T> task) {
      return run_task(loop, std::move(task));
    }
    RequestId request() { return {.client = 7, .slot = 0, .sequence = ++sequence}; }
    SystemLoop& loop;
    SeededRng rng{5};
    kv::SqliteEngine engine;
    InodeIdAllocator ids;
    std::shared_ptr<const TableVersions> tables =
        std::make_shared<const TableVersions>(TableVersions{{1, 3}});
    Namespace names;
    uint64_t sequence = 0;
  };

  DamageTest() { std::cout << "seed " << seed_ << "\n"; }

  Result<std::unique_ptr<kv::SqliteStore>> store_at(const std::string& path) {
    return kv::SqliteStore::open(path, clock_, {.readers = 1});
  }
  // What the check of the file says, once it has ended.
  bool is_whole(const kv::SqliteStore& store) {
    const int64_t deadline_ns = clock_.steady_ns() + 60 * kSecond;
    while (!store.check_result() && clock_.steady_ns() < deadline_ns) clock_.sleep_ns(kMillisecond);
    return store.check_result().value().ok();
  }
  void fill() {
    const auto store = store_at(path_).value();
    Open open(*store, loop_, clock_);
    ASSERT_TRUE(open.run(open.names.create_root()).ok());
    for (int d = 0; d < kDirs; d++) {
      const auto dir =
          open.run(open.names.create({}, open.request(), kRoot, fmt::format("dir{}", d),
                                     {.kind = InodeType::directory, .mode = 0755}));
      ASSERT_TRUE(dir.ok());
      for (int f = 0; f < kFiles; f++) {
        const auto file =
            open.run(open.names.create({}, open.request(), dir->id, file_name(f), {.mode = 0644}));
        ASSERT_TRUE(file.ok());
        if (f % 5 != 0) continue;
        ASSERT_TRUE(open.run(open.names.set_xattr({}, open.request(), file->id, "user.a",
                                                  std::string(40, 'x'), Namespace::XattrMode::any))
                        .ok());
      }
      ASSERT_TRUE(
          open.run(open.names.create({}, open.request(), dir->id, "link",
                                     {.kind = InodeType::symlink, .mode = 0777, .target = "a/b"}))
              .ok());
    }
  }
  static std::string text_of(const Inode& inode) {
    wire::Inode message;
    to_wire(inode, message);
    return message.SerializeAsString();
  }
  Answers ask(kv::SqliteStore& store) {
    Open open(store, loop_, clock_);
    Answers answers;
    const auto walk = [&](const std::string& path) -> Result<Inode> {
      auto walked = open.run(open.names.walk({}, kRoot, path, false));
      if (!walked) return std::move(walked).error();
      if (!walked->inode) return errno_error(ENOENT, path);
      return *walked->inode;
    };
    const auto keep = [&](const std::string& what, const auto& result, const auto& text) {
      answers.emplace(what, result ? Result<std::string>(text(*result)) : result.error());
    };
    const auto list = [&](InodeId dir, const std::string& path) {
      const auto page = open.run(open.names.list({}, dir, "", 1000, true));
      keep("list " + path, page, [](const Namespace::DirPage& of) {
        std::string all;
        for (const auto& one : of.entries) {
          all += one.name + (one.inode ? text_of(*one.inode) : "gone") + "\n";
        }
        return all;
      });
    };
    list(kRoot, "/");
    for (int d = 0; d < kDirs; d++) {
      const std::string dir = fmt::format("/dir{}", d);
      const auto inode = walk(dir);
      keep(dir, inode, text_of);
      if (inode) list(inode->id, dir);
      std::vector<std::string> names = {"link"};
      for (int f = 0; f < kFiles; f++) names.push_back(file_name(f));
      for (const std::string& name : names) {
        const auto found = walk(dir + "/" + name);
        keep(dir + "/" + name, found, text_of);
        if (!found || name == "link") continue;
        keep("attribute of " + dir + "/" + name,
             open.run(open.names.get_xattr({}, found->id, "user.a")),
             [](const auto& value) { return value.value_or("none"); });
      }
    }
    return answers;
  }
  // Runs all reads on a store with the flipped bit. Returns whether any noticed it.
  bool flip(const std::string& bytes, size_t bit, const Answers& truth) {
    const io::TempDir dir;
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(dir / "kv.db", std::ios::binary) << flipped;
    const auto store = store_at(dir / "kv.db");
    if (!store || !is_whole(**store)) return true;
    bool noticed = false;
    for (const auto& [what, answer] : ask(**store)) {
      if (answer) {
        EXPECT_TRUE(*answer == truth.at(what).value()) << what << " is another: bit " << bit;
        continue;
      }
      noticed = true;
      EXPECT_EQ(answer.error().code, Errc::corrupt)
          << what << ", bit " << bit << ": " << answer.error().message;
    }
    return noticed;
  }
  // Writes below all checks.
  void change_raw(const std::string& sql) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &raw), SQLITE_OK);
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(raw, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
    EXPECT_EQ(sqlite3_changes(raw), 1);
    sqlite3_close(raw);
  }
  static std::string hex(std::string_view bytes) {
    std::string text = "x'";
    for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return text + "'";
  }
  FsckReport look(kv::SqliteStore& store) {
    Open open(store, loop_, clock_);
    FsckReport report;
    MetadataScan scan(report);
    kv::TxnFunction function = [&](kv::Txn& txn) { return scan.run(txn); };
    EXPECT_TRUE(open.run(open.engine.view(function, INT64_MAX)).ok());
    return report;
  }
  // At its place, whatever that does to the order of keys.
  void change_key(const std::string& from, const std::string& to) {
    std::string bytes = read_all(path_);
    for (size_t at = 0; (at = bytes.find(from, at)) != bytes.npos;)
      bytes.replace(at, to.size(), to);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  // Damages one record of /dir1/file06 and restores the name. Without SQL: damages its key.
  void restore_after(const std::string& sql, size_t erased) {
    fill();
    Answers truth;
    io::SystemDisk disk;
    InodeId dir = 0, file = 0;
    {
      const auto store = store_at(path_).value();
      truth = ask(*store);
      Open open(*store, loop_, clock_);
      dir = open.run(open.names.walk({}, kRoot, "/dir1", true))->inode->id;
      file = open.run(open.names.walk({}, kRoot, "/dir1/file06", true))->inode->id;
      ASSERT_TRUE(open.run(kv::write_backup(open.engine, disk, backup_, INT64_MAX)).ok());
    }
    std::string filled = sql;
    const auto fill_in = [&](const std::string& word, const std::string& key) {
      if (const size_t at = filled.find(word); at != filled.npos) {
        filled.replace(at, word.size(), hex(key));
      }
    };
    fill_in("NAME", keys::dentry(dir, "file06"));
    fill_in("INODE", keys::inode(file));
    if (sql.empty()) {
      change_key(keys::dentry(dir, "file06"), keys::dentry(dir, "file07"));
    } else {
      change_raw(filled);
    }
    const auto store = store_at(path_).value();
    const auto before = ask(*store);
    size_t errors = 0;
    for (const auto& [what, answer] : before) errors += answer ? 0 : 1;
    EXPECT_GT(errors, 0U);
    EXPECT_FALSE(before.at("/dir1/file06").ok());
    const FsckReport found = look(*store);
    EXPECT_TRUE(found.has_damaged_records || found.problems > 0);
    Open open(*store, loop_, clock_);
    const auto nothing =
        open.run(restore_name(open.engine, disk, backup_, "/dir1/none", INT64_MAX));
    EXPECT_EQ(nothing.error().code, Errc::not_found);
    const auto restored =
        open.run(restore_name(open.engine, disk, backup_, "/dir1/file06", INT64_MAX));
    ASSERT_TRUE(restored.ok()) << restored.error().message;
    EXPECT_EQ(restored->put.size(), 1U);
    EXPECT_EQ(restored->erased.size(), erased);
    for (const auto& [what, answer] : ask(*store)) {
      ASSERT_TRUE(answer.ok()) << what << ": " << answer.error().message;
      EXPECT_TRUE(*answer == truth.at(what).value()) << what;
    }
    EXPECT_EQ(look(*store).problems, 0U);
    const auto again =
        open.run(restore_name(open.engine, disk, backup_, "/dir1/file06", INT64_MAX));
    EXPECT_TRUE(again->put.empty());
  }

  const uint64_t seed_ = system_seed();
  SystemClock clock_;
  SystemLoop loop_{clock_};
  io::TempDir dir_;
  const std::string path_ = dir_ / "kv.db";
  const std::string backup_ = dir_ / "backup";
};

TEST_F(DamageTest, AFlippedBitIsNeverSilent) {
  constexpr int kTrials = 150;
  constexpr size_t kPageBits = size_t{4096} * 8;
  fill();
  const Answers truth = ask(*store_at(path_).value());
  const std::string bytes = read_all(path_);
  ASSERT_EQ(std::filesystem::file_size(path_), bytes.size());
  const size_t pages = bytes.size() * 8 / kPageBits;
  ASSERT_GT(pages, 5U);
  SeededRng rng(seed_);
  int noticed = 0;
  for (int i = 0; i < kTrials && !HasFailure(); i++) {
    const size_t page = static_cast<size_t>(i) % pages;
    noticed += flip(bytes, page * kPageBits + rng.below(kPageBits), truth) ? 1 : 0;
  }
  EXPECT_GT(noticed, kTrials / 10);  // many lie where nothing is
}

TEST_F(DamageTest, ABackupLeavesOutWhatIsDamagedAndNamesIt) {
  fill();
  io::SystemDisk disk;
  InodeId file = 0;
  uint64_t whole = 0;
  {
    const auto store = store_at(path_).value();
    Open open(*store, loop_, clock_);
    file = open.run(open.names.walk({}, kRoot, "/dir1/file06", true))->inode->id;
    const auto written = open.run(kv::write_backup(open.engine, disk, backup_, INT64_MAX));
    ASSERT_TRUE(written.ok());
    EXPECT_TRUE(written->left_out.empty());
    whole = written->entries;
  }
  change_raw("UPDATE kv SET value = zeroblob(length(value)) WHERE key = " + hex(keys::inode(file)));
  const auto store = store_at(path_).value();
  Open open(*store, loop_, clock_);
  const std::string after = backup_ + ".after";
  const auto written = open.run(kv::write_backup(open.engine, disk, after, INT64_MAX));
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(written->entries, whole - 1);
  EXPECT_EQ(written->left_out, (std::vector{kv::key_text(keys::inode(file))}));
  const auto copy = store_at(path_ + ".copy").value();
  Open restored(*copy, loop_, clock_);
  ASSERT_TRUE(restored.run(kv::restore_backup(restored.engine, disk, after, INT64_MAX)).ok());
  size_t errors = 0;
  for (const auto& [what, answer] : ask(*copy)) errors += answer ? 0 : 1;
  EXPECT_GT(errors, 0U);
  EXPECT_LE(errors, 2U);  // the file, and its attribute
}

TEST_F(DamageTest, AValueComesBackFromABackup) {
  restore_after("UPDATE kv SET value = zeroblob(length(value)) WHERE key = INODE", 0);
}

TEST_F(DamageTest, AnotherRecordsValueIsDamage) {
  restore_after("UPDATE kv SET value = (SELECT value FROM kv WHERE key > NAME) WHERE key = INODE",
                0);
}

TEST_F(DamageTest, ANameWhoseKeyHasFlippedComesBack) { restore_after("", 1); }

TEST_F(DamageTest, ANameThatIsGoneComesBack) {
  restore_after("DELETE FROM kv WHERE key = NAME", 0);
}

}  // namespace
}  // namespace ff::meta
