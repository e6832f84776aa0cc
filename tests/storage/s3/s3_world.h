// A gateway for S3 on a simulated cluster, and clients that are texts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "platform/base/text.h"
#include "platform/http/server.h"
#include "platform/http/text_stream.h"
#include "storage/client/file_system_world.h"
#include "storage/client/walk.h"
#include "storage/s3/s3_service.h"
#include "storage/s3/xml.h"

namespace ff::s3 {

struct Reply {
  int status = 0;
  std::string head;  // all of it
  std::string body;

  std::string field(std::string_view name) const {
    const std::string mark = fmt::format("\r\n{}: ", name);
    const size_t at = head.find(mark);
    if (at == head.npos) return {};
    const size_t begin = at + mark.size();
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
  // Of an error.
  std::string code() const {
    const auto document = parse_xml(body);
    return document ? std::string(document->value("Code")) : std::string();
  }
  XmlElement xml() const {
    auto document = parse_xml(body);
    EXPECT_TRUE(document) << body;
    return document ? std::move(*document) : XmlElement();
  }
};

using Fields = std::vector<http::Field>;

class S3World : public client::FileSystemWorld {
 protected:
  void SetUp() override {
    FileSystemWorld::SetUp();
    start(nullptr);
  }
  void start(std::shared_ptr<const auth::Keyring> keyring, meta::Caller self = {}) {
    ServiceOptions options;
    options.store.root = "/";
    options.self = std::move(self);
    service_ =
        std::make_unique<S3Service>(files_, rng_, metrics_, std::move(keyring), std::move(options));
    ASSERT_TRUE(io::ok(run(service_->open())));
  }
  // Sends bytes as one client, and returns all that comes back.
  std::string talk(std::string_view text, size_t piece = SIZE_MAX) {
    http::TextStream stream(stage_.world.loop());
    stream.cut(piece);
    stream.feed(text);
    stream.end();
    http::RequestServer server(stage_.world.loop(), *service_, {});
    run_task(stage_.world.loop(), server.serve_stream(stream));
    return stream.sent();
  }
  static Reply parse_reply(std::string_view sent) {
    Reply reply;
    const size_t end = sent.find("\r\n\r\n");
    EXPECT_NE(end, sent.npos) << sent;
    if (end == sent.npos) return reply;
    reply.head = sent.substr(0, end + 2);
    reply.body = sent.substr(end + 4);
    reply.status = static_cast<int>(parse_u64(sent.substr(9, 3)).value_or(0));
    return reply;
  }
  Reply ask(std::string_view method, std::string_view target, std::string_view body = {},
            const Fields& fields = {}) {
    std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", method, target, host_);
    for (const http::Field& field : fields) {
      text += fmt::format("{}: {}\r\n", field.name, field.value);
    }
    if (method == "PUT" || method == "POST") {
      text += fmt::format("Content-Length: {}\r\n", body.size());
    }
    return parse_reply(talk(text + "\r\n" + std::string(body)));
  }
  // A bucket, which must be new.
  void make_bucket(std::string_view name) {
    EXPECT_EQ(ask("PUT", "/" + std::string(name)).status, 200);
  }
  // The names in a folder, with hidden ones.
  std::vector<std::string> names_in(const std::string& path) {
    std::vector<std::string> names;
    const auto view = run(client::resolve_path(metadata(), {}, path, false));
    if (!view) return {view.error().message};
    const auto page = run(metadata().list({}, view->ref(), "", 1000, false));
    if (!page) return {page.error().message};
    for (const auto& entry : page->entries) names.push_back(entry.name);
    return names;
  }

  std::string host_ = "localhost:9000";
  Metrics metrics_;
  SeededRng rng_{7};
  std::unique_ptr<S3Service> service_;
};

}  // namespace ff::s3
