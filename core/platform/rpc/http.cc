// http.cc: Boost.Beast on one thread. Each connection is an object that reads a header, answers,
// and reads the next. Requests to the loop pass through a bridge that either side may outlive.
#include "platform/rpc/http.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "platform/base/cpus.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/rpc/http_access.h"
#include "platform/rpc/status_page.h"

namespace ff::rpc {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using std::chrono::milliseconds;

namespace {

constexpr uint32_t kHeaderMax = 8192;
constexpr size_t kBufferMax = 2 * kHeaderMax;  // a header and pipelined bytes
// After a refusal the remaining input is discarded, so that the client receives the refusal.
constexpr size_t kLingerMax = 256 * 1024;
constexpr milliseconds kLingerTime{1000};
constexpr milliseconds kAcceptPause{100};  // out of descriptors
constexpr size_t kPendingJsonMax = 16;     // requests queued at a stuck loop

using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

Error socket_error(const error_code& error, const net::Address& address) {
  return errno_error(error.value(), "--http " + address.text());
}

Response plain(http::status status, std::string_view text) {
  Response response(status, 11);
  response.set(http::field::content_type, "text/plain; charset=utf-8");
  response.body() = text;
  return response;
}

Response busy() {
  auto response = plain(http::status::service_unavailable, "The daemon is busy.\n");
  response.set(http::field::retry_after, "5");
  return response;
}

// JSON that is safe inside HTML: escapes `<`, which occurs in strings only.
std::string escaped_json(std::string_view json) {
  std::string out;
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out + "\n";
}

std::pair<std::string_view, std::string_view> path_and_query(std::string_view target) {
  const size_t end = std::min(target.find('?'), target.size());
  return {target.substr(0, end), target.substr(std::min(end + 1, target.size()))};
}

// Scripts and styles of a page are separate files, and scripts generate no HTML.
constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace

class HttpServer::Service {
 public:
  Service(Loop& loop, const Metrics& metrics, HttpOptions options);
  ~Service();

  Result<void> listen();
  Result<void> start();
  uint16_t port() const { return port_; }
  HttpAccess& access() { return *access_; }

 private:
  class HttpConnection;
  struct Bridge {
    void request_json(const std::string& target);
    std::mutex mutex;
    Service* service = nullptr;  // null after its destruction
  };

  Result<void> bind(const tcp::endpoint& endpoint);
  void accept();
  void accepted(const error_code& error, tcp::socket socket);
  void log_link();
  void request_json(const std::string& target, std::shared_ptr<HttpConnection> connection);
  std::string make_json(std::string_view target) const;
  void on_json(const std::string& target, const std::string& json);

  Loop& loop_;
  const Metrics& metrics_;
  const HttpOptions options_;
  const std::shared_ptr<Bridge> bridge_ = std::make_shared<Bridge>();
  std::unique_ptr<HttpAccess> access_;
  uint16_t port_ = 0;
  auth::SecureRng rng_;
  size_t connections_ = 0;
  // What the loop was asked for and has not answered yet, and the connections that wait for it.
  std::map<std::string, std::set<std::shared_ptr<HttpConnection>>, std::less<>> pending_json_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer accept_pause_{context_};
  std::thread thread_;
};

class HttpServer::Service::HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(Service& service, tcp::socket socket)
      : service_(service), stream_(std::move(socket)), json_timer_(service.context_) {
    ++service_.connections_;
  }
  ~HttpConnection() { --service_.connections_; }

  void read();
  void send_json(const std::string& json);

 private:
  void on_read(const error_code& error);
  void refuse(const error_code& error);
  void answer();
  bool check_request(const Request& request);
  bool logged_in(const Request& request);
  void log_in(std::string_view query);
  void wait_for(std::string_view target);
  void send_status(const std::string& json);
  void send(Response response);
  void on_sent(const error_code& error, bool close);
  void linger();

  Service& service_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kBufferMax};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<Response> response_;
  asio::steady_timer json_timer_;
  std::array<char, 4096> dropped_;
  size_t dropped_bytes_ = 0;
};

// The service. -----------------------------------------------------------------------------------

HttpServer::Service::Service(Loop& loop, const Metrics& metrics, HttpOptions options)
    : loop_(loop), metrics_(metrics), options_(std::move(options)) {
  bridge_->service = this;
}

