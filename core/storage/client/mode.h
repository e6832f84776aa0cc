// Modes and owners as users write them: chmod(1) and chown(1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::client {

// "644", "u+rwX,go-w", "=r": what a mode becomes. Errc::usage: not a mode.
class ModeChange {
 public:
  // `umask` takes bits from clauses without u, g, o or a.
  static Result<ModeChange> parse(std::string_view text, uint32_t umask);
  uint32_t apply(uint32_t mode, bool directory) const;

 private:
  struct Clause {
    uint32_t who = 0;  // bits of 07777 that it is about
    char does = '=';   // + - =
    uint32_t bits = 0;
    bool execute_if = false;            // X
    std::optional<unsigned> from = {};  // another class's bits: the shift of u, g or o
  };
  std::optional<uint32_t> number_;
  std::vector<Clause> clauses_;
};

// "-rw-r--r--" as ls(1) has it; `type`: its first letter.
std::string mode_text(char type, uint32_t mode);

struct Owner {
  std::optional<uint32_t> uid;
  std::optional<uint32_t> gid;
};
// "USER", "USER:GROUP", ":GROUP", "USER:" (with the user's own group); numbers, or names of
// /etc/passwd and /etc/group of this machine. Errc::usage, also for a name that is not there.
Result<Owner> parse_owner(io::Disk& disk, std::string_view text);
// The group alone.
Result<uint32_t> parse_group(io::Disk& disk, std::string_view text);

// Names of users and groups of this machine, from its files: a static program cannot load the name
// service's modules.
class Accounts {
 public:
  explicit Accounts(io::Disk& disk);
  // The number, where it has no name.
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
