// http_thread.cc: the thread with a curl multi handle and its requests.
#include "platform/kv/http_thread.h"

#include <curl/curl.h>

#include <algorithm>
#include <map>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/base/thread_result.h"

namespace ff::kv {

namespace {

// Maximum of concurrent requests to one server; others wait, and their timeouts run.
constexpr long kConnectionsMax = 64;
// The timeout to connect is shorter than that of a request.
constexpr long kConnectMs = 1000;
constexpr int kPollMs = 1000;  // new requests wake the thread

// Global initialization, before threads use curl; curl counts further calls.
void start_curl() {
  static const bool started = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  FF_CHECK(started);
}

}  // namespace

struct HttpThread::Request {
  std::shared_ptr<ThreadResult<Reply>> result;
  std::string url;
  std::string body;
  long timeout_ms = 0;

  // Used by the thread only.
  std::string received;
  char error[CURL_ERROR_SIZE] = {};
};

// The running requests, used by the thread only. Each has an easy handle; handles are reused.
class HttpThread::Transfers {
 public:
  explicit Transfers(const HttpTls& tls) : tls_(tls), multi_(curl_multi_init()) {
    FF_CHECK(multi_ != nullptr);
    headers_ = curl_slist_append(headers_, "Content-Type: application/json");
    headers_ = curl_slist_append(headers_, "Expect:");  // no round trip before a large body
    curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, kConnectionsMax);
  }
  ~Transfers() {
    for (const auto& [easy, request] : running_) {
      curl_multi_remove_handle(multi_, easy);
      curl_easy_cleanup(easy);
    }
    for (CURL* const easy : idle_) curl_easy_cleanup(easy);
    curl_multi_cleanup(multi_);
    curl_slist_free_all(headers_);
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void begin(std::shared_ptr<Request> request) {
    CURL* const easy = take_handle();
    curl_easy_setopt(easy, CURLOPT_URL, request->url.c_str());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body.data());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request->body.size()));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, request->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, std::min(request->timeout_ms, kConnectMs));
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &request->received);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->error);
    FF_CHECK(curl_multi_add_handle(multi_, easy) == CURLM_OK);
    running_.emplace(easy, std::move(request));
  }

  // Transfers bytes, completes finished requests, and waits for I/O or wake().
  void step() {
    int still = 0;
    FF_CHECK(curl_multi_perform(multi_, &still) == CURLM_OK);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg == CURLMSG_DONE) end(message->easy_handle, message->data.result);
    }
    curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
  }
  // Thread-safe.
  void wake() { curl_multi_wakeup(multi_); }

 private:
  static size_t receive(const char* bytes, size_t, size_t count, void* into) {
    auto& received = *static_cast<std::string*>(into);
    if (received.size() + count > kReplyMax) return 0;
    received.append(bytes, count);
    return count;
  }

  CURL* take_handle() {
    if (!idle_.empty()) {
      CURL* const easy = idle_.back();
      idle_.pop_back();
      return easy;
    }
    CURL* const easy = curl_easy_init();
    FF_CHECK(easy != nullptr);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &receive);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!tls_.ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, tls_.ca_file.c_str());
    if (!tls_.cert_file.empty()) {
      curl_easy_setopt(easy, CURLOPT_SSLCERT, tls_.cert_file.c_str());
      curl_easy_setopt(easy, CURLOPT_SSLKEY, tls_.key_file.c_str());
    }
    return easy;
  }

  void end(CURL* easy, CURLcode code) {
    const auto found = running_.find(easy);
    const std::shared_ptr<Request> request = std::move(found->second);
    running_.erase(found);
    Reply reply;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &reply.status);
    curl_multi_remove_handle(multi_, easy);
    idle_.push_back(easy);
    if (code == CURLE_OK) {
      reply.body = std::move(request->received);
      request->result->set(std::move(reply));
      return;
    }
    const char* const cause = request->error[0] != '\0' ? request->error : curl_easy_strerror(code);
    request->result->set(fail(Errc::unreachable, "{}: {}", request->url, cause));
  }

  const HttpTls& tls_;
  CURLM* const multi_;
  curl_slist* headers_ = nullptr;
  std::map<CURL*, std::shared_ptr<Request>> running_;
  std::vector<CURL*> idle_;
};

HttpThread::HttpThread(HttpTls tls) : tls_(std::move(tls)) {
  start_curl();
  transfers_ = std::make_unique<Transfers>(tls_);
  thread_ = std::thread([this] { run(); });
}

HttpThread::~HttpThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  transfers_->wake();
  thread_.join();
}

void HttpThread::run() {
  for (;;) {
    std::vector<std::shared_ptr<Request>> added;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      added.swap(added_);
    }
    for (auto& request : added) transfers_->begin(std::move(request));
    transfers_->step();
  }
}

Task<Result<HttpThread::Reply>> HttpThread::post(Loop& loop, std::string url, std::string body,
                                                 int64_t timeout_ns) {
  auto request = std::make_shared<Request>();
  request->url = std::move(url);
  request->body = std::move(body);
  request->timeout_ms = static_cast<long>(std::max(timeout_ns / kMillisecond, int64_t{1}));
  auto taking = ThreadResult<Reply>::wait(loop, [&](std::shared_ptr<ThreadResult<Reply>> result) {
    request->result = std::move(result);
    {
      const std::lock_guard lock(mutex_);
      added_.push_back(request);
    }
    transfers_->wake();
  });
  co_return co_await std::move(taking);
}

}  // namespace ff::kv
