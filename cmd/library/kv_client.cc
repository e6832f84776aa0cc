// A store of keys and values for libff.so: its part of core/training/bindings/kv.h. Reads go to the
// files of the store, in this process; changes go to the gateways that own the partitions, by the
// Redis protocol. So the processes that write stay few and are those that outlive a training or a
// serving engine, and a program that only reads needs no gateway.
//
// The bytes of large values do not pass through a gateway: it reserves ranges for them, this
// process writes them there, and the gateway confirms them. What cannot be written so is sent with
// SET.
#include "training/bindings/kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/cli/settings.h"
#include "cmd/options/cluster_access.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_options.h"
#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "storage/client/loop_executor.h"
#include "storage/client/url.h"
#include "storage/gateway/gateway_client.h"
#include "storage/gateway/redis_value.h"
#include "storage/gateway/reservation_text.h"
#include "storage/kvstore/reservation_writer.h"
#include "storage/kvstore/store_reader.h"
#include "training/bindings/quiet_thread.h"

namespace ff::bindings {
namespace {

using gateway::GatewayClient;
using Keys = std::span<const std::string_view>;

constexpr int64_t kWriteRetryNs = 100 * kMillisecond;
constexpr size_t kReadBuffers = 16;
constexpr size_t kWriteBuffers = 16;
constexpr size_t kLookThreads = 8;
constexpr size_t kReservedBytes = 256 * kKiB;  // values from here on are written by this process

// A change that has been sent, or will be: one request for each key.
struct KvWrite {
  Keys keys;
  Keys values = {};              // of a put
  std::string_view ttl_ms = {};  // of a put; empty: none
  std::vector<GatewayClient::Words> requests = {};
  std::vector<std::string> replies = {};  // of those that were carried out
  std::vector<size_t> pending = {};       // indices of the others
  std::optional<Error> refused = {};
  Error last = {};  // why some are pending
};

// A value that this process writes to the store.
struct LargeValue {
  size_t which = 0;                                   // index in the change
  std::string size = {};                              // decimal
  std::string range = {};                             // as the gateway has reserved it
  std::optional<kvstore::RecordReservation> to = {};  // empty: it is left to SET
  bool confirmed = false;
};

class GatewayKv final : public KvClient {
 public:
  GatewayKv(io::Disk& local, const KvClientOptions& options, cmd::NetOptions net)
      : local_(local),
        options_(options),
        net_(std::move(net)),
        loop_(clock_),
        calls_(loop_),
        disk_(&local) {}
  ~GatewayKv() override;
  Result<void> open(const StopToken& stop, const std::string& meta);

  Result<void> refresh() override {
    return calls_.call<void>([this] { return reader_->refresh(); });
  }
  Result<void> find(Keys keys, std::span<uint64_t> sizes) override;
  Result<void> read(Keys keys, std::span<const ByteSpan> places,
                    std::span<uint64_t> sizes) override;
  Result<void> put(Keys keys, Keys values, int64_t ttl_ms) override;
  Result<uint64_t> remove(Keys keys) override;

 private:
  Result<void> load_access();
  Result<void> write(KvWrite& write);
  Task<Result<void>> carry_out(KvWrite& write);
  Task<void> attempt(KvWrite& write);
  Task<void> send_to(std::string address, std::vector<size_t> which, KvWrite& write);
  Task<void> write_large(GatewayClient& client, std::vector<size_t>& which, KvWrite& write);
  Task<Result<void>> reserve(GatewayClient& client, const KvWrite& write,
                             std::vector<LargeValue>& large);
  Task<void> write_ranges(const KvWrite& write, std::vector<LargeValue>& large);
  Task<void> write_reserved(const KvWrite& write, LargeValue& large);
  Task<void> sync_segment(const KvWrite& write, std::vector<LargeValue*> of_segment);
  Task<Result<void>> confirm(GatewayClient& client, KvWrite& write, std::vector<LargeValue>& large);
  void take_reply(const GatewayClient::Reply& reply, size_t which, KvWrite& write);
  Task<Result<std::string>> owner_of(uint32_t partition);
  GatewayClient& client_of(const std::string& address);

