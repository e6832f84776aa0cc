// Parsers of modes and owners in the syntax of chmod(1) and chown(1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::client {

// A change of mode: "644", "u+rwX,go-w", "=r". Errc::usage: not a mode.
class ModeChange {
 public:
  // `umask` removes bits from clauses without u, g, o or a.
  static Result<ModeChange> parse(std::string_view text, uint32_t umask);
  uint32_t apply(uint32_t mode, bool directory) const;

 private:
  struct Clause {
    uint32_t who = 0;  // the bits of 07777 that the clause sets
    char does = '=';   // + - =
    uint32_t bits = 0;
    bool execute_if = false;            // X
    std::optional<unsigned> from = {};  // copy the bits of another class: the shift of u, g or o
  };
  std::optional<uint32_t> number_;
  std::vector<Clause> clauses_;
};

// Formats a mode as ls(1) does, "-rw-r--r--"; `type` is the first letter.
std::string mode_text(char type, uint32_t mode);

struct Owner {
  std::optional<uint32_t> uid;
  std::optional<uint32_t> gid;
};
// Parses "USER", "USER:GROUP", ":GROUP" or "USER:" (the login group of the user); numbers, or names
// in /etc/passwd and /etc/group of this machine. Errc::usage, also for an unknown name.
Result<Owner> parse_owner(io::Disk& disk, std::string_view text);
// Parses a group name or number.
Result<uint32_t> parse_group(io::Disk& disk, std::string_view text);

// Names of users and groups from /etc/passwd and /etc/group: a static program cannot load NSS
// modules.
class AccountNames {
 public:
  explicit AccountNames(io::Disk& disk);
  // Returns the number if there is no name.
  std::string user(uint32_t uid) const;
  std::string group(uint32_t gid) const;

 private:
  struct Known {
    uint32_t id = 0;
    std::string name;
  };
  static std::string name_of(const std::vector<Known>& known, uint32_t id);
  std::vector<Known> users_;
  std::vector<Known> groups_;
};

}  // namespace ff::client
