// Secrets are overwritten when they are freed, lie in locked pages, and leave no core dump.
#include "platform/auth/secret_memory.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "platform/auth/key.h"
#include "platform/auth/keyring.h"

namespace ff::auth {
namespace {

TEST(SecretMemoryTest, AKeyIsOverwrittenWhenItIsDestroyed) {
  alignas(Key) std::array<std::byte, sizeof(Key)> memory = {};
  auto* const key = new (memory.data()) Key;
  key->fill(std::byte{7});
  EXPECT_EQ(std::ranges::count(memory, std::byte{7}), 32);
  key->~Key();
  EXPECT_EQ(std::ranges::count(memory, std::byte{7}), 0);
}

TEST(SecretMemoryTest, AKeyStaysAnArray) {
  static_assert(sizeof(Key) == kKeyBytes);
  constexpr Key kFirst = {std::byte{1}};
  Key copy = kFirst;
  EXPECT_EQ(copy, kFirst);
  EXPECT_EQ(copy[0], std::byte{1});
  EXPECT_NE(copy, Key{});
  copy = {};
  EXPECT_EQ(copy, Key{});
  EXPECT_EQ(ByteView(copy).size(), kKeyBytes);
}

TEST(SecretMemoryTest, ATextIsOverwrittenWhenItIsDestroyed) {
  // A short text, which lies in the object itself.
  alignas(SecretText) std::array<char, sizeof(SecretText)> memory = {};
  auto* const text = new (memory.data()) SecretText("secret");
  const std::string_view all(memory.data(), memory.size());
  EXPECT_NE(all.find("secret"), all.npos);
  text->~SecretText();
  EXPECT_EQ(all.find("secret"), all.npos);
}

// The flags of the mapping that holds an address, from /proc/self/smaps: "rd wr mr mw me lo dd".
std::string flags_of(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      inside = from <= at && at < to;
    }
    if (inside && line.starts_with("VmFlags:")) return line + " ";
  }
  return {};
}

TEST(SecretMemoryTest, PagesOfKeysAreLockedAndLeftOutOfDumps) {
  const auto keyring = Keyring::from_root(Key{}, {.role = Role::meta, .name = "m1"});
  const std::string flags = flags_of(&*keyring->root());
  EXPECT_NE(flags.find(" dd "), flags.npos) << flags;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // there mlock() does nothing
  // Locking may be forbidden (RLIMIT_MEMLOCK).
  if (::geteuid() == 0) {
    EXPECT_NE(flags.find(" lo "), flags.npos) << flags;
  }
#endif
}

TEST(SecretMemoryTest, FreedMemoryIsOverwrittenAndUsedAgain) {
  std::pmr::memory_resource& memory = locked_memory();
  void* const one = memory.allocate(100);
  std::memset(one, 7, 100);
  memory.deallocate(one, 100);
  void* const other = memory.allocate(100);
  EXPECT_EQ(other, one);
  const auto* const bytes = static_cast<const char*>(other);
  // The pool may keep a pointer of its own in a free block.
  EXPECT_LT(std::count(bytes, bytes + 100, 7), 8);
  memory.deallocate(other, 100);
  void* const large = memory.allocate(100'000);
  std::memset(large, 7, 100'000);
  memory.deallocate(large, 100'000);
}

TEST(SecretMemoryTest, ThreadsShareTheMemory) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([] {
      for (int round = 0; round < 200; round++) {
        const auto keyring = Keyring::from_root(Key{}, {.role = Role::meta, .name = "m1"});
        EXPECT_EQ(keyring->root(), Key{});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SecretMemoryTest, AProcessThatForbidsDumpsIsNotDumpable) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    forbid_dumps();
    ::_exit(::prctl(PR_GET_DUMPABLE) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ff::auth
