// chain_parts.cc: what lives in each process, and what programs do.
#include "story/chain_parts.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace ff::story::chain_parts {

namespace {

constexpr uint64_t kChunkSize = 16 * kKiB;
constexpr uint64_t kChunks = 3;  // that programs use, of each chain
constexpr const char* kDir = "/disk";

// Content that says which update has made it, at every place.
std::string content_of(History::Token token, size_t size) {
  std::string text(size, '\0');
  for (size_t at = 0; at + sizeof token <= size; at += sizeof token) {
    std::memcpy(text.data() + at, &token, sizeof token);
  }
  return text;
}
// Nothing: it is the content of no one update.
std::optional<History::Token> token_of(std::string_view text) {
  History::Token token = 0;
  if (text.size() < sizeof token) return std::nullopt;
  std::memcpy(&token, text.data(), sizeof token);
  if (content_of(token, text.size()) != text) return std::nullopt;
  return token;
}

}  // namespace

struct StorageProcess::Live {
  Live(ClusterStage& stage, const std::string& name, sim::SimDisk& disk,
       chain::StorageOptions options)
      : loop(stage.world, cluster_parts::skew(stage.rng)),
        transport(stage.net.transport(name)),
        client{loop, *transport, senders, stage.metrics, stage.rng, stage.identity(name)},
        node(client, disk, router, cluster_parts::manager_addresses(), std::move(options)),
        server(loop, *transport, router, stage.metrics, stage.identity(name)),
        gate(loop) {}

  sim::SimLoop loop;
  rpc::Senders senders;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext client;
  rpc::Router router;
  chain::StorageNode node;
  rpc::Server server;
  Gate gate;
};

StorageProcess::StorageProcess(ClusterStage& stage, cluster::NodeId id, uint64_t seed)
    : stage_(stage), id_(id), name_(fmt::format("node{}", id)), disk_(seed, stage.world.clock()) {
  start();
}

StorageProcess::~StorageProcess() = default;

void StorageProcess::start() {
  if (std::exchange(machine_off_, false)) stage_.net.start_machine(name_);
  live_ = std::make_unique<Live>(stage_, name_, disk_,
                                 chain::StorageOptions{.dirs = {kDir},
                                                       .node = id_,
                                                       .name = name_,
                                                       .boot = boot_,
                                                       .commit_on = chunk::CommitOn::loop});
  live_->gate.spawn(work(*live_));
}

void StorageProcess::stop() {
  live_.reset();
  paused_ = false;
}

void StorageProcess::kill() {
  stage_.net.stop_process(name_);
  stop();
  disk_.kill();
}

void StorageProcess::lose_power() {
  stage_.net.stop_machine(name_);
  machine_off_ = true;
  stop();
  disk_.power_loss();
  boot_ += "+";
}

void StorageProcess::pause(bool paused) {
  if (live_ != nullptr) live_->loop.set_paused(paused);
  paused_ = paused && live_ != nullptr;
}

chunk::Store* StorageProcess::store() const {
  if (live_ == nullptr || live_->node.disks().empty()) return nullptr;
  return live_->node.disks().front().store.get();
}

chain::Replica* StorageProcess::replica(cluster::TargetId target) const {
  return live_ == nullptr ? nullptr : live_->node.replica(target);
}

Task<void> StorageProcess::work(Live& live) {
  auto opening = live.node.open();
  const auto opened = co_await std::move(opening);
  if (!opened) {
    stage_.broken(fmt::format("{} cannot open its disk: {}", name_, opened.error().message));
    co_return;
  }
  FF_CHECK(live.server.listen({"", cluster_parts::kPort, ""}).ok());
  live.node.start({fmt::format("{}:{}", name_, cluster_parts::kPort)});
}

Program::Program(ClusterStage& stage, int number, History& history)
    : stage_(stage),
      history_(history),
      name_(fmt::format("program{}", number)),
      loop_(stage.world, cluster_parts::skew(stage.rng)),
      transport_(stage.net.transport(name_)),
      context_{loop_, *transport_, senders_, stage.metrics, stage.rng, stage.identity(name_)},
      routing_(context_, cluster_parts::manager_addresses(), [this] { client_.look(); }),
      client_(context_, routing_.routing(), [this] { routing_.refresh(); }),
      gate_(loop_) {
  gate_.spawn(routing_.run());
  for (int i = 0; i < 3; i++) gate_.spawn(work());
}

Program::~Program() = default;

Task<void> Program::work() {
  for (;;) {
    const int64_t pause_ns = stage_.some_ns(400 * kMillisecond);
    const auto waited = co_await after(loop_, pause_ns);
    if (!waited) co_return;
    const auto& chains = routing_.routing().chains;
    if (chains.empty()) continue;
    const auto at = std::next(chains.begin(), static_cast<long>(stage_.rng.below(chains.size())));
    const chunk::ChunkId id{1, stage_.rng.below(kChunks)};
    stage_.steps++;
    const uint64_t what = stage_.rng.below(12);
    if (!writing_ || what < 6) {
      auto reading = read(at->first, id);
      co_await std::move(reading);
    } else if (what < 11) {
      auto writing = write(at->first, id);
      co_await std::move(writing);
    } else {
      auto syncing = sync(at->first);
      co_await std::move(syncing);
    }
  }
}

Task<void> Program::write(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  const History::Token token = history_.new_token();
  const std::string text = content_of(token, 64 + 8 * stage_.rng.below(kChunkSize / 8 - 8));
  chunk::Update update{
      .id = id, .change = chunk::Change::replace, .data = as_bytes(text), .chunk_size = kChunkSize};
  const auto begun = history_.begin(key);
  writes_++;
  auto updating = client_.update(chain, update);
  const auto done = co_await std::move(updating);
  writes_--;
  if (done) history_.wrote(key, begun, token, done->image.version, done->verifier);
  if (!done && done.error().code != Errc::deadline && done.error().code != Errc::disk_full &&
      done.error().code != Errc::interrupted) {
    stage_.broken(fmt::format("an update failed: {}", done.error().message));
  }
}

Task<void> Program::read(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  std::string text(kChunkSize, '\0');
  std::vector<chain::Client::Piece> pieces;
  pieces.push_back({.chain = chain, .id = id, .into = std::as_writable_bytes(std::span(text))});
  const auto begun = history_.begin(key);
  auto reading = client_.read(std::move(pieces));
  const auto got = co_await std::move(reading);
  if (!got[0]) {
    if (got[0].error().code == Errc::not_found) history_.read(key, begun, 0, 0);
    if (got[0].error().code == Errc::corrupt) stage_.broken("no replica has its bytes");
    co_return;
  }
  text.resize(got[0]->bytes);
  const auto token = token_of(text);
  if (!token) {
    stage_.broken(fmt::format("chunk {} of chain {}: what was read is of no one update",
                              to_string(id), chain));
    co_return;
  }
  history_.read(key, begun, *token, got[0]->image.version);
}

Task<void> Program::sync(cluster::ChainId chain) {
  const auto begun = history_.begin_sync(chain);
  auto syncing = client_.sync(chain);
  const auto verifier = co_await std::move(syncing);
  if (verifier) history_.synced(chain, begun, *verifier);
}

}  // namespace ff::story::chain_parts
