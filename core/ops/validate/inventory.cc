// inventory.cc: what follows when nothing of a kind is there.
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

Finding nothing_of(const Context& context, const char* check, std::string_view kind,
                   std::string found) {
  Finding finding{.name = check, .found = std::move(found)};
  if (!context.inventory) {
    finding.hint = "On a machine that has none: ff validate adopt";
    return finding;
  }
  if (context.inventory->contains(std::string(kUnseen).append(kind))) {
    finding.hint = "Whoever adopted this node could not see it: as root, ff validate adopt";
    return finding;
  }
  finding.source = "adopted";
  if (!has_kind(*context.inventory, kind)) {
    finding.verdict = Verdict::skipped;
    return finding;
  }
  finding.verdict = Verdict::fail;
  finding.expected = "as adopted";
  finding.hint = "Look at host.inventory for what is gone, and in the kernel's log for why.";
  return finding;
}

}  // namespace ff::validate
