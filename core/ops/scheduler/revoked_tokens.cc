// revoked_tokens.cc: reads the file again after a while.
#include "ops/scheduler/revoked_tokens.h"

#include <algorithm>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::scheduler {
namespace {

constexpr uint64_t kRevokedBytesMax = 4 * kMiB;

std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  constexpr std::string_view kBlanks = " \t\r";
  for (size_t at = line.find_first_not_of(kBlanks); at < line.size();) {
    const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = std::min(line.find_first_not_of(kBlanks, end), line.size());
  }
  return words;
}

}  // namespace

Result<void> RevokedTokens::parse_line(std::string_view line, size_t number) {
  const auto words = words_of(line);
  if (words.empty()) return {};
  const auto uid = parse_u64(words[0]);
  const auto serial = words.size() == 2 ? parse_u64(words[1]) : std::optional<uint64_t>(0);
  if (!uid || *uid > UINT32_MAX || !serial || words.size() > 2) {
    return fail(Errc::failed, "{}:{}: '{}' is neither UID nor UID SERIAL", path_, number,
                printable(line));
  }
  if (words.size() == 1) {
    users_.insert(static_cast<uint32_t>(*uid));
  } else {
    tokens_.emplace(static_cast<uint32_t>(*uid), *serial);
  }
  return {};
}

Result<void> RevokedTokens::read() {
  read_ns_ = INT64_MIN / 2;
  users_.clear();
  tokens_.clear();
  FF_TRY(const std::string text, io::read_file(disk_, path_, kRevokedBytesMax));
  size_t number = 0;
  for (const std::string_view line : split(text, '\n')) FF_TRY(parse_line(line, ++number));
  read_ns_ = clock_.steady_ns();
  return {};
}

Result<void> RevokedTokens::check(auth::TokenId token) {
  if (clock_.steady_ns() - read_ns_ >= kReadAgainNs) {
    if (auto done = read(); !done) {
      Error error = fail(Errc::failed, "the scheduler cannot check tokens: {}",
                         std::move(done).error().message);
      error.hint = "The operator can correct this file of --revoked-tokens; no restart is needed.";
      return error;
    }
  }
  if (!users_.contains(token.uid) && !tokens_.contains({token.uid, token.serial})) return {};
  Error error = fail(Errc::refused, "token {} of user {} is revoked", token.serial, token.uid);
  error.hint = "Ask the operator of the scheduler for a new one.";
  return error;
}

}  // namespace ff::scheduler
