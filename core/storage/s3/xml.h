// The little of XML that S3 needs: elements with text. No attributes but xmlns in what is written;
// in what is read, attributes, comments and declarations are skipped, and document types refused,
// so that no entity can grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"

namespace ff::s3 {

class XmlWriter {
 public:
  enum class Namespace : uint8_t { s3, none };
  // Begins the document with its root element.
  explicit XmlWriter(std::string_view root, Namespace of = Namespace::s3);

  void open(std::string_view name);
  void close();  // the element that was opened last
  void element(std::string_view name, std::string_view text);
  void element(std::string_view name, uint64_t number);
  // Closes what is open. The document.
  std::string finish();

 private:
  std::string text_;
  std::vector<std::string> open_;
};

struct XmlElement {
  std::string name;  // without the prefix of its namespace
  std::string text;  // of itself, without that of its children
  std::vector<XmlElement> children;

  // The first child of this name; null: there is none.
  const XmlElement* find(std::string_view child) const;
  // Its text; empty: there is none.
  std::string_view value(std::string_view child) const;
};

constexpr size_t kXmlDepthMax = 16;
constexpr size_t kXmlElementsMax = 50'000;

// Errc::corrupt: not such a document.
Result<XmlElement> parse_xml(std::string_view document);

}  // namespace ff::s3