HttpServer::Service::~Service() {
  {
    const std::lock_guard lock(bridge_->mutex);
    bridge_->service = nullptr;
  }
  context_.stop();
  if (thread_.joinable()) thread_.join();
  pending_json_.clear();
}

Result<void> HttpServer::Service::listen() {
  const net::Address& address = options_.address;
  FF_CHECK(!address.is_unix());
  if (address.host.empty()) {
    // All addresses of IPv6 and IPv4, or of IPv4 if the kernel has no IPv6.
    if (bind({asio::ip::address_v6::any(), address.port})) return {};
    return bind({asio::ip::address_v4::any(), address.port});
  }
  error_code error;
  const auto numeric = asio::ip::make_address(address.host, error);
  if (!error) return bind({numeric, address.port});
  Error usage = fail(Errc::usage, "--http {}: not a numeric address", address.text());
  usage.hint = "Give a numeric address of this machine, for example 10.1.2.3:9100.";
  return usage;
}

Result<void> HttpServer::Service::bind(const tcp::endpoint& endpoint) {
  error_code error;
  const auto failed = [&] {
    Error result = socket_error(error, options_.address);
    acceptor_.close(error);
    return result;
  };
  if (acceptor_.open(endpoint.protocol(), error)) return failed();
  if (acceptor_.set_option(tcp::acceptor::reuse_address(true), error)) return failed();
  const bool every_v6 = endpoint.address() == asio::ip::address_v6::any();
  if (every_v6 && acceptor_.set_option(asio::ip::v6_only(false), error)) return failed();
  if (acceptor_.bind(endpoint, error)) return failed();
  if (acceptor_.listen(asio::socket_base::max_listen_connections, error)) return failed();
  port_ = acceptor_.local_endpoint(error).port();
  if (error) return failed();
  access_ = std::make_unique<HttpAccess>(port_);
  return {};
}

Result<void> HttpServer::Service::start() {
  log_link();
  accept();
  try {
    thread_ = std::thread([this] {
      unpin_thread();
      context_.run();
    });
  } catch (const std::system_error& error) {
    return errno_error(error.code().value(), "--http: starting its thread");
  }
  return {};
}

void HttpServer::Service::log_link() {
  net::Address address = options_.address;
  if (address.host.empty()) address.host = "localhost";
  address.port = port_;
  log_info("status page", {{"login", "http://" + address.text() + access_->login_path()}});
}

void HttpServer::Service::accept() {
  acceptor_.async_accept(
      [this](const error_code& error, tcp::socket socket) { accepted(error, std::move(socket)); });
}

void HttpServer::Service::accepted(const error_code& error, tcp::socket socket) {
  if (error) {
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait([this](const error_code&) { accept(); });
    return;
  }
  if (connections_ < options_.connections_max) {
    std::make_shared<HttpConnection>(*this, std::move(socket))->read();
  }
  accept();
}

// Each page is requested once for all connections that wait for it, so that a stuck loop gets no
// additional work.
void HttpServer::Service::request_json(const std::string& target,
                                       std::shared_ptr<HttpConnection> connection) {
  const auto [waiting, is_new] = pending_json_.try_emplace(target);
  waiting->second.insert(std::move(connection));
  if (is_new) loop_.post([bridge = bridge_, target] { bridge->request_json(target); });
}

// In the loop's thread.
void HttpServer::Service::Bridge::request_json(const std::string& target) {
  const std::lock_guard lock(mutex);
  if (service == nullptr) return;
  asio::post(service->context_, [to = service, target, json = service->make_json(target)] {
    to->on_json(target, json);
  });
}

std::string HttpServer::Service::make_json(std::string_view target) const {
  const auto [path, query] = path_and_query(target);
  const auto page = options_.pages.find(std::string(path));
  return page == options_.pages.end() ? options_.status() : page->second.json(query);
}

void HttpServer::Service::on_json(const std::string& target, const std::string& json) {
  const auto waiting = pending_json_.extract(target);
  for (const auto& connection : waiting.mapped()) connection->send_json(json);
}

// One connection. --------------------------------------------------------------------------------

void HttpServer::Service::HttpConnection::read() {
  parser_.emplace();
  parser_->header_limit(kHeaderMax);
  stream_.expires_after(milliseconds(service_.options_.request_ms));
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](const error_code& error, size_t) { self->on_read(error); });
}

