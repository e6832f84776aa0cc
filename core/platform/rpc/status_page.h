// The HTML form of a daemon's status: the JSON object of /status as nested tables. Contains no
// scripts and loads no external resources; all text is escaped.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ff::rpc {

struct StatusPage {
  std::string_view title;
  std::string_view json;   // one object
  std::string_view nonce;  // nonce of the style element in the Content-Security-Policy
};

// Empty if `json` is not one JSON object in UTF-8, or is nested deeper than 32 levels.
std::optional<std::string> status_page(const StatusPage& page);

// Appends `text` with `&`, `<`, `>` and quotes as entities and control bytes as \xNN.
void append_html(std::string& out, std::string_view text);

}  // namespace ff::rpc
