// xml.cc: writes documents, and reads them with a stack of open elements.
#include "storage/s3/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "platform/base/text.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kNamespace = " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
constexpr uint32_t kCodePointMax = 0x10FFFF;

Error bad_xml(std::string_view what) {
  return fail(Errc::corrupt, "the XML is not valid: {}", what);
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("&#x{:x};", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

struct EntityName {
  std::string_view name;
  char character;
};
constexpr std::array<EntityName, 5> kEntities = {
    {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};

// Of "#x41" or "amp".
Result<void> append_entity(std::string& out, std::string_view name) {
  if (!name.starts_with('#')) {
    const auto found = std::ranges::find(kEntities, name, &EntityName::name);
    if (found == kEntities.end()) return bad_xml("an entity is not known");
    out += found->character;
    return {};
  }
  name.remove_prefix(1);
  const int base = name.starts_with('x') ? 16 : 10;
  if (base == 16) name.remove_prefix(1);
  uint32_t code = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data(), last, code, base);
  if (name.empty() || error != std::errc() || end != last || code > kCodePointMax || code == 0) {
    return bad_xml("a character is not valid");
  }
  append_utf8(out, code);
  return {};
}

class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}
  Result<XmlElement> read();

 private:
  Result<void> read_markup();
  Result<void> read_text();
  Result<void> read_start(std::string_view tag);
  Result<void> end_element(std::string_view name);
  Result<std::string_view> take_until(std::string_view mark);

  std::string_view text_;
  std::vector<XmlElement> open_;
  std::vector<XmlElement> root_;  // at most one
  size_t elements_ = 0;
};

std::string_view local_name(std::string_view name) {
  const size_t colon = name.find(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

// What stands before the mark; the mark is skipped.
Result<std::string_view> XmlReader::take_until(std::string_view mark) {
  const size_t end = text_.find(mark);
  if (end == text_.npos) return bad_xml("it ends too soon");
  const std::string_view taken = text_.substr(0, end);
  text_.remove_prefix(end + mark.size());
  return taken;
}

Result<void> XmlReader::read_text() {
  const std::string_view run = text_.substr(0, std::min(text_.find('<'), text_.size()));
  text_.remove_prefix(run.size());
  if (open_.empty()) {
    if (run.find_first_not_of(kBlanks) != run.npos) return bad_xml("text outside of elements");
    return {};
  }
  std::string& out = open_.back().text;
  for (size_t i = 0; i < run.size(); i++) {
    if (run[i] != '&') {
      out += run[i];
      continue;
    }
    const size_t end = run.find(';', i);
    if (end == run.npos) return bad_xml("an entity has no end");
    FF_TRY(append_entity(out, run.substr(i + 1, end - i - 1)));
    i = end;
  }
  return {};
}

Result<void> XmlReader::end_element(std::string_view name) {
  if (open_.empty() || open_.back().name != local_name(name)) {
    return bad_xml("an element is closed that is not open");
  }
  XmlElement element = std::move(open_.back());
  open_.pop_back();
  (open_.empty() ? root_ : open_.back().children).push_back(std::move(element));
  return {};
}

Result<void> XmlReader::read_start(std::string_view tag) {
  const bool empty = tag.ends_with('/');
  if (empty) tag.remove_suffix(1);
  const std::string_view name =
      local_name(tag.substr(0, std::min(tag.find_first_of(kBlanks), tag.size())));
  if (name.empty()) return bad_xml("an element has no name");
  if (open_.size() >= kXmlDepthMax || ++elements_ > kXmlElementsMax) {
    return bad_xml("it has too many elements");
  }
  if (open_.empty() && !root_.empty()) return bad_xml("it has two root elements");
  open_.push_back({std::string(name), {}, {}});
  if (empty) return end_element(name);
  return {};
}

Result<void> XmlReader::read_markup() {
  text_.remove_prefix(1);  // '<'
  if (text_.starts_with('?')) {
    FF_TRY(take_until("?>"));
    return {};
  }
  if (text_.starts_with("!--")) {
    FF_TRY(take_until("-->"));
    return {};
  }
  if (text_.starts_with('!')) return bad_xml("it declares a document type");
  FF_TRY(std::string_view tag, take_until(">"));
  if (!tag.starts_with('/')) return read_start(tag);
  tag.remove_prefix(1);
  while (!tag.empty() && kBlanks.find(tag.back()) != kBlanks.npos) tag.remove_suffix(1);
  return end_element(tag);
}

Result<XmlElement> XmlReader::read() {
  if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  while (!text_.empty()) {
    FF_TRY(text_.starts_with('<') ? read_markup() : read_text());
  }
  if (root_.empty() || !open_.empty()) return bad_xml("it ends too soon");
  return std::move(root_.front());
}

}  // namespace

XmlWriter::XmlWriter(std::string_view root, Namespace of) {
  text_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  text_ += fmt::format("<{}{}>", root, of == Namespace::s3 ? kNamespace : "");
  open_.emplace_back(root);
}

void XmlWriter::open(std::string_view name) {
  text_ += fmt::format("<{}>", name);
  open_.emplace_back(name);
}

void XmlWriter::close() {
  text_ += fmt::format("</{}>", open_.back());
  open_.pop_back();
}

void XmlWriter::element(std::string_view name, std::string_view text) {
  text_ += fmt::format("<{}>", name);
  append_escaped(text_, text);
  text_ += fmt::format("</{}>", name);
}

void XmlWriter::element(std::string_view name, uint64_t number) {
  element(name, fmt::to_string(number));
}

std::string XmlWriter::finish() {
  while (!open_.empty()) close();
  return std::move(text_);
}

const XmlElement* XmlElement::find(std::string_view child) const {
  const auto found = std::ranges::find(children, child, &XmlElement::name);
  return found == children.end() ? nullptr : &*found;
}

std::string_view XmlElement::value(std::string_view child) const {
  const XmlElement* const found = find(child);
  return found == nullptr ? std::string_view() : std::string_view(found->text);
}

Result<XmlElement> parse_xml(std::string_view document) { return XmlReader(document).read(); }

}  // namespace ff::s3
