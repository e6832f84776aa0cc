// Typed methods: a service declares them in its header, and both ends use them.
//
//   inline constexpr Method<ReadRequest, ReadReply> kRead{0x0101, "storage.read"};
//   router: add_method(router, kRead, service, &Service::read);
//   client: FF_CO_TRY(ReadReply reply, co_await call_method(client, kRead, request, deadline_ns));
//
// Request and reply are protobuf messages. The number is the service's number in the high byte and
// the method's in the low byte; numbers are never reused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/task.h"
#include "platform/rpc/channel.h"
#include "platform/rpc/client.h"
#include "platform/rpc/server_connection.h"

namespace ff::rpc {

template <class Request, class Reply>
struct Method {
  uint32_t number = 0;
  std::string_view name;
};

template <class Message>
Result<Message> parse_message(const std::string& bytes) {
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return fail(Errc::corrupt, "the message is not valid protobuf");
}

namespace method_detail {

template <class Service, class Request, class Reply>
Task<Result<std::string>> run(Service* service,
                              Task<Result<Reply>> (Service::*function)(ServerCall&, Request),
                              ServerCall& call, std::string message) {
  FF_CO_TRY(Request request, parse_message<Request>(message));
  FF_CO_TRY(const Reply reply, co_await (service->*function)(call, std::move(request)));
  co_return reply.SerializeAsString();
}

}  // namespace method_detail

// `service` must outlive the router.
template <class Service, class Request, class Reply>
void add_method(Router& router, Method<Request, Reply> method, Service& service,
                Task<Result<Reply>> (Service::*function)(ServerCall&, Request),
                auth::Roles roles = auth::kOperators) {
  router.add(
      method.number, method.name,
      [&service, function](ServerCall& call, std::string message) {
        return method_detail::run(&service, function, call, std::move(message));
      },
      roles);
}

// Calls a method on the client's channel; connects if necessary.
template <class Request, class Reply>
Task<Result<Reply>> call_method(Client& client, Method<Request, Reply> method, Request request,
                                int64_t deadline_ns) {
  FF_CO_TRY(const auto channel, co_await client.channel(deadline_ns));
  CallSpec spec{.method = method.number, .name = method.name, .deadline_ns = deadline_ns};
  FF_CO_TRY(const std::string reply, co_await channel->call(spec, request.SerializeAsString()));
  co_return parse_message<Reply>(reply);
}

// A call with bulk data: exposes memory on one channel; the caller puts the buffers into the
// request.
class BulkCall {
 public:
  explicit BulkCall(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}

  const std::shared_ptr<Channel>& channel() const { return channel_; }
  // Exposes memory that the server may write until the call has ended.
  Result<net::RemoteBuffer> sink(ByteSpan memory) {
    FF_TRY(auto exposure, channel_->connection().expose_sink(memory));
    sink_bytes_ += memory.size();
    return keep(std::move(exposure));
  }
  // Exposes memory that the server may read.
  Result<net::RemoteBuffer> source(ByteView memory) {
    FF_TRY(auto exposure, channel_->connection().expose_source(memory));
    return keep(std::move(exposure));
  }
  // Runs the call; only once per object.
  template <class Request, class Reply>
  Task<Result<Reply>> run(Method<Request, Reply> method, Request request, int64_t deadline_ns) {
    CallSpec spec{.method = method.number,
                  .name = method.name,
                  .deadline_ns = deadline_ns,
                  .sink_bytes = sink_bytes_,
                  .has_memory = !exposures_.empty()};
    FF_CO_TRY(const std::string reply, co_await channel_->call(spec, request.SerializeAsString()));
    co_return parse_message<Reply>(reply);
  }

 private:
  net::RemoteBuffer keep(net::Connection::Exposure exposure) {
    exposures_.push_back(std::move(exposure));
    return exposures_.back().buffer();
  }

  std::shared_ptr<Channel> channel_;
  std::vector<net::Connection::Exposure> exposures_;
  uint64_t sink_bytes_ = 0;
};

}  // namespace ff::rpc
