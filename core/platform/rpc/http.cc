// http.cc: Boost.Beast on one thread. A connection is one object that reads a header, answers,
// and reads the next. What the loop is asked travels over a bridge that either side may outlive.
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
constexpr size_t kBufferMax = 2 * kHeaderMax;  // a header, and what a client sends ahead
// After a refusal the rest of what the client sends is dropped, so that the refusal arrives.
constexpr size_t kLingerMax = 256 * 1024;
constexpr milliseconds kLingerTime{1000};
constexpr milliseconds kAcceptPause{100};  // out of descriptors
constexpr size_t kQuestionsMax = 16;       // that a stuck loop may still be given

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

// JSON that is also safe where somebody pastes it into a page: `<` stands in strings only.
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

// A page's script and style are files of their own, and write no HTML.
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
  class Session;
  struct Bridge {
    void ask(const std::string& target);
    std::mutex mutex;
    Service* service = nullptr;  // null once it has gone
  };

  Result<void> bind(const tcp::endpoint& endpoint);
  void accept();
  void accepted(const error_code& error, tcp::socket socket);
  void log_link();
  void ask(const std::string& target, std::shared_ptr<Session> session);
  std::string made(std::string_view target) const;
  void answered(const std::string& target, const std::string& json);

  Loop& loop_;
  const Metrics& metrics_;
  const HttpOptions options_;
  const std::shared_ptr<Bridge> bridge_ = std::make_shared<Bridge>();
  std::unique_ptr<HttpAccess> access_;
  uint16_t port_ = 0;
  auth::SecureRng rng_;
  size_t connections_ = 0;
  // What the loop was asked for and has not answered yet, and who awaits it.
  std::map<std::string, std::set<std::shared_ptr<Session>>, std::less<>> asked_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer accept_pause_{context_};
  std::thread thread_;
};

class HttpServer::Service::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Service& service, tcp::socket socket)
      : service_(service), stream_(std::move(socket)), made_timer_(service.context_) {
    ++service_.connections_;
  }
  ~Session() { --service_.connections_; }

  void read();
  void show(const std::string& json);

 private:
  void on_read(const error_code& error);
  void refuse(const error_code& error);
  void answer();
  bool admitted(const Request& request);
  bool logged_in(const Request& request);
  void log_in(std::string_view query);
  void wait_for(std::string_view target);
  void show_status(const std::string& json);
  void send(Response response);
  void on_sent(const error_code& error, bool close);
  void linger();

  Service& service_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kBufferMax};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<Response> response_;
  asio::steady_timer made_timer_;
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
  asked_.clear();
}

Result<void> HttpServer::Service::listen() {
  const net::Address& address = options_.address;
  FF_CHECK(!address.is_unix());
  if (address.host.empty()) {
    // Every address of both kinds, or of the one that this kernel has.
    if (bind({asio::ip::address_v6::any(), address.port})) return {};
    return bind({asio::ip::address_v4::any(), address.port});
  }
  error_code error;
  const auto numeric = asio::ip::make_address(address.host, error);
  if (!error) return bind({numeric, address.port});
  Error usage = fail(Errc::usage, "--http {}: not a numeric address", address.text());
  usage.hint = "Give the address of this machine that shall listen, as in 10.1.2.3:9100.";
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
    thread_ = std::thread([this] { context_.run(); });
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
    std::make_shared<Session>(*this, std::move(socket))->read();
  }
  accept();
}

// The same question is under way once, whoever waits for its answer: a loop that is stuck is not
// given more to do.
void HttpServer::Service::ask(const std::string& target, std::shared_ptr<Session> session) {
  const auto [question, is_new] = asked_.try_emplace(target);
  question->second.insert(std::move(session));
  if (is_new) loop_.post([bridge = bridge_, target] { bridge->ask(target); });
}

// In the loop's thread.
void HttpServer::Service::Bridge::ask(const std::string& target) {
  const std::lock_guard lock(mutex);
  if (service == nullptr) return;
  asio::post(service->context_,
             [to = service, target, json = service->made(target)] { to->answered(target, json); });
}

std::string HttpServer::Service::made(std::string_view target) const {
  const auto [path, query] = path_and_query(target);
  const auto page = options_.pages.find(std::string(path));
  return page == options_.pages.end() ? options_.status() : page->second.json(query);
}

void HttpServer::Service::answered(const std::string& target, const std::string& json) {
  const auto question = asked_.extract(target);
  for (const auto& session : question.mapped()) session->show(json);
}

// One connection. --------------------------------------------------------------------------------

void HttpServer::Service::Session::read() {
  parser_.emplace();
  parser_->header_limit(kHeaderMax);
  stream_.expires_after(milliseconds(service_.options_.request_ms));
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](const error_code& error, size_t) { self->on_read(error); });
}

