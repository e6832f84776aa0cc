// notify.cc: publishes a run: a file for Prometheus, a web hook.
#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>

#include "cmd/validate/validate.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

using validate::Verdict;

// Escapes a label value of the exposition format.
std::string label(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '\\' || c == '"') made += '\\';
    if (c == '\n') {
      made += "\\n";
    } else {
      made += c;
    }
  }
  return made;
}

// Ordered from good to bad, so that alerts can use "> 1". What was skipped has no number: it is no
// pass.
int number_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::skipped: break;
    case Verdict::pass: return 0;
    case Verdict::could_not_run: return 1;
    case Verdict::degraded: return 2;
    case Verdict::fail: return 3;
  }
  return 3;
}

std::string metric_head(std::string_view name, std::string_view help) {
  return fmt::format("# HELP {} {}\n# TYPE {} gauge\n", name, help, name);
}

std::string textfile(const validate::ValidationReport& report) {
  constexpr std::string_view kCodes = "0 pass, 1 could not run, 2 degraded, 3 fail.";
  std::string text =
      metric_head("ff_validate_verdict", fmt::format("Verdict of this node: {}", kCodes));
  if (report.verdict != Verdict::skipped) {
    text += fmt::format("ff_validate_verdict {}\n", number_of(report.verdict));
  }
  text += metric_head("ff_validate_time_seconds", "When the last run began, since the epoch.");
  text += fmt::format("ff_validate_time_seconds {}\n", report.wall_ns / kSecond);
  text += metric_head("ff_validate_duration_seconds", "How long it took.");
  text += fmt::format("ff_validate_duration_seconds {:.3f}\n", report.seconds);
  // A check may have several findings for one part: the worst verdict and the last value count.
  std::map<std::pair<std::string, std::string>, const validate::Finding*> worst, valued;
  const std::vector<validate::Finding> findings = report.findings();
  for (const validate::Finding& finding : findings) {
    const auto key = std::pair(finding.name, finding.part);
    const validate::Finding*& known = worst[key];
    if (known == nullptr || known->verdict < finding.verdict) known = &finding;
    if (finding.value) valued[key] = &finding;
  }
  text +=
      metric_head("ff_validate_check", fmt::format("Verdict of one check of one part: {}", kCodes));
  std::string skipped;
  for (const auto& [key, finding] : worst) {
    const std::string labels =
        fmt::format("{{check=\"{}\",part=\"{}\"}}", label(key.first), label(key.second));
    if (finding->verdict == Verdict::skipped) {
      skipped += fmt::format("ff_validate_skipped{} 1\n", labels);
    } else {
      text += fmt::format("ff_validate_check{} {}\n", labels, number_of(finding->verdict));
    }
  }
  text += metric_head("ff_validate_skipped",
                      "A part that the node does not have, as adopted: it was not checked.") +
          skipped;
  text += metric_head("ff_validate_value", "What was measured, in the unit of the label.");
  for (const auto& [key, finding] : valued) {
    text += fmt::format("ff_validate_value{{check=\"{}\",part=\"{}\",unit=\"{}\"}} {}\n",
                        label(key.first), label(key.second), label(finding->unit), *finding->value);
  }
  return text;
}

// "https://hooks.example.org/…": without the secret part.
std::string shown_url(std::string_view url) {
  const size_t host = url.find("://");
  if (host == url.npos) return "the URL";
  const size_t begin = host + 3;
  const size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const size_t user = url.substr(0, end).rfind('@');
  const std::string_view name =
      url.substr(user != url.npos && user > begin ? user + 1 : begin,
                 end - (user != url.npos && user > begin ? user + 1 : begin));
  return fmt::format("{}://{}", url.substr(0, host), name);
}

size_t drop(const char*, size_t, size_t count, void*) { return count; }

}  // namespace

Result<void> write_textfile(const std::string& dir, const validate::ValidationReport& report) {
  io::SystemDisk disk;
  return io::replace_file(disk, io::join(dir, "ff_validate.prom"), textfile(report),
                          std::to_string(::getpid()));
}

Result<void> check_hook(const std::string& url) {
  if (url.starts_with("http://") || url.starts_with("https://")) return {};
  return fail(Errc::usage, "--notify takes a URL that begins with http:// or https://");
}

Result<void> post_json(const std::string& url, const Json& body, int64_t timeout_ns) {
  const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  CURL* const easy = ::curl_easy_init();
  if (easy == nullptr) return fail(Errc::failed, "{}: out of memory", shown_url(url));
  curl_slist* const headers = ::curl_slist_append(nullptr, "Content-Type: application/json");
  ::curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  ::curl_easy_setopt(easy, CURLOPT_POSTFIELDS, text.data());
  ::curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(text.size()));
  ::curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_ns / kMillisecond));
  ::curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &drop);
  const CURLcode code = ::curl_easy_perform(easy);
  long status = 0;
  ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  ::curl_easy_cleanup(easy);
  ::curl_slist_free_all(headers);
  if (code != CURLE_OK) {
    return fail(Errc::unreachable, "could not notify {}: {}", shown_url(url),
                ::curl_easy_strerror(code));
  }
  if (status < 200 || status > 299) {
    return fail(Errc::failed, "could not notify {}: it answered with status {}", shown_url(url),
                status);
  }
  return {};
}

}  // namespace ff::cmd
