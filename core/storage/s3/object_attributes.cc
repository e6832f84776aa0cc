// object_attributes.cc: the text of the attribute.
#include "storage/s3/object_attributes.h"

#include <algorithm>
#include <array>

#include "platform/base/text.h"
#include "storage/s3/hash.h"
#include "storage/s3/s3_error.h"
#include "storage/s3/uri.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kFirstLine = "ff-s3 1";
constexpr std::string_view kUserField = "x-amz-meta-";
constexpr size_t kUserBytesMax = 2 * kKiB;  // as S3 has it
constexpr std::array<std::string_view, 6> kKeptFields = {"content-type",        "content-encoding",
                                                         "content-disposition", "content-language",
                                                         "cache-control",       "expires"};

// What requests may set; kUploadKey is of this server.
bool is_kept(std::string_view name) {
  return name.starts_with(kUserField) || name == kUploadKey ||
         std::ranges::find(kKeptFields, name) != kKeptFields.end();
}

std::string state_text(const meta::Inode& inode) {
  return fmt::format("{} {} {} {}", inode.id, inode.data_version, inode.truncate_seq, inode.length);
}

// Any program may write the attribute, and the fields go into replies.
void add_field(ObjectAttributes& attributes, const std::string& name, const std::string& value) {
  auto field = http::parse_field(name + ":" + value);
  if (field && is_kept(field->name)) attributes.fields.push_back(std::move(*field));
}

// Signed chunks are no property of the object.
std::string without_aws_chunked(std::string_view encoding) {
  std::string left;
  for (std::string_view one : split(encoding, ',')) {
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one == "aws-chunked" || one.empty()) continue;
    if (!left.empty()) left += ',';
    left += one;
  }
  return left;
}

}  // namespace

std::string format_attributes(const ObjectAttributes& attributes, const meta::Inode& inode) {
  std::string text = fmt::format("{}\n", kFirstLine);
  if (!attributes.etag.empty()) {
    text += fmt::format("etag {}\nof {}\n", attributes.etag, state_text(inode));
  }
  for (const http::Field& field : attributes.fields) {
    text += fmt::format("field {} {}\n", field.name, percent_encode(field.value, false));
  }
  for (const auto& [name, value] : attributes.tags) {
    text += fmt::format("tag {} {}\n", percent_encode(name, false), percent_encode(value, false));
  }
  return text;
}

ObjectAttributes parse_attributes(std::string_view text, const meta::Inode& inode) {
  ObjectAttributes attributes;
  std::string etag;
  const auto lines = split(text, '\n');
  for (const std::string_view line : lines) {
    if (lines.front() != kFirstLine) break;
    const auto words = split(line, ' ');
    const bool is_etag = words.size() == 2 && words[0] == "etag" &&
                         words[1].find_first_not_of("0123456789abcdef-") == std::string_view::npos;
    if (is_etag) etag = words[1];
    if (line == "of " + state_text(inode)) attributes.etag = etag;
    if (words.size() != 3) continue;
    auto name = percent_decode(words[1]), value = percent_decode(words[2]);
    if (!name || !value) continue;
    if (words[0] == "field") add_field(attributes, *name, *value);
    if (words[0] == "tag") attributes.tags.emplace(*name, *value);
  }
  if (attributes.etag.empty()) {
    const std::string state = fmt::format("{} {}", state_text(inode), inode.mtime_ns);
    attributes.etag = hex(as_bytes(hash_of(HashKind::md5, state))) + "-0";
  }
  return attributes;
}

Result<std::vector<http::Field>> object_fields(const http::RequestHead& head) {
  std::vector<http::Field> fields;
  size_t user_bytes = 0;
  for (const http::Field& field : head.fields) {
    const bool of_user = field.name.starts_with(kUserField);
    if (!is_kept(field.name) || field.name == kUploadKey) continue;
    http::Field kept = field;
    if (field.name == "content-encoding") kept.value = without_aws_chunked(field.value);
    if (of_user) user_bytes += field.name.size() - kUserField.size() + field.value.size();
    if (!kept.value.empty() || of_user) fields.push_back(std::move(kept));
  }
  if (user_bytes > kUserBytesMax) {
    return s3_error(S3Code::metadata_too_large, "The metadata has {} bytes; {} are the most.",
                    user_bytes, kUserBytesMax);
  }
  return fields;
}

}  // namespace ff::s3