  io::Disk& local_;
  const KvClientOptions options_;
  const cmd::NetOptions net_;
  SystemClock clock_;
  SystemLoop loop_;
  client::LoopExecutor calls_;
  std::unique_ptr<cmd::ClusterAccess> cluster_;  // null: a local folder
  io::Disk* disk_;                               // that has the folder of the store
  std::string folder_;
  std::unique_ptr<kvstore::StoreReader> reader_;
  std::unique_ptr<kvstore::ReservationWriter> writer_;  // of the loop, from the first put on
  std::optional<gateway::GatewayAccess> access_;        // from the first change on
  std::mutex access_mutex_;
  // Of the loop.
  std::map<std::string, std::unique_ptr<GatewayClient>> clients_;  // by address
  std::vector<std::string> owners_;                                // of partitions, if known
  std::thread thread_;                                             // runs the loop
};

Result<void> GatewayKv::open(const StopToken& stop, const std::string& meta) {
  const QuietSignals quiet;
  folder_ = options_.path;
  if (client::is_url(options_.path)) {
    cmd::ClusterAccess::Options options{.url = {}, .meta = meta, .net = net_, .name = "kv"};
    FF_TRY(options.url, client::parse_url(options_.path));
    FF_TRY(cluster_, cmd::ClusterAccess::open(stop, local_, options));
    folder_ = cluster_->path(options.url.path);
    disk_ = &cluster_->disk();
  }
  kvstore::StoreReader::Options reading;
  reading.max_age_ns = options_.max_age_ns;
  if (cluster_ != nullptr) {
    reading.buffers = kReadBuffers;
    reading.threads = kLookThreads;
  }
  auto opened = kvstore::StoreReader::open(*disk_, loop_, folder_, reading);
  if (!opened && opened.error().code == Errc::not_found) {
    Error error = fail(Errc::not_found, "{}: there is no store of keys and values", options_.path);
    error.hint = fmt::format("Start a gateway, which makes it: ff serve-kv {}.", options_.path);
    return error;
  }
  FF_TRY(reader_, std::move(opened));
  owners_.resize(reader_->partitions());
  thread_ = std::thread([this] { loop_.run(); });
  return {};
}

GatewayKv::~GatewayKv() {
  if (!thread_.joinable()) return;
  loop_.post([this] { loop_.stop(); });
  thread_.join();
}

Result<void> GatewayKv::find(Keys keys, std::span<uint64_t> sizes) {
  FF_TRY(const auto infos,
         calls_.call<kvstore::StoreReader::Infos>([&] { return reader_->find_many(keys); }));
  for (size_t i = 0; i < keys.size(); i++) {
    sizes[i] = infos[i] ? infos[i]->value_bytes : kNoValue;
  }
  return {};
}

// A string that begins as a mark does lies there with another mark in front (redis_value.h).
Result<uint64_t> without_mark(std::string_view key, ByteSpan value) {
  const std::string_view text = as_text(value);
  if (gateway::is_plain_string(text)) return value.size();
  const auto type = gateway::stored_type(text);
  if (type != gateway::ValueType::string) {
    return fail(Errc::usage, "the key {} has a {}, not a string", printable(key),
                gateway::value_type_name(type));
  }
  const std::string decoded = gateway::decode_string(std::string(text));
  std::memcpy(value.data(), decoded.data(), decoded.size());
  return decoded.size();
}

Result<void> GatewayKv::read(Keys keys, std::span<const ByteSpan> places,
                             std::span<uint64_t> sizes) {
  FF_TRY(const auto reads, calls_.call<kvstore::StoreReader::Reads>(
                               [&] { return reader_->read_many(keys, places); }));
  for (size_t i = 0; i < keys.size(); i++) {
    FF_TRY(const auto info, reads[i]);
    sizes[i] = info ? info->value_bytes : kNoValue;
    if (!info || info->value_bytes > places[i].size()) continue;
    FF_TRY(sizes[i], without_mark(keys[i], places[i].first(info->value_bytes)));
  }
  return {};
}

// What the gateway shall know of this process: the same settings as for the cluster.
Result<void> GatewayKv::load_access() {
  const std::lock_guard lock(access_mutex_);
  if (access_) return {};
  FF_TRY(const auto transport, cmd::transport_options(local_, net_));
  gateway::GatewayAccess& access = access_.emplace();
  access.certificates = transport.certificates;
  if (transport.keyring == nullptr) return {};
  const auth::Service service{.role = auth::Role::meta};
  const auto credential = transport.keyring->credential(service);
  if (!credential) {
    access_.reset();
    return net::no_key_for(*transport.keyring, service);
  }
  access.password.reserve(credential->identity.size() + service.text().size() + 80);
  access.password += credential->identity;
  access.password += ' ';
  access.password += service.text();
  access.password += ' ';
  auth::append_hex(access.password, credential->key);
  return {};
}

Result<void> GatewayKv::write(KvWrite& write) {
  FF_TRY(load_access());
  write.replies.resize(write.keys.size());
  write.pending.resize(write.keys.size());
  for (size_t i = 0; i < write.pending.size(); i++) write.pending[i] = i;
  return calls_.call<void>([&] { return carry_out(write); });
}

// A gateway that dies is followed by another one, or a change of the owner is on its way: asked
// again, until the time is over.
Task<Result<void>> GatewayKv::carry_out(KvWrite& write) {
  const int64_t until_ns = loop_.now_ns() + options_.write_ns;
  for (;;) {
    co_await attempt(write);
    if (write.pending.empty() || loop_.now_ns() >= until_ns) break;
    FF_CO_TRY(co_await sleep_for(loop_, kWriteRetryNs));
  }
  for (const std::string_view key : write.keys) reader_->outdate(reader_->partition_of(key));
  if (write.refused) co_return std::move(*write.refused);
  if (write.pending.empty()) co_return {};
  Error error = std::move(write.last).with_context(fmt::format("{}: ", options_.path));
  if (error.hint.empty()) error.hint = "Start a gateway of the store: ff serve-kv.";
  co_return error;
}

Task<void> GatewayKv::attempt(KvWrite& write) {
  std::map<std::string, std::vector<size_t>> by_address;
  const auto pending = std::exchange(write.pending, {});
  for (const size_t which : pending) {
    const uint32_t partition = reader_->partition_of(write.keys[which]);
    const auto owner = co_await owner_of(partition);
    if (owner && !owner->empty()) {
      by_address[*owner].push_back(which);
      continue;
    }
    write.last = owner ? fail(Errc::unreachable, "no gateway serves partition {}", partition)
                       : owner.error();
    write.pending.push_back(which);
  }
  Gate gate(loop_);
  for (auto& [address, which] : by_address) gate.spawn(send_to(address, which, write));
  co_await gate.wait_empty();
  for (const size_t which : write.pending) {
    owners_[reader_->partition_of(write.keys[which])].clear();
  }
}

Task<Result<std::string>> GatewayKv::owner_of(uint32_t partition) {
  if (owners_[partition].empty()) {
    FF_CO_TRY(owners_[partition], co_await reader_->owner(partition));
  }
  co_return owners_[partition];
}

// Large values whose keys occur once: of several values of a key the last one must stay.
std::vector<LargeValue> large_values(const KvWrite& write, const std::vector<size_t>& which) {
  std::vector<LargeValue> large;
  if (write.values.empty()) return large;
  for (const size_t one : which) {
    const std::string_view value = write.values[one];
    if (value.size() < kReservedBytes || !gateway::is_plain_string(value)) continue;
    large.push_back({.which = one, .size = std::to_string(value.size())});
  }
  if (large.empty()) return large;
  std::unordered_map<std::string_view, int> times;
  for (const std::string_view key : write.keys) times[key]++;
  std::erase_if(large, [&](const LargeValue& one) { return times[write.keys[one.which]] > 1; });
  return large;
}

// Asks for ranges; of values that get none, `range` stays empty.
Task<Result<void>> GatewayKv::reserve(GatewayClient& client, const KvWrite& write,
                                      std::vector<LargeValue>& large) {
  std::vector<GatewayClient::Words> requests = {};
  for (const LargeValue& one : large) {
    requests.push_back({"FF.RESERVE", write.keys[one.which], one.size});
    if (!write.ttl_ms.empty()) requests.back().insert(requests.back().end(), {"PX", write.ttl_ms});
  }
  FF_CO_TRY(const auto replies, co_await client.call(requests));
  for (size_t i = 0; i < large.size(); i++) {
    if (!replies[i].is_error) large[i].range = replies[i].text;
  }
  co_return {};
}

Task<void> GatewayKv::write_reserved(const KvWrite& write, LargeValue& large) {
  const std::string_view key = write.keys[large.which];
  const uint32_t partition = reader_->partition_of(key);
  const auto done = co_await writer_->write(partition, *large.to, key, write.values[large.which]);
  if (!done) large.to.reset();
}

Task<void> GatewayKv::sync_segment(const KvWrite& write, std::vector<LargeValue*> of_segment) {
  const LargeValue& first = *of_segment.front();
  const uint32_t partition = reader_->partition_of(write.keys[first.which]);
  const auto synced = co_await writer_->sync(partition, *first.to);
  if (synced) co_return;
  for (LargeValue* const one : of_segment) one->to.reset();
}

// Those that fail lose their ranges.
Task<void> GatewayKv::write_ranges(const KvWrite& write, std::vector<LargeValue>& large) {
  Gate writes(loop_);
  for (LargeValue& one : large) {
    one.to = gateway::parse_reservation(one.range);
    if (one.to) writes.spawn(write_reserved(write, one));
  }
  co_await writes.wait_empty();
  using Segment = std::tuple<uint32_t, uint64_t, uint64_t>;
  std::map<Segment, std::vector<LargeValue*>> segments;
  for (LargeValue& one : large) {
    if (!one.to) continue;
    const uint32_t partition = reader_->partition_of(write.keys[one.which]);
    segments[{partition, one.to->segment_epoch, one.to->segment_number}].push_back(&one);
  }
  for (auto& [segment, values] : segments) writes.spawn(sync_segment(write, values));
  co_await writes.wait_empty();
}

Task<Result<void>> GatewayKv::confirm(GatewayClient& client, KvWrite& write,
                                      std::vector<LargeValue>& large) {
  std::erase_if(large, [](const LargeValue& one) { return !one.to; });
  if (large.empty()) co_return {};
  std::vector<GatewayClient::Words> requests = {};
  for (const LargeValue& one : large) {
    requests.push_back({"FF.CONFIRM", write.keys[one.which], one.range});
  }
  FF_CO_TRY(const auto replies, co_await client.call(requests));
  for (size_t i = 0; i < large.size(); i++) {
    large[i].confirmed = !replies[i].is_error;
    if (large[i].confirmed) write.replies[large[i].which] = replies[i].text;
  }
  co_return {};
}

// Removes what the gateway has confirmed from `which`; whatever fails is left to SET, which says
// why.
Task<void> GatewayKv::write_large(GatewayClient& client, std::vector<size_t>& which,
                                  KvWrite& write) {
  std::vector<LargeValue> large = large_values(write, which);
  if (large.empty()) co_return;
  if (writer_ == nullptr) {
    kvstore::ReservationWriter::Options options;
    options.syncs_own_writes_only = cluster_ != nullptr;
    if (cluster_ != nullptr) options.buffers = kWriteBuffers;
    auto made = kvstore::ReservationWriter::make(*disk_, loop_, folder_, options);
    if (!made) co_return;
    writer_ = std::move(*made);
  }
  const auto reserved = co_await reserve(client, write, large);
  if (!reserved) co_return;
  co_await write_ranges(write, large);
  const auto confirmed = co_await confirm(client, write, large);
  if (!confirmed) co_return;
  std::erase_if(which, [&](size_t one) {
    return std::any_of(large.begin(), large.end(), [one](const LargeValue& value) {
      return value.which == one && value.confirmed;
    });
  });
}

GatewayClient& GatewayKv::client_of(const std::string& address) {
  auto& client = clients_[address];
  if (client == nullptr) client = std::make_unique<GatewayClient>(loop_, address, *access_);
  return *client;
}

Task<void> GatewayKv::send_to(std::string address, std::vector<size_t> which, KvWrite& write) {
  GatewayClient& client = client_of(address);
  co_await write_large(client, which, write);
  if (which.empty()) co_return;
  std::vector<GatewayClient::Words> requests = {};
  for (const size_t one : which) requests.push_back(write.requests[one]);
  const auto replies = co_await client.call(requests);
  for (size_t i = 0; i < which.size(); i++) {
    if (replies) {
      take_reply((*replies)[i], which[i], write);
    } else if (replies.error().code == Errc::refused) {
      write.refused = replies.error();
    } else {
      write.pending.push_back(which[i]);
      write.last = replies.error();
    }
  }
}

void GatewayKv::take_reply(const GatewayClient::Reply& reply, size_t which, KvWrite& write) {
  if (!reply.is_error) {
    write.replies[which] = reply.text;
    return;
  }
  const auto is = [&reply](std::string_view code) { return reply.text.starts_with(code); };
  const Error error = fail(Errc::failed, "{}", printable(reply.text));
  if (is("MOVED ") || is("CLUSTERDOWN ") || is("LOADING ") || is("TRYAGAIN ")) {
    write.pending.push_back(which);
    write.last = error;
    return;
  }
  write.refused = error;
  if (is("NOAUTH ") || is("NOPERM ") || is("WRONGPASS ")) write.refused->code = Errc::refused;
  if (is("MISCONF ")) write.refused->code = Errc::disk_full;
}

Result<void> GatewayKv::put(Keys keys, Keys values, int64_t ttl_ms) {
  const std::string ttl = std::to_string(ttl_ms);
  KvWrite change{.keys = keys, .values = values};
  if (ttl_ms > 0) change.ttl_ms = ttl;
  for (size_t i = 0; i < keys.size(); i++) {
    change.requests.push_back({"SET", keys[i], values[i]});
    if (ttl_ms > 0) change.requests.back().insert(change.requests.back().end(), {"PX", ttl});
  }
  return write(change);
}

Result<uint64_t> GatewayKv::remove(Keys keys) {
  KvWrite change{.keys = keys};
  for (const std::string_view key : keys) change.requests.push_back({"DEL", key});
  FF_TRY(write(change));
  return static_cast<uint64_t>(std::ranges::count(change.replies, "1"));
}

}  // namespace

Result<std::unique_ptr<KvClient>> open_kv_client(const StopToken& stop, io::Disk& local,
                                                 const KvClientOptions& options) {
  std::string meta = cmd::kDefaultMeta;
  cmd::NetOptions net;
  cmd::Command settings("kv", "the settings of ff checkpoint");
  cmd::declare_meta(settings, meta);
  cmd::declare_net(settings, net);
  FF_TRY(cmd::assign_settings(settings));
  auto store = std::make_unique<GatewayKv>(local, options, std::move(net));
  FF_TRY(store->open(stop, meta));
  return std::unique_ptr<KvClient>(std::move(store));
}

}  // namespace ff::bindings
