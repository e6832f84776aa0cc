// inventory.cc: the finding for a kind without any part.
#include "ops/validate/inventory.h"

#include <algorithm>

namespace ff::validate {

namespace {

bool has_kind(const Inventory& inventory, std::string_view kind) {
  return std::ranges::any_of(inventory, [&](const auto& part) {
    const std::string_view key = part.first;
    return key.substr(0, key.find(' ')) == kind;
  });
}

}  // namespace

Finding missing_finding(const CheckContext& context, const char* check, std::string_view kind,
                        std::string found) {
  Finding finding{.name = check, .found = std::move(found)};
  if (!context.inventory) {
    finding.hint = "If this machine has none: ff validate adopt";
    return finding;
  }
  if (context.inventory->contains(std::string(kUnreadablePrefix).append(kind))) {
    finding.hint = "The user who adopted this node could not see it: as root, ff validate adopt";
    return finding;
  }
  finding.source = "adopted";
  if (!has_kind(*context.inventory, kind)) {
    finding.verdict = Verdict::skipped;
    return finding;
  }
  finding.verdict = Verdict::fail;
  finding.expected = "as adopted";
  finding.hint = "See host.inventory for missing parts, and the kernel log for the cause.";
  return finding;
}

}  // namespace ff::validate
