// The conformance suite of connections over RDMA, with completions that wake the loop and with a
// loop that polls.
#include <gtest/gtest.h>

#include <string>

#include "platform/net/connection_conformance.h"
#include "rdma/verbs_pair.h"

namespace ff::net {
namespace {

std::string maker_name(const testing::TestParamInfo<PairMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Verbs, ConnectionConformance,
                         testing::Values(PairMaker{"woken", [] { return VerbsPair::make(false); }},
                                         PairMaker{"polling",
                                                   [] { return VerbsPair::make(true); }}),
                         maker_name);

}  // namespace
}  // namespace ff::net
