// meta_option.cc: parses the addresses of managers.
#include "cmd/options/meta_option.h"

#include "platform/base/text.h"

namespace ff::cmd {

void declare_meta(Command& command, std::string& meta) {
  command
      .option("--meta", text(meta, "ADDR:PORT,..."),
              "Addresses of the cluster managers ('ff serve-meta')")
      .config("cluster.meta")
      .env("FF_META")
      .section(kNetworkOptions);
}

Result<std::vector<net::Address>> parse_meta(const std::string& meta) {
  std::vector<net::Address> addresses;
  for (const std::string_view one : split(meta, ',')) {
    auto address = net::parse_address(one);
    if (!address) return std::move(address).error().with_context("--meta: ");
    addresses.push_back(std::move(*address));
  }
  return addresses;
}

}  // namespace ff::cmd
