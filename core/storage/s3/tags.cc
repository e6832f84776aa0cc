// tags.cc: tags in header fields and in documents.
#include "storage/s3/tags.h"

#include <utility>

#include "storage/s3/s3_error.h"
#include "storage/s3/uri.h"
#include "storage/s3/xml.h"

namespace ff::s3 {

namespace {

constexpr size_t kTagsMax = 10;
constexpr size_t kTagNameMax = 128 * 4;  // 128 characters
constexpr size_t kTagValueMax = 256 * 4;

Result<void> add_tag(Tags& tags, std::string name, std::string value) {
  if (name.empty() || name.size() > kTagNameMax || value.size() > kTagValueMax) {
    return s3_error(S3Code::invalid_tag, "The name or the value of a tag is not valid.");
  }
  if (!tags.emplace(std::move(name), std::move(value)).second) {
    return s3_error(S3Code::invalid_tag, "A tag is given twice.");
  }
  if (tags.size() > kTagsMax) {
    return s3_error(S3Code::invalid_tag, "Object tags cannot be greater than {}", kTagsMax);
  }
  return {};
}

std::string with_spaces(std::string_view text) {
  std::string spaced(text);
  for (char& c : spaced) {
    if (c == '+') c = ' ';
  }
  return spaced;
}

}  // namespace

Result<Tags> parse_tag_field(std::string_view text) {
  Tags tags;
  if (text.empty()) return tags;
  auto target = parse_target("/?" + with_spaces(text));
  if (!target) return s3_error(S3Code::invalid_tag, "The tags are not NAME=VALUE&...");
  for (auto& [name, value] : target->query) {
    FF_TRY(add_tag(tags, std::move(name), std::move(value)));
  }
  return tags;
}

Result<Tags> parse_tag_document(std::string_view text) {
  const auto document = parse_xml(text);
  const XmlElement* const set = document ? document->find("TagSet") : nullptr;
  if (set == nullptr || document->name != "Tagging") {
    return s3_error(S3Code::malformed_xml, "The XML is not a set of tags.");
  }
  Tags tags;
  for (const XmlElement& tag : set->children) {
    FF_TRY(add_tag(tags, std::string(tag.value("Key")), std::string(tag.value("Value"))));
  }
  return tags;
}

}  // namespace ff::s3