void HttpServer::Service::Session::on_read(const error_code& error) {
  if (!error) return answer();
  // Else the connection has ended, or its time has: it goes with this object.
  const bool misspelt =
      error.category() == http::make_error_code(http::error::bad_method).category();
  if (misspelt && error != http::error::end_of_stream && error != http::error::partial_message) {
    refuse(error);
  }
}

void HttpServer::Service::Session::refuse(const error_code& error) {
  const bool large = error == http::error::header_limit || error == http::error::buffer_overflow;
  auto response =
      large ? plain(http::status::request_header_fields_too_large, "The header is too large.\n")
            : plain(http::status::bad_request, "This is not HTTP.\n");
  response.keep_alive(false);
  send(std::move(response));
}

// What a request has to be, whatever it asks for; else it is answered here.
bool HttpServer::Service::Session::admitted(const Request& request) {
  std::optional<Response> refusal;
  error_code ignored;
  const auto local = stream_.socket().local_endpoint(ignored).address();
  const bool mapped = local.is_v6() && local.to_v6().is_v4_mapped();
  const std::string address =
      mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, local.to_v6()).to_string()
             : local.to_string();
  if (request.count(http::field::host) != 1) {
    refusal = plain(http::status::bad_request, "A request has one Host.\n");
  } else if (!host_allowed(view(request[http::field::host]), address, service_.options_.hosts)) {
    refusal = plain(http::status::misdirected_request, "This is not the server of that name.\n");
  } else if (request.method() != http::verb::get && request.method() != http::verb::head) {
    refusal = plain(http::status::method_not_allowed, "These pages can only be read.\n");
    refusal->set(http::field::allow, "GET, HEAD");
  } else if (!parser_->is_done() || !request.target().starts_with('/')) {
    refusal = plain(http::status::bad_request, "A request has a path and no body.\n");
  }
  if (!refusal) return true;
  refusal->keep_alive(false);
  send(std::move(*refusal));
  return false;
}

bool HttpServer::Service::Session::logged_in(const Request& request) {
  const auto [begin, end] = request.equal_range(http::field::cookie);
  return std::any_of(begin, end, [this](const auto& field) {
    return service_.access_->knows(view(field.value()));
  });
}

void HttpServer::Service::Session::answer() {
  const Request& request = parser_->get();
  if (!admitted(request)) return;
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

void HttpServer::Service::Session::log_in(std::string_view query) {
  // Not for HEAD, with which programs look at links before people open them.
  const bool get = parser_->get().method() == http::verb::get;
  const std::string_view key = "token=";
  const auto cookie = get && query.starts_with(key)
                          ? service_.access_->login(query.substr(key.size()))
                          : std::nullopt;
  if (!cookie) {
    return send(plain(http::status::forbidden,
                      "This link has been used or never was one: take the newest of the log.\n"));
  }
  const std::string home = service_.options_.pages.contains("/") ? "/" : "/status";
  auto response = plain(http::status::see_other, "See " + home + ".\n");
  response.set(http::field::location, home);
  response.set(http::field::set_cookie, *cookie);
  service_.log_link();
  send(std::move(response));
}

void HttpServer::Service::Session::wait_for(std::string_view target) {
  if (service_.asked_.size() >= kQuestionsMax && !service_.asked_.contains(target)) {
    return send(busy());
  }
  stream_.expires_never();
  made_timer_.expires_after(milliseconds(service_.options_.status_ms));
  made_timer_.async_wait(
      [self = shared_from_this(), target = std::string(target)](const error_code& error) {
        const auto asked = self->service_.asked_.find(target);
        if (error || asked == self->service_.asked_.end() || asked->second.erase(self) == 0) return;
        self->send(busy());
      });
  service_.ask(std::string(target), shared_from_this());
}

void HttpServer::Service::Session::show(const std::string& json) {
  made_timer_.cancel();
  const auto [path, query] = path_and_query(view(parser_->get().target()));
  const auto page = service_.options_.pages.find(std::string(path));
  if (page == service_.options_.pages.end()) return show_status(json);
  Response response(http::status::ok, 11);
  response.set(http::field::content_type, page->second.type);
  response.body() = escaped_json(json);
  send(std::move(response));
}

void HttpServer::Service::Session::show_status(const std::string& json) {
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

void HttpServer::Service::Session::send(Response response) {
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

void HttpServer::Service::Session::on_sent(const error_code& error, bool close) {
  if (error) return;
  if (!close) return read();
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(kLingerTime);
  linger();
}

void HttpServer::Service::Session::linger() {
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
