// key.cc: key files, and the cryptographic primitives of the handshake.
#include "platform/auth/key.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::auth {

namespace {

constexpr uint32_t kOthers = 077;
constexpr uint32_t kGroupReads = 040;

// Whether it is a credential that systemd has made for this process (systemd.exec(5)). systemd may
// give access to one user by an access control list, whose mask stat(2) shows as that of the group.
bool is_credential(const std::string& path) {
  const char* const dir = ::getenv("CREDENTIALS_DIRECTORY");
  return dir != nullptr && dir[0] == '/' && path.starts_with(std::string(dir) + "/") &&
         path.find("/../") == path.npos;
}

Result<void> check_mode(const io::FileInfo& info, const std::string& path, std::string_view what) {
  const bool by_list = info.uid == 0 && info.gid == 0 && is_credential(path);
  if ((info.mode & kOthers & ~(by_list ? kGroupReads : 0)) == 0) return {};
  Error error = fail(Errc::refused, "{}: others may read this {} (mode {:04o})", path, what,
                     info.mode & 07777);
  error.hint = fmt::format("chmod 600 {}; if others may have read it, make a new {}.", path, what);
  return error;
}

}  // namespace

Result<void> check_secret_owner(uint32_t owner, const std::string& path, std::string_view what) {
  if (owner == 0 || owner == ::geteuid()) return {};
  Error error =
      fail(Errc::refused, "{}: this {} belongs to user {}, who may replace it", path, what, owner);
  error.hint = std::string("Copy it to a file of your own, or chown it to you or root.");
  return error;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

uint64_t SecureRng::next() {
  std::array<unsigned char, sizeof(uint64_t)> bytes;
  FF_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return std::bit_cast<uint64_t>(bytes);
}

std::optional<Key> key_of_bytes(std::string_view bytes) {
  if (bytes.size() != kKeyBytes) return std::nullopt;
  Key key;
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

void fill_random(ByteSpan into, Rng& rng) {
  for (std::byte& byte : into) byte = static_cast<std::byte>(rng.next());
}

Key hmac_sha256(const Key& key, ByteView data) {
  Key out;
  unsigned size = 0;
  FF_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr);
  FF_CHECK(size == out.size());
  return out;
}

bool constant_time_equal(ByteView a, ByteView b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<void> make_key_file(io::Disk& disk, const std::string& path) {
  SecureRng rng;
  Key key;
  fill_random(key, rng);
  SecretText text;
  text.reserve(2 * kKeyBytes + 1);
  append_hex(text, key);
  text += '\n';
  FF_TRY(auto file,
         disk.open(
             path,
             {.access = io::AccessMode::write, .create = true, .exclusive = true, .mode = 0600}));
  FF_TRY(file->write_at(as_bytes(text), 0));
  FF_TRY(file->sync());
  return disk.sync_dir(io::parent(path));
}

void append_hex(SecretText& text, const Key& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const std::byte byte : key) {
    text += kDigits[std::to_integer<size_t>(byte >> 4)];
    text += kDigits[std::to_integer<size_t>(byte & std::byte{15})];
  }
}

std::optional<Key> parse_key(std::string_view digits) {
  if (digits.size() != 2 * kKeyBytes) return std::nullopt;
  Key key;
  for (size_t i = 0; i < kKeyBytes; i++) {
    const int high = hex_digit(digits[2 * i]);
    const int low = hex_digit(digits[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key[i] = static_cast<std::byte>(high * 16 + low);
  }
  return key;
}

Result<SecretText> read_secret_file(io::Disk& disk, const std::string& path, std::string_view what,
                                    size_t bytes_max, uint32_t* owner) {
  FF_TRY(const auto file, disk.open(path, {}));
  FF_TRY(const auto info, file->info());
  if (owner != nullptr) *owner = info.uid;
  if (owner == nullptr) FF_TRY(check_secret_owner(info.uid, path, what));
  FF_TRY(check_mode(info, path, what));
  SecretText text(bytes_max + 2, '\0');  // room for the newline and one excess byte
  FF_TRY(const size_t size,
         file->read_at({reinterpret_cast<std::byte*>(text.data()), text.size()}, 0));
  text.resize(size);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Result<Key> read_key_file(io::Disk& disk, const std::string& path) {
  FF_TRY(const SecretText text, read_secret_file(disk, path, "key", 2 * kKeyBytes));
  if (const auto key = parse_key(text)) return *key;
  Error error = fail(Errc::corrupt, "{}: not a cluster key (64 hex digits)", path);
  error.hint = "Copy cluster.key from another machine of the cluster.";
  return error;
}

}  // namespace ff::auth
