// A file of revoked tokens, for a scheduler without metadata servers: the operator writes it by
// hand (compare RevokedKeys of sshd_config). A line is a uid, for all tokens of that user, or a uid
// and a serial, for one; '#' begins a comment.
//
//   1000        # ann has left
//   1001 3      # bob's third token was in a public repository
//
// A file that cannot be read, or has another line, makes every token invalid.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "platform/auth/entity.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::scheduler {

class RevokedTokens {
 public:
  RevokedTokens(io::Disk& disk, Clock& clock, std::string path)
      : disk_(disk), clock_(clock), path_(std::move(path)) {}

  // Errc::refused: the token is in the file, as of at most kReadAgainNs ago. Errc::failed: the file
  // is missing or malformed; the error names the line.
  Result<void> check(auth::TokenId token);

  static constexpr int64_t kReadAgainNs = kSecond;

 private:
  Result<void> read();
  Result<void> parse_line(std::string_view line, size_t number);

  io::Disk& disk_;
  Clock& clock_;
  const std::string path_;
  int64_t read_ns_ = INT64_MIN / 2;  // steady; of the last complete read
  std::set<uint32_t> users_;
  std::set<std::pair<uint32_t, uint64_t>> tokens_;  // uid and serial
};

}  // namespace ff::scheduler
