// A daemon's status as a browser shows it: the JSON object of /status as nested tables. No scripts,
// nothing from elsewhere; text of any origin stays text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ff::rpc {

struct StatusPage {
  std::string_view title;
  std::string_view json;   // one object
  std::string_view nonce;  // of the style element, for the Content-Security-Policy
};

// Nothing when it is not one JSON object in UTF-8, or nested deeper than 32.
std::optional<std::string> status_page(const StatusPage& page);

// `&`, `<`, `>` and quotes as entities, control bytes as \xNN.
void append_html(std::string& out, std::string_view text);

}  // namespace ff::rpc
