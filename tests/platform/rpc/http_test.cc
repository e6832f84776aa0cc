// The HTTP pages of a daemon over real sockets: their content, access control, and limits for
// clients.
#include "platform/rpc/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "platform/net/socket.h"
#include "platform/rpc/http_access.h"
#include "platform/rpc/status_page.h"

namespace ff::rpc {
namespace {

using std::chrono::steady_clock;

// A blocking connection to the server under test.
class Browser {
 public:
  explicit Browser(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  // False when the server has cut the connection.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // One reply; `head`: without the body it announces. Empty at the end.
  std::string reply(bool head = false) {
    size_t end = std::string::npos;
    while ((end = got_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return std::exchange(got_, {});
    }
    size_t size = end + 4;
    const size_t length = got_.find("Content-Length: ");
    if (!head && length < end) size += std::stoul(got_.substr(length + 16));
    while (got_.size() < size && receive()) {
    }
    std::string one = got_.substr(0, size);
    got_.erase(0, size);
    return one;
  }
  // Whether the server has closed; reads whatever comes before.
  bool ended() {
    while (receive()) {
    }
    return ended_;
  }
  std::string ask(const std::string& path, const std::string& more = "") {
    send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n");
    return reply();
  }

 private:
  bool receive() {
    char bytes[4096];
    const ssize_t got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
    ended_ = got == 0 || (got < 0 && errno == ECONNRESET);
    if (got > 0) got_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  Fd fd_;
  std::string got_;
  bool ended_ = false;
};

std::string status_line(const std::string& reply) { return reply.substr(0, reply.find("\r\n")); }
int code(const std::string& reply) { return reply.size() < 12 ? 0 : std::stoi(reply.substr(9, 3)); }
std::string body(const std::string& reply) { return reply.substr(reply.find("\r\n\r\n") + 4); }
bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

class HttpTest : public testing::Test {
 protected:
  HttpTest() {
    metrics_.counter("ff_test_total", "Things").add(3);
    options_.status = [this] {
      ++asked_;
      return status_;
    };
  }
  ~HttpTest() override {
    server_.reset();
    loop_.post([this] { loop_.stop(); });
    if (thread_.joinable()) thread_.join();
  }
  void start() {
    auto server = HttpServer::start(loop_, metrics_, options_);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    thread_ = std::thread([this] { loop_.run(); });
  }
  Browser browser() { return Browser(server_->port()); }
  // The header line of a fresh session.
  std::string log_in() {
    const std::string reply = browser().ask(server_->login_path());
    EXPECT_EQ(code(reply), 303) << reply;
    const size_t at = reply.find("Set-Cookie: ") + 12;
    return "Cookie: " + reply.substr(at, reply.find(';', at) - at) + "\r\n";
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  Metrics metrics_;
  HttpOptions options_;
  std::atomic<int> asked_{0};
  std::string status_ = R"({"role":"storage","disks":[{"path":"/a"},{"path":"/b"}],"free":12.5})";
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpTest, MetricsNeedNoLogin) {
  start();
  const std::string reply = browser().ask("/metrics?x=1");
  EXPECT_EQ(status_line(reply), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(reply, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n")) << reply;
  EXPECT_EQ(body(reply), metrics_.text());
  EXPECT_EQ(asked_, 0);
}

TEST_F(HttpTest, EverythingElseNeedsALogin) {
  start();
  for (const std::string path : {"/status", "/", "/none", "/metrics/", "//metrics", "/Metrics"}) {
    EXPECT_EQ(code(browser().ask(path)), 403) << path;
    EXPECT_EQ(code(browser().ask(path, "Cookie: ff_session=\r\n")), 403) << path;
  }
  EXPECT_EQ(asked_, 0);
  const std::string cookie = log_in();
  EXPECT_EQ(code(browser().ask("/status", cookie)), 200);
  EXPECT_EQ(code(browser().ask("/none", cookie)), 404);
  EXPECT_EQ(code(browser().ask("/", cookie)), 404);
  const std::string others = "Cookie: a=b; x\r\nCookie: c=d; " + cookie.substr(8);
  EXPECT_EQ(code(browser().ask("/status", others)), 200);
  std::string wrong = cookie;
  wrong[wrong.size() - 3] = wrong[wrong.size() - 3] == '0' ? '1' : '0';
  EXPECT_EQ(code(browser().ask("/status", wrong)), 403);
}

TEST_F(HttpTest, ALoginLinkWorksOnce) {
  start();
  const std::string link = server_->login_path();
  ASSERT_EQ(link.size(), std::string("/login?token=").size() + 64);
  EXPECT_EQ(server_->login_path(), link);
  EXPECT_EQ(code(browser().ask("/login?token=" + std::string(64, '0'))), 403);
  EXPECT_EQ(code(browser().ask("/login?token=")), 403);
  EXPECT_EQ(code(browser().ask("/login")), 403);
  EXPECT_EQ(code(browser().ask(link + "0")), 403);
  Browser peek = browser();  // a program that looks at links does not use it up
  peek.send("HEAD " + link + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_FALSE(has(peek.reply(true), "Set-Cookie"));
  const std::string reply = browser().ask(link);
  EXPECT_EQ(code(reply), 303);
  EXPECT_TRUE(has(reply, "Location: /status\r\n")) << reply;
  EXPECT_TRUE(has(reply, "; Path=/; HttpOnly; SameSite=Strict\r\n")) << reply;
  EXPECT_TRUE(has(reply, "Set-Cookie: ff_session_" + std::to_string(server_->port()) + "="));
  EXPECT_EQ(code(browser().ask(link)), 403);
  EXPECT_NE(server_->login_path(), link);
  EXPECT_NE(log_in(), log_in());
}

TEST_F(HttpTest, OnlyGetAndHead) {
  start();
  const std::string cookie = log_in();
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "X"}) {
    Browser client = browser();
    client.send(method + " /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n" + cookie +
                "\r\nabc");
    const std::string reply = client.reply();
    EXPECT_EQ(code(reply), 405) << method;
    EXPECT_TRUE(has(reply, "Allow: GET, HEAD\r\n")) << reply;
  }
  EXPECT_EQ(asked_, 0);
  Browser client = browser();
  client.send("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string head = client.reply(true);
  EXPECT_EQ(code(head), 200);
  EXPECT_TRUE(has(head, "Content-Length: " + std::to_string(metrics_.text().size()) + "\r\n"));
  EXPECT_EQ(status_line(client.ask("/metrics")), "HTTP/1.1 200 OK");  // no body came in between
}

TEST_F(HttpTest, TheHostIsChecked) {
  options_.hosts = {"node7.example"};
  start();
  const auto ask = [&](const std::string& host_lines) {
    Browser client = browser();
    client.send("GET /metrics HTTP/1.1\r\n" + host_lines + "\r\n");
    return code(client.reply());
  };
  for (const std::string host : {"localhost", "LocalHost:9100", "127.0.0.1:1", "[::1]:9100",
                                 "[::1]", "node7.example", "NODE7.example:80"}) {
    EXPECT_EQ(ask("Host: " + host + "\r\n"), 200) << host;
  }
  for (const std::string host :
       {"evil.example", "localhost.evil.example", "evil.example:9100", "localhost@evil.example",
        "localhost:80@evil", "[::1", "", "[evil]", "127.0.0.2", "localhost:999999"}) {
    EXPECT_EQ(ask("Host: " + host + "\r\n"), 421) << host;
  }
  EXPECT_EQ(ask(""), 400);
  EXPECT_EQ(ask("Host: localhost\r\nHost: localhost\r\n"), 400);
}

TEST_F(HttpTest, TheAddressThatWasReachedIsAHost) {
  EXPECT_TRUE(host_allowed("10.1.2.3:9100", "10.1.2.3", {}));
  EXPECT_FALSE(host_allowed("10.1.2.3:9100", "10.1.2.4", {}));
  EXPECT_TRUE(host_allowed("[fe80::1]:9100", "fe80::1", {}));
  options_.address.host.clear();  // every address
  start();
  EXPECT_EQ(code(browser().ask("/metrics")), 200);
}

TEST_F(HttpTest, StatusIsJsonOrAPage) {
  start();
  const std::string cookie = log_in();
  const std::string json = browser().ask("/status", cookie);
  EXPECT_TRUE(has(json, "Content-Type: application/json\r\n"));
  EXPECT_EQ(body(json), status_ + "\n");
  const std::string page = browser().ask("/status", cookie + "Accept: text/html,*/*\r\n");
  EXPECT_TRUE(has(page, "Content-Type: text/html; charset=utf-8\r\n"));
  for (const std::string_view part : {"<th>role</th><td>storage</td>", "<td>/a</td>", "<td>/b</td>",
                                      "<th>free</th><td>12.5</td>", "</html>"}) {
    EXPECT_TRUE(has(page, part)) << part << page;
  }
  status_ = "[]";
  EXPECT_EQ(code(browser().ask("/status", cookie)), 500);
  status_ = R"({"a":})";
  EXPECT_EQ(code(browser().ask("/status", cookie)), 500);
}

TEST_F(HttpTest, TextStaysText) {
  const std::string evil = "</script></style><img src=x onerror=\"'&\x1b[31m";
  status_ = "{\"";
  status_ += R"(</script>":)";
  append_json_string(status_, evil);
  status_ += "}";
  options_.title = "<b>title";
  start();
  const std::string cookie = log_in();
  EXPECT_FALSE(has(body(browser().ask("/status", cookie)), "<"));
  const std::string page = body(browser().ask("/status", cookie + "Accept: text/html\r\n"));
  EXPECT_FALSE(has(page, "</script>")) << page;
  EXPECT_FALSE(has(page, "<img")) << page;
  EXPECT_FALSE(has(page, "<b>")) << page;
  EXPECT_FALSE(has(page, "\x1b")) << page;
  EXPECT_TRUE(has(page,
                  "<td>&lt;/script&gt;&lt;/style&gt;&lt;img src=x onerror=&quot;&#39;&amp;"
                  "\\x1b[31m</td>"))
      << page;
}

class HttpPagesTest : public HttpTest {
 protected:
  HttpPagesTest() {
    options_.pages["/"] = {.type = "text/html; charset=utf-8", .text = "<h1>page</h1>"};
    options_.pages["/page.js"] = {.type = "text/javascript", .text = "run();"};
    options_.pages["/data.json"] = {
        .type = "application/json", .text = {}, .json = [this](std::string_view query) {
          ++asked_;
          return "{\"query\":\"" + std::string(query) + "</script>\"}";
        }};
  }
};

TEST_F(HttpPagesTest, AreBehindTheLogin) {
  start();
  for (const std::string path : {"/", "/page.js", "/data.json", "/data.json?x=1"}) {
    EXPECT_EQ(code(browser().ask(path)), 403) << path;
    EXPECT_EQ(code(browser().ask(path, "Cookie: ff_session=\r\n")), 403) << path;
  }
  EXPECT_EQ(asked_, 0);
  EXPECT_TRUE(has(browser().ask(server_->login_path()), "Location: /\r\n"));
  const std::string cookie = log_in();
  for (const std::string path : {"/", "/page.js", "/data.json"}) {
    EXPECT_EQ(code(browser().ask(path, cookie)), 200) << path;
    Browser other = browser();
    other.send("GET " + path + " HTTP/1.1\r\nHost: evil.example\r\n" + cookie + "\r\n");
    EXPECT_EQ(code(other.reply()), 421) << path;
    Browser post = browser();
    post.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + cookie + "\r\n");
    EXPECT_EQ(code(post.reply()), 405) << path;
  }
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(code(browser().ask("/status", cookie)), 200);
  EXPECT_TRUE(has(browser().ask("/none", cookie), "There are /, /status and /metrics."));
}

TEST_F(HttpPagesTest, AreWhatTheyWereGiven) {
  start();
  const std::string cookie = log_in();
  const std::string page = browser().ask("/?x", cookie);
  EXPECT_EQ(body(page), "<h1>page</h1>");
  EXPECT_TRUE(has(page, "Content-Type: text/html; charset=utf-8\r\n")) << page;
  EXPECT_TRUE(has(page, "Content-Security-Policy: default-src 'none'; script-src 'self'; "))
      << page;
  EXPECT_TRUE(has(page, "require-trusted-types-for 'script'")) << page;
  const std::string json = browser().ask("/data.json?find=a%20b", cookie);
  EXPECT_TRUE(has(json, "Content-Type: application/json\r\n")) << json;
  EXPECT_EQ(body(json), "{\"query\":\"find=a%20b\\u003c/script>\"}\n");
  EXPECT_EQ(body(browser().ask("/data.json", cookie)), "{\"query\":\"\\u003c/script>\"}\n");
  Browser peek = browser();
  peek.send("HEAD /data.json HTTP/1.1\r\nHost: localhost\r\n" + cookie + "\r\n");
  EXPECT_EQ(code(peek.reply(true)), 200);
  EXPECT_EQ(code(peek.ask("/metrics")), 200);  // no body came in between
}

TEST_F(HttpTest, EveryReplyIsStrict) {
  start();
  const std::string cookie = log_in();
  std::vector<std::string> replies;
  for (const std::string path : {"/metrics", "/status", "/none", "/login?token=x"}) {
    replies.push_back(browser().ask(path, cookie));
    replies.push_back(browser().ask(path, "Accept: text/html\r\n" + cookie));
    replies.push_back(browser().ask(path));
  }
  Browser garbage = browser();
  garbage.send("garbage\r\n\r\n");
  replies.push_back(garbage.reply());
  for (const std::string& reply : replies) {
    EXPECT_TRUE(has(reply, "Content-Security-Policy: default-src 'none'; ")) << reply;
    EXPECT_TRUE(has(reply, "frame-ancestors 'none'")) << reply;
    EXPECT_FALSE(has(reply, "unsafe")) << reply;
    for (const std::string_view line :
         {"Cache-Control: no-store\r\n", "X-Content-Type-Options: nosniff\r\n",
          "X-Frame-Options: DENY\r\n", "Referrer-Policy: no-referrer\r\n"}) {
      EXPECT_TRUE(has(reply, line)) << line << reply;
    }
  }
  const std::string page = browser().ask("/status", "Accept: text/html\r\n" + cookie);
  const size_t at = page.find("'nonce-") + 7;
  EXPECT_TRUE(has(page, "<style nonce=\"" + page.substr(at, 32) + "\">"));
  EXPECT_FALSE(
      has(browser().ask("/status", "Accept: text/html\r\n" + cookie), page.substr(at, 32)));
  EXPECT_FALSE(has(body(page), "http"));  // nothing from elsewhere
}

TEST_F(HttpTest, GarbageIsRefused) {
  start();
  const std::string nul("GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 36);
  for (const std::string& text :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n"),
        std::string("GET\r\n\r\n"), std::string("GET /metrics HTTP/9.9\r\n\r\n"), nul,
        std::string("GET /metrics HTTP/1.1\r\nHost localhost\r\n\r\n"),
        std::string("GET http://localhost/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"),
        std::string("GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                    "chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")}) {
    Browser client = browser();
    client.send(text);
    EXPECT_EQ(code(client.reply()), 400) << printable(text);
    EXPECT_TRUE(client.ended()) << printable(text);
  }
  EXPECT_EQ(code(browser().ask("/metrics")), 200);
}

TEST_F(HttpTest, LargeHeadersAreRefused) {
  start();
  for (const size_t size : {size_t{9000}, size_t{60'000}}) {
    Browser line = browser();
    line.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(size, 'x'));
    EXPECT_EQ(code(line.reply()), 431) << size;
    EXPECT_TRUE(line.ended());
  }
  Browser many = browser();
  std::string text = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 3000; ++i) text += "X: y\r\n";
  many.send(text + "\r\n");
  EXPECT_EQ(code(many.reply()), 431);
  Browser endless = browser();  // one that never stops is cut off
  while (endless.send(std::string(65536, 'x'))) {
  }
  EXPECT_EQ(code(browser().ask("/metrics", "X: " + std::string(6000, 'x') + "\r\n")), 200);
}

TEST_F(HttpTest, SlowClientsAreCutOff) {
  options_.request_ms = 300;
  start();
  const auto begin = steady_clock::now();
  Browser silent = browser();
  Browser idle = browser();
  EXPECT_EQ(code(idle.ask("/metrics")), 200);
  Browser slow = browser();
  slow.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n");
  std::thread drips([&slow] {  // a byte at a time does not win more time
    SystemClock clock;
    while (slow.send("X")) clock.sleep_ns(20 * kMillisecond);
  });
  drips.join();
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(idle.ended());
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(HttpTest, ConnectionsAreKeptAndPipelined) {
  start();
  Browser client = browser();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(code(client.ask("/metrics")), 200);
  const std::string one = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  client.send(one + one);
  EXPECT_EQ(code(client.reply()), 200);
  EXPECT_EQ(code(client.reply()), 200);
  EXPECT_EQ(code(client.ask("/metrics", "Connection: close\r\n")), 200);
  EXPECT_TRUE(client.ended());
}

TEST_F(HttpTest, ConnectionsAreBounded) {
  options_.connections_max = 4;
  start();
  std::vector<std::unique_ptr<Browser>> open;
  for (int i = 0; i < 4; ++i) {
    open.push_back(std::make_unique<Browser>(server_->port()));
    EXPECT_EQ(code(open.back()->ask("/metrics")), 200);
  }
  EXPECT_TRUE(browser().ended());
  EXPECT_EQ(code(open[2]->ask("/metrics")), 200);
  open.erase(open.begin());
  std::string reply;  // the place is free once the server has seen the end
  for (int i = 0; i < 1000 && code(reply) != 200; ++i) reply = browser().ask("/metrics");
  EXPECT_EQ(code(reply), 200);
}

// Keeps the loop busy until told to go on.
class Blocker {
 public:
  explicit Blocker(Loop& loop) {
    std::promise<void> begun;
    auto waiting = begun.get_future();
    loop.post([this, &begun] {
      begun.set_value();
      go_on_.get_future().wait();
    });
    waiting.wait();
  }
  void go_on() { go_on_.set_value(); }

 private:
  std::promise<void> go_on_;
};

TEST_F(HttpTest, ABusyLoopDoesNotStopTheRest) {
  options_.status_ms = 400;
  start();
  const std::string cookie = log_in();
  Blocker blocker(loop_);
  std::vector<std::future<int>> statuses;
  for (int i = 0; i < 10; ++i) {
    statuses.push_back(std::async(std::launch::async, [&] {
      Browser client(server_->port());
      const int first = code(client.ask("/status", cookie));
      return first * 1000 + code(client.ask("/metrics"));  // the connection goes on
    }));
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(code(browser().ask("/metrics")), 200);
  for (auto& status : statuses) EXPECT_EQ(status.get(), 503'200);
  EXPECT_EQ(code(browser().ask("/status", cookie)), 503);
  EXPECT_EQ(asked_, 0);
  blocker.go_on();
  EXPECT_EQ(code(browser().ask("/status", cookie)), 200);
  EXPECT_LE(asked_, 2);  // one question for all of them
}

// A loop that is stuck is not given more and more to do, and pages that need nothing of it come.
TEST_F(HttpPagesTest, QuestionsToABusyLoopAreBounded) {
  options_.status_ms = 1000;
  start();
  const std::string cookie = log_in();
  Blocker blocker(loop_);
  std::vector<std::future<int>> replies;
  for (int i = 0; i < 40; ++i) {
    replies.push_back(std::async(std::launch::async, [&, i] {
      return code(Browser(server_->port()).ask("/data.json?" + std::to_string(i), cookie));
    }));
  }
  for (auto& reply : replies) EXPECT_EQ(reply.get(), 503);
  EXPECT_EQ(code(browser().ask("/", cookie)), 200);
  blocker.go_on();
  const auto drained = std::make_shared<std::promise<void>>();  // all that was asked is answered
  loop_.post([drained] { drained->set_value(); });
  drained->get_future().wait();
  EXPECT_EQ(code(browser().ask("/status", cookie)), 200);
  EXPECT_GE(asked_, 2);
  EXPECT_LE(asked_, 17);
}

TEST_F(HttpTest, GivesUpAfterTwoSeconds) {
  EXPECT_EQ(HttpOptions().status_ms, 2000);
  EXPECT_EQ(HttpOptions().address.host, "127.0.0.1");
}

TEST_F(HttpTest, EndsAtOnceWithWorkUnderWay) {
  start();
  const std::string cookie = log_in();
  Browser idle = browser();
  EXPECT_EQ(code(idle.ask("/metrics")), 200);
  Blocker blocker(loop_);
  Browser waiting = browser();
  waiting.send("GET /status HTTP/1.1\r\nHost: localhost\r\n" + cookie + "\r\n");
  Browser half = browser();
  half.send("GET /met");
  EXPECT_EQ(code(browser().ask("/metrics")), 200);  // the others have been heard by now
  const auto begin = steady_clock::now();
  server_.reset();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::milliseconds(500));
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(half.ended());
  EXPECT_TRUE(waiting.ended());
  blocker.go_on();
  std::promise<void> reached;  // what was asked before is not answered any more
  loop_.post([&reached] { reached.set_value(); });
  reached.get_future().wait();
  EXPECT_EQ(asked_, 0);
}

TEST_F(HttpTest, ListensWhereToldOnly) {
  start();
  HttpOptions taken;
  taken.address.port = server_->port();
  const auto second = HttpServer::start(loop_, metrics_, taken);
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(has(second.error().message, taken.address.text())) << second.error().message;
  HttpOptions name;
  name.address.host = "node7.example";
  EXPECT_EQ(HttpServer::start(loop_, metrics_, name).error().code, Errc::usage);
}

TEST(HttpAddressTest, IsLoopbackUnlessGiven) {
  EXPECT_EQ(parse_http_address("9100")->text(), "127.0.0.1:9100");
  EXPECT_EQ(parse_http_address("localhost:9100")->text(), "127.0.0.1:9100");
  EXPECT_EQ(parse_http_address("10.1.2.3:9100")->text(), "10.1.2.3:9100");
  EXPECT_EQ(parse_http_address("[::1]:9100")->host, "::1");
  EXPECT_EQ(parse_http_address("*:9100")->host, "");
  for (const std::string text : {"", ":9100", "unix:/a", "x", "99999", "10.1.2.3"}) {
    EXPECT_EQ(parse_http_address(text).error().code, Errc::usage) << text;
  }
}

TEST(HttpAccessTest, OldLoginsEnd) {
  HttpAccess access(1);
  std::vector<std::string> cookies;
  for (int i = 0; i < 17; ++i) {
    const std::string token = access.login_path().substr(13);
    const auto cookie = access.login(token);
    ASSERT_TRUE(cookie.has_value());
    cookies.push_back(cookie->substr(0, cookie->find(';')));
  }
  EXPECT_FALSE(access.has_session(cookies[0]));
  for (int i = 1; i < 17; ++i) EXPECT_TRUE(access.has_session("x=y; " + cookies[i])) << i;
  EXPECT_FALSE(HttpAccess(2).has_session(cookies[5]));
}

TEST(StatusPageTest, RefusesWhatIsNoObject) {
  const auto made = [](std::string_view json) {
    return status_page({.title = "t", .json = json, .nonce = "n"}).has_value();
  };
  EXPECT_TRUE(made(R"({"a":[1,null,true,{"b":[]}]})"));
  for (const std::string_view json : {"", "1", "[1]", "{", "{}x", "{\"a\":\"\xff\"}"}) {
    EXPECT_FALSE(made(json)) << json;
  }
  const auto nested = [](size_t levels) {
    return "{\"a\":" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_TRUE(made(nested(31)));
  EXPECT_FALSE(made(nested(32)));
  EXPECT_FALSE(made(nested(100'000)));
}

}  // namespace
}  // namespace ff::rpc
