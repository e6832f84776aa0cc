// mode.cc: the grammar of chmod(1) (POSIX.1-2017, XCU), and the account files.
#include "storage/client/mode.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::client {

namespace {

constexpr uint64_t kFileMax = 16 * kMiB;

Error no_mode(std::string_view text) {
  Error error = fail(Errc::usage, "'{}' is not a mode", printable(text));
  error.hint = "Examples: 755, u+x, go-w, u=rwX,go=rX.";
  return error;
}

// The mask of a class, and the bits of the permission letters in it.
struct Class {
  uint32_t all = 0;
  unsigned shift = 0;
};
std::optional<Class> class_of(char letter) {
  switch (letter) {
    case 'u': return Class{04700, 6};
    case 'g': return Class{02070, 3};
    case 'o': return Class{01007, 0};
    case 'a': return Class{07777, 0};
    default: return std::nullopt;
  }
}

uint32_t bits_of(char letter) {
  switch (letter) {
    case 'r': return 0444;
    case 'w': return 0222;
    case 'x': return 0111;
    case 's': return 06000;
    case 't': return 01000;
    default: return 0;
  }
}

// The fields of a line of /etc/passwd or /etc/group: name, number, and the group of a user.
struct Account {
  std::string name;
  uint32_t id = 0;
  uint32_t group = 0;
};
std::vector<Account> read_accounts(io::Disk& disk, const std::string& path) {
  std::vector<Account> accounts;
  const auto text = io::read_file(disk, path, kFileMax);
  if (!text) return accounts;
  for (const std::string_view line : split(*text, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const auto id = parse_u64(fields[2]);
    const auto group = fields.size() > 3 ? parse_u64(fields[3]) : std::nullopt;
    if (!id || *id > UINT32_MAX) continue;
    accounts.push_back({.name = std::string(fields[0]),
                        .id = static_cast<uint32_t>(*id),
                        .group = static_cast<uint32_t>(group.value_or(0))});
  }
  return accounts;
}

Result<Account> find_account(io::Disk& disk, const std::string& path, std::string_view text) {
  const auto number = parse_u64(text);
  if (number && *number < UINT32_MAX) {
    return Account{.name = {}, .id = static_cast<uint32_t>(*number), .group = 0};
  }
  for (Account& account : read_accounts(disk, path)) {
    if (account.name == text) return std::move(account);
  }
  Error error = fail(Errc::usage, "'{}' is not in {} on this machine", printable(text), path);
  error.hint = "Use the number instead.";
  return error;
}

constexpr const char* kPasswd = "/etc/passwd";
constexpr const char* kGroup = "/etc/group";

}  // namespace

Result<ModeChange> ModeChange::parse(std::string_view text, uint32_t umask) {
  ModeChange change;
  if (!text.empty() && text.find_first_not_of("01234567") == text.npos) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 8);
    if (error != std::errc() || number > 07777) return no_mode(text);
    change.number_ = number;
    return change;
  }
  for (std::string_view clause : split(text, ',')) {
    uint32_t who = 0;
    while (!clause.empty() && class_of(clause.front())) {
      who |= class_of(clause.front())->all;
      clause.remove_prefix(1);
    }
    if (who == 0) who = 07777 & ~umask;
    if (clause.empty()) return no_mode(text);
    while (!clause.empty()) {
      Clause made{.who = who, .does = clause.front()};
      if (made.does != '+' && made.does != '-' && made.does != '=') return no_mode(text);
      clause.remove_prefix(1);
      if (!clause.empty() && clause.front() != 'a' && class_of(clause.front())) {
        made.from = class_of(clause.front())->shift;
        clause.remove_prefix(1);
      }
      while (!made.from && !clause.empty() &&
             std::string_view("+-=").find(clause.front()) == std::string_view::npos) {
        made.execute_if |= clause.front() == 'X';
        const uint32_t bits = bits_of(clause.front());
        if (bits == 0 && clause.front() != 'X') return no_mode(text);
        made.bits |= bits;
        clause.remove_prefix(1);
      }
      change.clauses_.push_back(made);
    }
  }
  return change;
}

uint32_t ModeChange::apply(uint32_t mode, bool directory) const {
  // As in chmod(1), a number up to 0777 keeps the set-id bits of a directory.
  if (number_) return directory && *number_ <= 0777 ? (mode & 06000) | *number_ : *number_;
  for (const Clause& clause : clauses_) {
    uint32_t bits = clause.bits;
    if (clause.execute_if && (directory || (mode & 0111) != 0)) bits |= 0111;
    if (clause.from) {
      const uint32_t copied = (mode >> *clause.from) & 7;
      bits = copied | copied << 3 | copied << 6;
    }
    bits &= clause.who;
    switch (clause.does) {
      case '+': mode |= bits; break;
      case '-': mode &= ~bits; break;
      default: {
        const uint32_t kept = directory ? mode & 06000 : 0;
        mode = (mode & ~clause.who) | bits | (kept & clause.who);
      }
    }
  }
  return mode;
}

std::string mode_text(char type, uint32_t mode) {
  std::string text(1, type);
  for (const unsigned shift : {6U, 3U, 0U}) {
    const uint32_t bits = (mode >> shift) & 7;
    const bool special = (mode & (shift == 6 ? 04000U : shift == 3 ? 02000U : 01000U)) != 0;
    const char both = shift == 0 ? 't' : 's';
    const char alone = shift == 0 ? 'T' : 'S';
    text += (bits & 4) != 0 ? 'r' : '-';
    text += (bits & 2) != 0 ? 'w' : '-';
    if (special) {
      text += (bits & 1) != 0 ? both : alone;
    } else {
      text += (bits & 1) != 0 ? 'x' : '-';
    }
  }
  return text;
}

Result<uint32_t> parse_group(io::Disk& disk, std::string_view text) {
  FF_TRY(const Account account, find_account(disk, kGroup, text));
  return account.id;
}

Result<Owner> parse_owner(io::Disk& disk, std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view user = text.substr(0, colon);
  Owner owner;
  if (text.empty() || text == ":") {
    return fail(Errc::usage, "'{}' is not an owner; use USER:GROUP", printable(text));
  }
  if (!user.empty()) {
    FF_TRY(const Account account, find_account(disk, kPasswd, user));
    owner.uid = account.id;
    if (text.ends_with(':')) {
      for (const Account& known : read_accounts(disk, kPasswd)) {
        if (known.id == account.id) owner.gid = known.group;
      }
      if (!owner.gid)
        return fail(Errc::usage, "user {} has no login group on this machine", printable(user));
    }
  }
  if (colon + 1 < text.size()) {
    FF_TRY(owner.gid, parse_group(disk, text.substr(colon + 1)));
  }
  return owner;
}

AccountNames::AccountNames(io::Disk& disk) {
  for (Account& one : read_accounts(disk, kPasswd)) users_.push_back({one.id, std::move(one.name)});
  for (Account& one : read_accounts(disk, kGroup)) groups_.push_back({one.id, std::move(one.name)});
}

std::string AccountNames::name_of(const std::vector<Known>& known, uint32_t id) {
  const auto found = std::ranges::find(known, id, &Known::id);
  return found == known.end() ? fmt::to_string(id) : found->name;
}

std::string AccountNames::user(uint32_t uid) const { return name_of(users_, uid); }
std::string AccountNames::group(uint32_t gid) const { return name_of(groups_, gid); }

}  // namespace ff::client