void HttpServer::Service::HttpConnection::on_read(const error_code& error) {
  if (!error) return answer();
  // Otherwise the connection has ended or timed out: it is closed with this object.
  const bool misspelt =
      error.category() == http::make_error_code(http::error::bad_method).category();
  if (misspelt && error != http::error::end_of_stream && error != http::error::partial_message) {
    refuse(error);
  }
}

void HttpServer::Service::HttpConnection::refuse(const error_code& error) {
  const bool large = error == http::error::header_limit || error == http::error::buffer_overflow;
  auto response =
      large ? plain(http::status::request_header_fields_too_large, "The header is too large.\n")
            : plain(http::status::bad_request, "This is not HTTP.\n");
  response.keep_alive(false);
  send(std::move(response));
}

// Conditions that every request must meet; otherwise sends the refusal and returns false.
bool HttpServer::Service::HttpConnection::check_request(const Request& request) {
  std::optional<Response> refusal;
  error_code ignored;
  const auto local = stream_.socket().local_endpoint(ignored).address();
  const bool mapped = local.is_v6() && local.to_v6().is_v4_mapped();
  const std::string address =
      mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, local.to_v6()).to_string()
             : local.to_string();
  if (request.count(http::field::host) != 1) {
    refusal = plain(http::status::bad_request, "A request must have exactly one Host header.\n");
  } else if (!host_allowed(view(request[http::field::host]), address, service_.options_.hosts)) {
    refusal = plain(http::status::misdirected_request, "This is not the server of that name.\n");
  } else if (request.method() != http::verb::get && request.method() != http::verb::head) {
    refusal = plain(http::status::method_not_allowed, "Only GET and HEAD are allowed.\n");
    refusal->set(http::field::allow, "GET, HEAD");
  } else if (!parser_->is_done() || !request.target().starts_with('/')) {
    refusal = plain(http::status::bad_request, "A request must have a path and no body.\n");
  }
  if (!refusal) return true;
  refusal->keep_alive(false);
  send(std::move(*refusal));
  return false;
}

bool HttpServer::Service::HttpConnection::logged_in(const Request& request) {
  const auto [begin, end] = request.equal_range(http::field::cookie);
  return std::any_of(begin, end, [this](const auto& field) {
    return service_.access_->has_session(view(field.value()));
  });
}

void HttpServer::Service::HttpConnection::answer() {
  const Request& request = parser_->get();
  if (!check_request(request)) return;
  const std::string_view target = view(request.target());
  const auto [path, query] = path_and_query(target);
  if (path == "/metrics") {
    auto response = plain(http::status::ok, service_.metrics_.text());
    response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    return send(std::move(response));
  }
  if (path == "/login") return log_in(query);
  if (!logged_in(request)) {
    return send(plain(http::status::forbidden,
                      "Log in first: open the newest login link of the daemon's log.\n"));
  }
  const HttpPages& pages = service_.options_.pages;
  if (path == "/status" && service_.options_.status) return wait_for(path);
  const auto page = pages.find(std::string(path));
  if (page == pages.end()) {
    return send(plain(http::status::not_found, fmt::format("There are {}/status and /metrics.\n",
                                                           pages.contains("/") ? "/, " : "")));
  }
  if (page->second.json) return wait_for(target);
  Response response(http::status::ok, 11);
  response.set(http::field::content_type, page->second.type);
  response.set("Content-Security-Policy", kPagePolicy);
  response.body() = page->second.text;
  send(std::move(response));
}

void HttpServer::Service::HttpConnection::log_in(std::string_view query) {
  // Not for HEAD: programs preview links with it before the user opens them.
  const bool get = parser_->get().method() == http::verb::get;
  const std::string_view key = "token=";
  const auto cookie = get && query.starts_with(key)
                          ? service_.access_->login(query.substr(key.size()))
                          : std::nullopt;
  if (!cookie) {
    return send(plain(http::status::forbidden,
                      "This link is used or invalid: open the newest login link of the log.\n"));
  }
  const std::string home = service_.options_.pages.contains("/") ? "/" : "/status";
  auto response = plain(http::status::see_other, "See " + home + ".\n");
  response.set(http::field::location, home);
  response.set(http::field::set_cookie, *cookie);
  service_.log_link();
  send(std::move(response));
}

