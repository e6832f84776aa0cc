// The echo server of grpc_server.h, with completion queues and with callbacks.
#include "bench/grpc_server.h"

#include <sys/socket.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "grpc_peer.grpc.pb.h"

namespace ff::peer {
namespace {

// Waits for a call, answers it, and waits for the next one.
class ServerSlot {
 public:
  ServerSlot(Echo::AsyncService& service, grpc::ServerCompletionQueue& queue)
      : service_(service), queue_(queue) {
    wait();
  }

  // What this slot started has ended. False when the server shuts down.
  bool proceed(bool ok) {
    if (!ok && waiting_) return false;
    if (waiting_) {
      reply_.mutable_data()->swap(*request_.mutable_data());
      waiting_ = false;
      responder_->Finish(reply_, grpc::Status::OK, this);
    } else {
      wait();
    }
    return true;
  }

 private:
  void wait() {
    waiting_ = true;
    context_.emplace();
    responder_.emplace(&*context_);
    service_.RequestCall(&*context_, &request_, &*responder_, &queue_, &queue_, this);
  }

  Echo::AsyncService& service_;
  grpc::ServerCompletionQueue& queue_;
  bool waiting_ = true;
  EchoRequest request_;
  EchoReply reply_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<EchoReply>> responder_;
};

// Answers calls until the server shuts down. Twice as many slots wait as calls come at a time: one
// is always ready.
void serve_queue(Echo::AsyncService& service, grpc::ServerCompletionQueue& queue, uint64_t slots) {
  std::vector<std::unique_ptr<ServerSlot>> all;
  for (uint64_t i = 0; i < slots; ++i) all.push_back(std::make_unique<ServerSlot>(service, queue));
  void* tag = nullptr;
  bool ok = false;
  while (slots > 0 && queue.Next(&tag, &ok)) {
    if (!static_cast<ServerSlot*>(tag)->proceed(ok)) --slots;
  }
}

class CallbackEcho final : public Echo::CallbackService {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const EchoRequest* request,
                                 EchoReply* reply) override {
    reply->set_data(request->data());
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

void serve_echo(bool callback, uint64_t in_flight, int socket) {
  Echo::AsyncService async_service;
  CallbackEcho callback_service;
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_MINIMAL_STACK, 1);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  if (callback) {
    builder.RegisterService(&callback_service);
  } else {
    builder.RegisterService(&async_service);
    queue = builder.AddCompletionQueue();
  }
  const auto server = builder.BuildAndStart();
  if (!server || port == 0) throw std::runtime_error("cannot start the server");
  std::thread thread;
  if (queue) thread = std::thread([&] { serve_queue(async_service, *queue, 2 * in_flight); });
  const ssize_t sent = ::send(socket, &port, sizeof(port), MSG_NOSIGNAL);
  char byte = 0;
  const ssize_t got = ::recv(socket, &byte, 1, 0);
  server->Shutdown();
  if (queue) {
    thread.join();
    drain(*queue);
  }
  if (sent != sizeof(port) || got != 0) throw std::runtime_error("lost the client");
}

}  // namespace ff::peer
