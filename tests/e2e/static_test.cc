// build/ff is one file that runs anywhere: static, stripped, with every library inside. Proved from
// outside: the ELF headers, a run in a directory that holds nothing else, and what the libraries
// answer there.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "cmd/help/versions.h"

namespace {

namespace fs = std::filesystem;

constexpr int kNoChroot = 77;  // exit status of a child that may not change its root

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The headers of an ELF file, checked to lie inside it.
template <class Header>
std::vector<Header> headers(const std::string& file, uint64_t offset, size_t count) {
  std::vector<Header> all(count);
  if (offset + count * sizeof(Header) > file.size()) return {};
  memcpy(all.data(), file.data() + offset, count * sizeof(Header));
  return all;
}

class StaticBinary : public testing::Test {
 protected:
  void SetUp() override {
    if (!FF_IS_STATIC) GTEST_SKIP() << "this build of ff is not static (FF_STATIC=OFF)";
    file_ = read(FF_BINARY);
    ASSERT_GT(file_.size(), sizeof(Elf64_Ehdr));
    memcpy(&head_, file_.data(), sizeof head_);
  }

  std::string file_;
  Elf64_Ehdr head_;
};

TEST_F(StaticBinary, NeedsNoLoaderAndNoLibrary) {
  EXPECT_EQ(head_.e_machine, EM_X86_64);
  EXPECT_EQ(head_.e_type, ET_EXEC) << "static-pie: ldd would not say 'not a dynamic executable'";
  const auto segments = headers<Elf64_Phdr>(file_, head_.e_phoff, head_.e_phnum);
  ASSERT_FALSE(segments.empty());
  for (const Elf64_Phdr& segment : segments) {
    EXPECT_NE(segment.p_type, static_cast<uint32_t>(PT_INTERP));
    EXPECT_NE(segment.p_type, static_cast<uint32_t>(PT_DYNAMIC));
  }
}

TEST_F(StaticBinary, IsStripped) {
  const auto sections = headers<Elf64_Shdr>(file_, head_.e_shoff, head_.e_shnum);
  ASSERT_FALSE(sections.empty());
  for (const Elf64_Shdr& section : sections) {
    EXPECT_NE(section.sh_type, static_cast<uint32_t>(SHT_SYMTAB)) << "link with -s in release";
  }
}

// A static libibverbs finds no device at all unless its providers are named when ff is compiled;
// nothing else in ff holds these words.
TEST_F(StaticBinary, HoldsTheVerbsProviders) {
  EXPECT_NE(file_.find("mlx5: freezing at poll cq"), std::string::npos)
      << "provider mlx5 is missing";
  EXPECT_NE(file_.find("rdma_device:*Nrxe*"), std::string::npos) << "provider rxe is missing";
}

// Runs `ff help --versions` in a directory that holds only ff; its exit status, kNoChroot when this
// machine allows no such thing. An ordinary user becomes root of a user namespace for it.
int run_in_empty_root(const fs::path& root, std::string& output) {
  std::array<int, 2> pipe_ends;
  if (pipe(pipe_ends.data()) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) _exit(kNoChroot);
    if (chroot(root.c_str()) != 0) _exit(errno == EPERM ? kNoChroot : 76);
    if (chdir("/") != 0 || dup2(pipe_ends[1], 1) < 0 || dup2(pipe_ends[1], 2) < 0) _exit(76);
    execle("/ff", "ff", "help", "--versions", nullptr, std::array<char*, 1>{nullptr}.data());
    _exit(76);
  }
  close(pipe_ends[1]);
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(pipe_ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<size_t>(n));
  }
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(StaticBinary, RunsInAnEmptyRoot) {
  std::string name = fs::temp_directory_path() / "ff-root-XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  fs::copy_file(FF_BINARY, fs::path(name) / "ff");
  std::string output;
  const int status = run_in_empty_root(name, output);
  fs::remove_all(name);
  if (status == kNoChroot) {
    GTEST_SKIP() << "not root, and this machine gives ordinary users no user namespaces";
  }
  ASSERT_EQ(status, 0) << output;
  for (const ff::cmd::LibraryVersion& library : ff::cmd::library_versions()) {
    EXPECT_NE(output.find(library.name), std::string::npos) << library.name << " in\n" << output;
    EXPECT_NE(output.find(library.version), std::string::npos) << library.version << " in\n"
                                                               << output;
  }
  EXPECT_EQ(output.find("BROKEN"), std::string::npos) << output;
}

TEST(Versions, EveryLibraryAnswers) {
  std::map<std::string, ff::cmd::LibraryVersion> libraries;
  for (const auto& library : ff::cmd::library_versions()) libraries[library.name] = library;
  for (const std::string name :
       {"boost", "cli11", "curl", "deflate", "fmt", "fuse", "libpq", "nlohmann-json", "numa",
        "openssl", "protobuf", "rapidjson", "spdlog", "sqlite", "toml++", "uring", "verbs",
        "xxhash", "zstd"}) {
    ASSERT_TRUE(libraries.contains(name)) << name;
    EXPECT_TRUE(isdigit(libraries[name].version[0])) << name << " " << libraries[name].version;
    EXPECT_FALSE(libraries[name].detail.empty()) << name;
    EXPECT_FALSE(libraries[name].detail.starts_with("BROKEN")) << name;
  }
  EXPECT_EQ(libraries.size(), 19u);
  EXPECT_TRUE(libraries["curl"].detail.starts_with("http https over OpenSSL/"))
      << libraries["curl"].detail << ": not the trimmed curl that bootstrap builds";
  EXPECT_EQ(libraries["libpq"].detail, "over OpenSSL");
}

}  // namespace
