// Calls every linked library once, so that `ff help --versions` and its test detect a missing one
// or missing parts of it (curl without TLS, verbs without providers). Header-only libraries report
// the version of their headers. Needs no files: works in an empty chroot.
#include "cmd/help/versions.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <infiniband/verbs.h>
#include <libdeflate.h>
#include <libpq-fe.h>
#include <liburing.h>
#include <numa.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <rapidjson/rapidjson.h>
#include <spdlog/version.h>
#include <sqlite3.h>
#include <sys/utsname.h>
#include <toml++/toml.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <CLI/Version.hpp>
#include <algorithm>
#include <array>
#include <boost/version.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

// The version of jemalloc, if that is the allocator.
extern "C" [[gnu::weak]] int mallctl(const char* name, void* out, size_t* out_size, void* in,
                                     size_t in_size);

namespace ff::cmd {
namespace {

constexpr std::string_view kProbe = "proof that the library works, works, works, works";
constexpr std::string_view kBroken = "BROKEN: gave a wrong answer";

std::string three(uint64_t major, uint64_t minor, uint64_t patch) {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::string counted(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

LibraryVersion curl() {
  const curl_version_info_data* info = curl_version_info(CURLVERSION_NOW);
  std::string detail;
  for (const char* const* name = info->protocols; *name != nullptr; ++name) {
    detail += fmt::format("{} ", *name);
  }
  return {"curl", info->version,
          detail + "over " + (info->ssl_version ? info->ssl_version : "nothing")};
}

LibraryVersion fuse() {
  const bool device = access("/dev/fuse", R_OK | W_OK) == 0;
  return {"fuse", fuse_pkgversion(), device ? "/dev/fuse can be opened" : "no /dev/fuse here"};
}

// Empty if malloc() is that of the C library.
std::string jemalloc_version() {
  const char* version = nullptr;
  size_t size = sizeof version;
  if (mallctl == nullptr || mallctl("version", &version, &size, nullptr, 0) != 0) return {};
  const std::string_view text = version;
  return std::string(text.substr(0, text.find('-')));
}

LibraryVersion numa() {
  const std::string detail =
      numa_available() < 0 ? "forbidden here" : counted(numa_num_configured_nodes(), "node");
  return {"numa", FF_NUMA_VERSION, detail};
}

LibraryVersion openssl() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  const bool right =
      EVP_Digest("", 0, digest.data(), &size, EVP_sha256(), nullptr) == 1 && digest[0] == 0xe3;
  return {"openssl", OpenSSL_version(OPENSSL_VERSION_STRING),
          std::string(right ? "sha256 answers" : kBroken)};
}

// Writes a number as protobuf's variable-length integer and reads it back.
LibraryVersion protobuf() {
  namespace io = google::protobuf::io;
  constexpr uint64_t kNumber = uint64_t{1} << 40;
  std::array<uint8_t, 16> bytes{};
  io::ArrayOutputStream out(bytes.data(), bytes.size());
  io::CodedOutputStream writer(&out);
  writer.WriteVarint64(kNumber);
  writer.Trim();
  io::CodedInputStream reader(bytes.data(), writer.ByteCount());
  uint64_t number = 0;
  const bool right = reader.ReadVarint64(&number) && number == kNumber;
  return {"protobuf",
          three(GOOGLE_PROTOBUF_VERSION / 1000000, GOOGLE_PROTOBUF_VERSION / 1000 % 1000,
                GOOGLE_PROTOBUF_VERSION % 1000),
          std::string(right ? "lite runtime" : kBroken)};
}

LibraryVersion libpq() {
  const int version = PQlibVersion();
  const char* const tls = PQsslAttribute(nullptr, "library");
  return {"libpq", fmt::format("{}.{}", version / 10000, version % 10000),
          fmt::format("over {}", tls != nullptr ? tls : "nothing")};
}

LibraryVersion sqlite() {
  sqlite3* db = nullptr;
  sqlite3_stmt* statement = nullptr;
  const bool right = sqlite3_open(":memory:", &db) == SQLITE_OK &&
                     sqlite3_prepare_v2(db, "select 6 * 7", -1, &statement, nullptr) == SQLITE_OK &&
                     sqlite3_step(statement) == SQLITE_ROW &&
                     sqlite3_column_int(statement, 0) == 42;
  sqlite3_finalize(statement);
  sqlite3_close(db);
  return {"sqlite", sqlite3_libversion(), std::string(right ? "SQL answers" : kBroken)};
}

std::string uring_detail() {
  struct utsname kernel {};
  uname(&kernel);
  const std::string_view release = kernel.release;
  const std::string_view version = release.substr(0, release.find('.', release.find('.') + 1));
  io_uring_probe* probe = io_uring_get_probe();
  if (probe == nullptr) return fmt::format("kernel {}: forbidden here, threads are used", version);
  const int operations = static_cast<int>(
      std::count_if(probe->ops, probe->ops + probe->ops_len,
                    [](const io_uring_probe_op& op) { return op.flags & IO_URING_OP_SUPPORTED; }));
  io_uring_free_probe(probe);
  return fmt::format("kernel {} supports {}", version, counted(operations, "operation"));
}

// With a static link the providers are those that FF_VERBS_PROVIDERS of CMakeLists.txt names: the
// macro makes ibv_get_device_list refer to them, which links them in. A shared libibverbs loads its
// providers from files.
std::string verbs_detail() {
  int devices = 0;
  ibv_device** list = ibv_get_device_list(&devices);
  if (list == nullptr) devices = 0;  // this kernel has no verbs
  if (list != nullptr) ibv_free_device_list(list);
#ifdef RDMA_STATIC_PROVIDERS
#define FF_COUNT_PROVIDERS(...) std::string_view(#__VA_ARGS__)
#define FF_COUNT_EXPANDED(...) FF_COUNT_PROVIDERS(__VA_ARGS__)
  constexpr std::string_view kProviders = FF_COUNT_EXPANDED(RDMA_STATIC_PROVIDERS);
  const int providers = 1 + static_cast<int>(std::ranges::count(kProviders, ','));
  return fmt::format("{}, {}", counted(providers, "provider"), counted(devices, "device"));
#else
  return fmt::format("providers in files, {}", counted(devices, "device"));
#endif
}

LibraryVersion xxhash() {
  const unsigned version = XXH_versionNumber();
  const bool right = XXH3_64bits("", 0) == 0x2d06800538d394c2U;  // its published test vector
  return {"xxhash", three(version / 10000, version / 100 % 100, version % 100),
          std::string(right ? "XXH3 answers" : kBroken)};
}

LibraryVersion zstd() {
  std::array<char, 128> packed{};
  std::array<char, kProbe.size()> back{};
  const size_t size = ZSTD_compress(packed.data(), packed.size(), kProbe.data(), kProbe.size(), 1);
  const bool right = ZSTD_isError(size) == 0 &&
                     ZSTD_decompress(back.data(), back.size(), packed.data(), size) == back.size();
  return {"zstd", ZSTD_versionString(), std::string(right ? "round trip" : kBroken)};
}

LibraryVersion deflate() {
  const bool right =
      libdeflate_crc32(0, "123456789", 9) == 0xcbf43926;  // its published check value
  return {"deflate", LIBDEFLATE_VERSION_STRING, std::string(right ? "CRC-32 answers" : kBroken)};
}

}  // namespace

std::vector<LibraryVersion> library_versions() {
  const std::string header_only = "header only";
  std::vector<LibraryVersion> all = {
      {"boost", three(BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100),
       header_only},
      {"cli11", CLI11_VERSION, header_only},
      {"fmt", three(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100), header_only},
      {"nlohmann-json",
       three(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH),
       header_only},
      {"rapidjson", RAPIDJSON_VERSION_STRING, header_only},
      {"spdlog", three(SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH), header_only},
      {"toml++", three(TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH), header_only},
      {"uring", FF_URING_VERSION, uring_detail()},
      {"verbs", FF_VERBS_VERSION, verbs_detail()},
  };
  if (std::string version = jemalloc_version(); !version.empty()) {
    all.push_back({"jemalloc", std::move(version), "malloc"});
  }
  for (auto* ask : {curl, deflate, fuse, libpq, numa, openssl, protobuf, sqlite, xxhash, zstd}) {
    all.push_back(ask());
  }
  std::ranges::sort(all, {}, &LibraryVersion::name);
  return all;
}

}  // namespace ff::cmd