void HttpServer::Service::HttpConnection::wait_for(std::string_view target) {
  if (service_.pending_json_.size() >= kPendingJsonMax &&
      !service_.pending_json_.contains(target)) {
    return send(busy());
  }
  stream_.expires_never();
  json_timer_.expires_after(milliseconds(service_.options_.status_ms));
  json_timer_.async_wait(
      [self = shared_from_this(), target = std::string(target)](const error_code& error) {
        const auto asked = self->service_.pending_json_.find(target);
        if (error || asked == self->service_.pending_json_.end() || asked->second.erase(self) == 0)
          return;
        self->send(busy());
      });
  service_.request_json(std::string(target), shared_from_this());
}

void HttpServer::Service::HttpConnection::send_json(const std::string& json) {
  json_timer_.cancel();
  const auto [path, query] = path_and_query(view(parser_->get().target()));
  const auto page = service_.options_.pages.find(std::string(path));
  if (page == service_.options_.pages.end()) return send_status(json);
  Response response(http::status::ok, 11);
  response.set(http::field::content_type, page->second.type);
  response.body() = escaped_json(json);
  send(std::move(response));
}

void HttpServer::Service::HttpConnection::send_status(const std::string& json) {
  std::array<std::byte, 16> random;
  auth::fill_random(random, service_.rng_);
  const std::string nonce = hex(random);
  auto page = status_page({.title = service_.options_.title, .json = json, .nonce = nonce});
  if (!page) {
    return send(plain(http::status::internal_server_error, "The status is not a JSON object.\n"));
  }
  Response response(http::status::ok, 11);
  response.set(http::field::vary, "Accept");
  if (view(parser_->get()[http::field::accept]).find("text/html") == std::string_view::npos) {
    response.set(http::field::content_type, "application/json");
    response.body() = escaped_json(json);
    return send(std::move(response));
  }
  response.set(http::field::content_type, "text/html; charset=utf-8");
  response.set("Content-Security-Policy",
               fmt::format("default-src 'none'; style-src 'nonce-{}'; base-uri 'none'; "
                           "form-action 'none'; frame-ancestors 'none'",
                           nonce));
  response.body() = std::move(*page);
  send(std::move(response));
}

void HttpServer::Service::HttpConnection::send(Response response) {
  const Request& request = parser_->get();
  const bool refused = response.result() == http::status::bad_request || !parser_->is_done();
  if (response["Content-Security-Policy"].empty()) {
    response.set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
  }
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("X-Frame-Options", "DENY");
  response.set("Referrer-Policy", "no-referrer");
  response.set("Cross-Origin-Resource-Policy", "same-origin");
  const bool keep = !refused && response.keep_alive() && request.keep_alive();
  response.keep_alive(keep);
  response.content_length(response.body().size());
  if (request.method() == http::verb::head) response.body().clear();
  response_ = std::move(response);
  stream_.expires_after(milliseconds(service_.options_.request_ms));
  http::async_write(stream_, *response_,
                    [self = shared_from_this(), keep](const error_code& error, size_t) {
                      self->on_sent(error, !keep);
                    });
}

void HttpServer::Service::HttpConnection::on_sent(const error_code& error, bool close) {
  if (error) return;
  if (!close) return read();
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(kLingerTime);
  linger();
}

void HttpServer::Service::HttpConnection::linger() {
  stream_.async_read_some(asio::buffer(dropped_),
                          [self = shared_from_this()](const error_code& error, size_t size) {
                            self->dropped_bytes_ += size;
                            if (!error && self->dropped_bytes_ < kLingerMax) self->linger();
                          });
}

// The server. ------------------------------------------------------------------------------------

HttpServer::HttpServer(std::unique_ptr<Service> service) : service_(std::move(service)) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(Loop& loop, const Metrics& metrics,
                                                      HttpOptions options) {
  auto service = std::make_unique<Service>(loop, metrics, std::move(options));
  FF_TRY(service->listen());
  FF_TRY(service->start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(service)));
}

uint16_t HttpServer::port() const { return service_->port(); }

std::string HttpServer::login_path() { return service_->access().login_path(); }

}  // namespace ff::rpc
