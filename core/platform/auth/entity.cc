// entity.cc: identities as text, and the keys that follow from them.
#include "platform/auth/entity.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <limits>

#include "platform/base/text.h"

namespace ff::auth {

namespace {

constexpr std::string_view kIdentityFormat = "ff2";
constexpr size_t kRangesMax = 32;
constexpr size_t kPathMax = 512;
constexpr std::array<std::string_view, 8> kRoles = {"admin",     "meta",  "storage", "mount",
                                                    "scheduler", "agent", "user",    "rank"};

bool valid_name(std::string_view name) {
  const auto valid = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kEntityNameMax && std::ranges::all_of(name, valid);
}

bool is_plain(char c) { return c > ' ' && c != '%' && c != '\x7f'; }

std::string encode_path(std::string_view path) {
  std::string text;
  for (const char c : path) {
    if (is_plain(c)) {
      text += c;
    } else {
      text += fmt::format("%{:02x}", static_cast<uint8_t>(c));
    }
  }
  return text;
}

std::optional<std::string> decode_path(std::string_view text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      path += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return path;
}

// Absolute, without empty, "." and ".." components, and without a final slash.
bool valid_path(std::string_view path) {
  if (path.size() < 2 || path.size() > kPathMax || path.front() != '/') return false;
  if (path.find('\0') != std::string_view::npos) return false;
  const auto parts = split(path.substr(1), '/');
  return std::ranges::none_of(
      parts, [](std::string_view part) { return part.empty() || part == "." || part == ".."; });
}

std::optional<uint32_t> parse_uid(std::string_view text) {
  const auto number = parse_u64(text);
  if (!number || *number > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

std::optional<UidRange> parse_range(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = parse_uid(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_uid(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return UidRange{*first, *last};
}

// The value of "NAME=value", if `field` has that name.
std::optional<std::string_view> value_of(std::string_view field, std::string_view name) {
  if (!field.starts_with(name) || field.size() <= name.size() || field[name.size()] != '=') {
    return std::nullopt;
  }
  return field.substr(name.size() + 1);
}

bool read_field(std::string_view field, Entity& entity) {
  if (const auto text = value_of(field, "serial")) {
    const auto number = parse_u64(*text);
    entity.serial = number.value_or(0);
    return number.has_value();
  }
  if (const auto text = value_of(field, "generation")) {
    const auto number = parse_uid(*text);
    entity.generation = number.value_or(0);
    return number.has_value();
  }
  if (const auto text = value_of(field, "uids")) {
    auto uids = parse_uids(*text);
    if (uids) entity.uids = std::move(*uids);
    return uids.has_value();
  }
  if (const auto text = value_of(field, "path")) {
    auto path = decode_path(*text);
    if (path) entity.path = std::move(*path);
    return path.has_value();
  }
  if (const auto text = value_of(field, "expires")) {
    const auto number = parse_u64(*text);
    const bool fits = number && *number <= std::numeric_limits<int64_t>::max();
    entity.expires_s = fits ? static_cast<int64_t>(*number) : 0;
    return fits;
  }
  entity.read_only = field == "read-only";
  return entity.read_only;
}

std::optional<Entity> read_identity(std::string_view identity) {
  const auto fields = split(identity, ' ');
  if (fields.size() < 2 || fields[0] != kIdentityFormat) return std::nullopt;
  auto entity = parse_full_name(fields[1]);
  if (!entity) return std::nullopt;
  for (const std::string_view field : std::span(fields).subspan(2)) {
    if (!read_field(field, *entity)) return std::nullopt;
  }
  return entity;
}

}  // namespace

std::string_view role_name(Role role) { return kRoles.at(static_cast<size_t>(role)); }

std::optional<Role> parse_role(std::string_view name) {
  const auto found = std::ranges::find(kRoles, name);
  if (found == kRoles.end()) return std::nullopt;
  return static_cast<Role>(found - kRoles.begin());
}

std::optional<Entity> parse_full_name(std::string_view text) {
  const size_t slash = text.find('/');
  const auto role = parse_role(text.substr(0, slash));
  if (!role || slash == std::string_view::npos) return std::nullopt;
  return Entity{.role = *role, .name = std::string(text.substr(slash + 1))};
}

std::string Entity::full_name() const { return fmt::format("{}/{}", role_name(role), name); }

bool Entity::may_act_for(uint32_t uid) const {
  return uids.empty() || std::ranges::any_of(uids, [uid](const UidRange& range) {
           return range.first <= uid && uid <= range.last;
         });
}

Result<void> check_entity(const Entity& entity) {
  if (!valid_name(entity.name)) {
    return fail(Errc::usage, "'{}' is not a name for a key: 1 to {} of a-z A-Z 0-9 . _ -",
                printable(entity.name), kEntityNameMax);
  }
  if (!entity.path.empty() && !valid_path(entity.path)) {
    return fail(Errc::usage,
                "'{}' cannot restrict a key: an absolute path of at most {} bytes, without '.',"
                " '..' and empty parts",
                printable(entity.path), kPathMax);
  }
  if (entity.uids.size() > kRangesMax) {
    return fail(Errc::usage, "a key takes at most {} ranges of user ids", kRangesMax);
  }
  const bool one = entity.uids.size() == 1 && entity.uids[0].first == entity.uids[0].last;
  if (entity.role == Role::user && !one) {
    return fail(Errc::usage, "the key of user {} needs exactly one user id", entity.name);
  }
  if (entity.expires_s < 0) return fail(Errc::usage, "a key cannot expire before 1970");
  if (format_identity(entity).size() > kIdentityMax) {
    return fail(Errc::usage, "the restrictions of {} take more than {} bytes", entity.full_name(),
                kIdentityMax);
  }
  return {};
}

std::string format_identity(const Entity& entity) {
  std::string text = fmt::format("{} {} serial={} generation={}", kIdentityFormat,
                                 entity.full_name(), entity.serial, entity.generation);
  if (!entity.uids.empty()) text += " uids=" + format_uids(entity.uids);
  if (!entity.path.empty()) text += " path=" + encode_path(entity.path);
  if (entity.read_only) text += " read-only";
  if (entity.expires_s != 0) text += fmt::format(" expires={}", entity.expires_s);
  return text;
}

Result<Entity> parse_identity(std::string_view identity) {
  if (identity.size() <= kIdentityMax) {
    auto entity = read_identity(identity);
    // One text for each entity: order and spelling of the fields are those of format_identity().
    if (entity && check_entity(*entity) && format_identity(*entity) == identity) {
      return std::move(*entity);
    }
  }
  return fail(Errc::corrupt, "'{}' is not the identity of a key",
              printable(identity.substr(0, kEntityNameMax)));
}

std::string format_uids(const std::vector<UidRange>& uids) {
  std::string text;
  for (const UidRange& range : uids) {
    if (!text.empty()) text += ',';
    text += fmt::format("{}", range.first);
    if (range.last != range.first) text += fmt::format("-{}", range.last);
  }
  return text;
}

std::optional<std::vector<UidRange>> parse_uids(std::string_view text) {
  std::vector<UidRange> uids;
  for (const std::string_view part : split(text, ',')) {
    const auto range = parse_range(part);
    if (!range || uids.size() >= kRangesMax) return std::nullopt;
    uids.push_back(*range);
  }
  return uids;
}

std::string Service::text() const {
  return name.empty() ? std::string(role_name(role)) : fmt::format("{}/{}", role_name(role), name);
}

std::optional<Service> parse_service(std::string_view text) {
  const size_t slash = text.find('/');
  const auto role = parse_role(text.substr(0, slash));
  if (!role) return std::nullopt;
  if (*role == Role::storage || *role == Role::agent) {
    if (slash == std::string_view::npos || !valid_name(text.substr(slash + 1))) return std::nullopt;
    return Service{*role, std::string(text.substr(slash + 1))};
  }
  const bool one = *role == Role::meta || *role == Role::scheduler || *role == Role::rank;
  if (!one || slash != std::string_view::npos) return std::nullopt;
  return Service{*role, {}};
}

Key hkdf_sha256(const Key& key, std::string_view info) {
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  FF_CHECK(kdf != nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);
  FF_CHECK(context != nullptr);
  std::string digest = "SHA256";
  Key secret = key;
  std::string label(info);
  const std::array<OSSL_PARAM, 4> values = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label.data(), label.size()),
      OSSL_PARAM_construct_end()};
  Key out;
  const bool derived = EVP_KDF_derive(context, reinterpret_cast<unsigned char*>(out.data()),
                                      out.size(), values.data()) == 1;
  EVP_KDF_CTX_free(context);
  FF_CHECK(derived);
  return out;
}

Key server_key(const Key& root, const Service& service) {
  return hkdf_sha256(root, fmt::format("{} server {}", kIdentityFormat, service.text()));
}

Key server_key(const Key& root, const Entity& node) {
  return hkdf_sha256(root, fmt::format("{} server {}", kIdentityFormat, format_identity(node)));
}

Key client_key(const Key& server, const Entity& client) {
  return hkdf_sha256(server, fmt::format("{} client {}", kIdentityFormat, format_identity(client)));
}

}  // namespace ff::auth
