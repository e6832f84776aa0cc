// status_page.cc: converts JSON to HTML while parsing; keeps only the stack of open elements.
#include "platform/rpc/status_page.h"

#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <vector>

#include "platform/base/text.h"

namespace ff::rpc {

namespace {

constexpr size_t kDepthMax = 32;

constexpr std::string_view kStyle =
    "body{font:15px/1.4 system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}"
    "table{border-collapse:collapse}th,td{text-align:left;vertical-align:top;"
    "padding:.15em .8em .15em 0}th{font-weight:600}td "
    "table{margin:0}ul{margin:0;padding-left:1.1em}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}}";

class Tables : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Tables> {
 public:
  explicit Tables(std::string& out) : out_(out) {}

  bool Default() { return false; }
  bool Null() { return value("–"); }
  bool Bool(bool yes) { return value(yes ? "yes" : "no"); }
  bool RawNumber(const char* text, rapidjson::SizeType size, bool) { return value({text, size}); }
  bool String(const char* text, rapidjson::SizeType size, bool) { return value({text, size}); }
  bool StartObject() { return open(true); }
  bool Key(const char* text, rapidjson::SizeType size, bool) {
    out_ += "<tr><th>";
    append_html(out_, {text, size});
    out_ += "</th><td>";
    return true;
  }
  bool EndObject(rapidjson::SizeType) { return close(); }
  bool StartArray() { return open(false); }
  bool EndArray(rapidjson::SizeType) { return close(); }

 private:
  bool open(bool object) {
    if (open_.size() == kDepthMax || (open_.empty() && !object)) return false;
    begin();
    open_.push_back(object);
    out_ += object ? "<table>" : "<ul>";
    return true;
  }
  bool close() {
    out_ += open_.back() ? "</table>" : "</ul>";
    open_.pop_back();
    end();
    return true;
  }
  bool value(std::string_view text) {
    if (open_.empty()) return false;
    begin();
    append_html(out_, text);
    end();
    return true;
  }
  void begin() {
    if (!open_.empty() && !open_.back()) out_ += "<li>";
  }
  void end() {
    if (!open_.empty()) out_ += open_.back() ? "</td></tr>" : "</li>";
  }

  std::string& out_;
  std::vector<bool> open_;  // objects, else arrays
};

}  // namespace

void append_html(std::string& out, std::string_view text) {
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
}

std::optional<std::string> status_page(const StatusPage& page) {
  std::string html = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>";
  append_html(html, page.title);
  html += "</title><meta name=\"viewport\" content=\"width=device-width\"><style nonce=\"";
  append_html(html, page.nonce);
  html += "\">";
  html += kStyle;
  html += "</style></head><body><h1>";
  append_html(html, page.title);
  html += "</h1>";
  Tables tables(html);
  rapidjson::MemoryStream stream(page.json.data(), page.json.size());
  rapidjson::Reader reader;
  constexpr unsigned kFlags = rapidjson::kParseIterativeFlag |
                              rapidjson::kParseValidateEncodingFlag |
                              rapidjson::kParseNumbersAsStringsFlag;
  if (!reader.Parse<kFlags>(stream, tables)) return std::nullopt;
  html += "</body></html>\n";
  return html;
}

}  // namespace ff::rpc
