// requests_objects.cc: operations on one object, and the removal of many.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "platform/base/task_group.h"
#include "platform/base/text.h"
#include "storage/s3/body_source.h"
#include "storage/s3/copy_source.h"
#include "storage/s3/reply_text.h"
#include "storage/s3/s3_call.h"
#include "storage/s3/s3_error.h"
#include "storage/s3/tags.h"

namespace ff::s3 {

namespace {

constexpr int kReadAttempts = 4;  // of an object that is replaced again and again
constexpr size_t kDeleteBodyMax = 2 * kMiB;
constexpr size_t kDeleteMax = 1000;
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kOverrides = {{
    {"response-content-type", "content-type"},
    {"response-content-encoding", "content-encoding"},
    {"response-content-disposition", "content-disposition"},
    {"response-content-language", "content-language"},
    {"response-cache-control", "cache-control"},
    {"response-expires", "expires"},
}};

void set_field(std::vector<http::Field>& fields, std::string_view name, std::string value) {
  for (http::Field& field : fields) {
    if (field.name == name) {
      field.value = std::move(value);
      return;
    }
  }
  fields.push_back({std::string(name), std::move(value)});
}

Result<http::ReplyHead> object_head(const S3Call& call, const ObjectInfo& object, int status) {
  http::ReplyHead head = call.reply_head(status);
  for (const http::Field& field : object.attributes.fields) head.fields.push_back(field);
  if (http::find_field(head.fields, "content-type") == nullptr) {
    head.fields.push_back({"content-type", "binary/octet-stream"});
  }
  for (const auto& [parameter, field] : kOverrides) {
    const std::string value = call.parameter(parameter);
    if (value.empty()) continue;
    if (!http::parse_field(fmt::format("{}:{}", field, value))) {
      return s3_error(S3Code::invalid_argument, "The value of {} is not valid.", parameter);
    }
    set_field(head.fields, field, value);
  }
  head.fields.push_back({"ETag", quoted(object.attributes.etag)});
  head.fields.push_back({"Last-Modified", http::format_date(object.mtime_s())});
  head.fields.push_back({"Accept-Ranges", "bytes"});
  if (!object.attributes.tags.empty()) {
    head.fields.push_back({"x-amz-tagging-count", fmt::to_string(object.attributes.tags.size())});
  }
  return head;
}

// The head of the reply to GET and HEAD, and which bytes follow.
struct ReplyPlan {
  http::ReplyHead head;
  ByteRange range;
};

Result<ReplyPlan> plan_reply(const S3Call& call, const ObjectInfo& object) {
  FF_TRY(check_conditions(call.head(), "", object));
  FF_TRY(const auto range, parse_range(call.head().value("range"), object.size()));
  FF_TRY(auto head, object_head(call, object, range ? 206 : 200));
  ReplyPlan plan{std::move(head), range.value_or(ByteRange{0, object.size()})};
  if (range) {
    plan.head.fields.push_back({"Content-Range", fmt::format("bytes {}-{}/{}", range->begin,
                                                             range->end - 1, object.size())});
  }
  return plan;
}

// Sends what an object has, piece by piece: while one is sent, the next ones are read.
class ObjectSender {
 public:
  // All outlive it.
  ObjectSender(S3Call& call, ObjectReader& reader, const TransferPieces& memory)
      : call_(call), reader_(reader), memory_(memory) {
    for (size_t i = 0; i < memory.count(); i++) {
      reads_.push_back(std::make_unique<TaskGroup>(call.store.loop()));
    }
  }

  // Reads the first piece; its error is that of the object.
  Task<Result<void>> begin() {
    read_one();
    co_return co_await reads_[0]->join();
  }
  // Sends the reply, after begin().
  Task<Result<void>> run(ReplyPlan plan) {
    const uint64_t size = plan.range.end - plan.range.begin;
    FF_CO_TRY(co_await call_.exchange.begin_reply(std::move(plan.head), size));
    for (uint64_t number = 0, sent = 0; sent < size; number++) {
      while (read_one()) {
      }
      FF_CO_TRY(co_await reads_[number % memory_.count()]->join());
      const uint64_t bytes = std::min<uint64_t>(memory_.bytes, size - sent);
      FF_CO_TRY(co_await call_.exchange.write(memory_.piece(number).first(bytes)));
      sent += bytes;
      sent_++;
    }
    co_return Result<void>();
  }
  // Waits for the reads that are under way.
  Task<void> end() {
    for (const auto& reads : reads_) (void)co_await reads->join();
  }

 private:
  // Starts to read one more piece. False: there is none, or no memory is free.
  bool read_one() {
    if (*reader_.size() == 0 || begun_ - sent_ >= memory_.count()) return false;
    TaskGroup& reads = *reads_[begun_ % memory_.count()];
    reads.add(reader_.read_next(reader_.take(memory_.piece(begun_++))));
    return true;
  }

  S3Call& call_;
  ObjectReader& reader_;
  const TransferPieces& memory_;
  uint64_t begun_ = 0, sent_ = 0;                  // pieces
  std::vector<std::unique_ptr<TaskGroup>> reads_;  // by the place in memory
};

// Whether an object that was found has been removed or replaced before its first bytes were read.
bool is_outdated(const Error& error) {
  return error.code == Errc::stale || is_s3_error(error, S3Code::no_such_key);
}

Task<Result<void>> get_once(S3Call& call, const ObjectInfo& object, bool& outdated) {
  FF_CO_TRY(ReplyPlan plan, plan_reply(call, object));
  if (object.marker) co_return co_await call.exchange.begin_reply(std::move(plan.head), 0);
  const uint64_t size = plan.range.end - plan.range.begin;
  FF_CO_TRY(const auto memory, co_await call.store.acquire_pieces(size));
  auto file = co_await call.store.open_file(call.caller(), object);
  outdated = !file && is_outdated(file.error());
  if (!file) co_return std::move(file).error();
  ObjectReader reader(std::move(*file), plan.range.begin, size);
  ObjectSender sender(call, reader, memory);
  const auto begun = co_await sender.begin();
  outdated = !begun && is_outdated(begun.error());
  FF_CO_TRY(begun);
  auto sent = co_await sender.run(std::move(plan));
  co_await sender.end();
  co_return sent;
}

Result<PutCondition> put_condition(const http::RequestHead& head) {
  PutCondition condition;
  const std::string_view none_match = head.value("if-none-match");
  if (!none_match.empty() && none_match != "*") {
    return s3_error(S3Code::not_implemented, "If-None-Match of a new object can only be '*'.");
  }
  condition.must_be_new = none_match == "*";
  condition.must_match = unquoted(head.value("if-match"));
  return condition;
}

Result<ObjectStore::NewObject> new_object(const S3Call& call) {
  FF_TRY(call.check_reach(call.bucket, call.key));
  ObjectStore::NewObject object{.caller = call.caller(), .bucket = call.bucket, .key = call.key};
  FF_TRY(object.attributes.fields, object_fields(call.head()));
  FF_TRY(object.attributes.tags, parse_tag_field(call.head().value("x-amz-tagging")));
  FF_TRY(object.condition, put_condition(call.head()));
  return object;
}

}  // namespace

Task<Result<void>> run_put_object(S3Call& call) {
  FF_CO_TRY(auto object, new_object(call));
  const http::RequestHead& head = call.head();
  if (head.find("content-length") == nullptr && head.find("transfer-encoding") == nullptr) {
    co_return s3_error(S3Code::missing_content_length,
                       "You must provide the Content-Length HTTP header.");
  }
  FF_CO_TRY(auto body, BodySource::make(call.exchange, call.authentication));
  FF_CO_TRY(const auto stored, co_await call.store.put(std::move(object), body));
  http::ReplyHead reply = call.reply_head(200);
  reply.fields.push_back({"ETag", quoted(stored.attributes.etag)});
  co_return co_await call.exchange.reply(std::move(reply), std::string_view());
}

Task<Result<void>> run_get_object(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  for (int attempt = 1;; attempt++) {
    FF_CO_TRY(const auto object, co_await call.store.find(call.caller(), call.bucket, call.key));
    bool outdated = false;
    auto done = co_await get_once(call, object, outdated);
    if (done || !outdated || attempt == kReadAttempts) co_return done;
  }
}

Task<Result<void>> run_head_object(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(const auto object, co_await call.store.find(call.caller(), call.bucket, call.key));
  FF_CO_TRY(ReplyPlan plan, plan_reply(call, object));
  co_return co_await call.exchange.begin_reply(std::move(plan.head),
                                               plan.range.end - plan.range.begin);
}

Task<Result<void>> run_delete_object(S3Call& call) {
  FF_CO_TRY(call.check_reach(call.bucket, call.key));
  FF_CO_TRY(co_await call.store.remove(call.caller(), call.bucket, call.key));
  co_return co_await call.reply(204);
}

Task<Result<void>> run_delete_objects(S3Call& call) {
  FF_CO_TRY(auto body, BodySource::make(call.exchange, call.authentication));
  FF_CO_TRY(const std::string text, co_await body.read_all(kDeleteBodyMax));
  const auto request = parse_xml(text);
  if (!request || request->name != "Delete" || request->children.size() > kDeleteMax + 1) {
    co_return s3_error(S3Code::malformed_xml, "The XML is not a list of at most {} keys.",
                       kDeleteMax);
  }
  FF_CO_TRY(co_await call.store.find_bucket(call.caller(), call.bucket));
  const bool quiet = request->value("Quiet") == "true";
  XmlWriter document("DeleteResult");
  for (const XmlElement& one : request->children) {
    if (one.name != "Object") continue;
    const std::string key(one.value("Key"));
    auto done = call.check_reach(call.bucket, key);
    if (done) done = co_await call.store.remove(call.caller(), call.bucket, key);
    if (done && quiet) continue;
    document.open(done ? "Deleted" : "Error");
    document.element("Key", key);
    if (!done) {
      document.element("Code", code_name(code_of(done.error())));
      document.element("Message", printable(done.error().message));
    }
    document.close();
  }
  co_return co_await call.reply_xml(std::move(document));
}

Task<Result<void>> run_copy_object(S3Call& call) {
  FF_CO_TRY(auto object, new_object(call));
  FF_CO_TRY(const CopySource from, parse_copy_source(call));
  FF_CO_TRY(const auto source, co_await find_copy_source(call, from));
  const bool replaces = call.head().value("x-amz-metadata-directive") == "REPLACE";
  if (from.bucket == call.bucket && from.key == call.key && !replaces) {
    co_return s3_error(S3Code::invalid_request,
                       "This copy request is illegal because it is trying to copy an object to "
                       "itself without changing the object's metadata.");
  }
  if (!replaces) object.attributes.fields = source.attributes.fields;
  if (call.head().value("x-amz-tagging-directive") != "REPLACE") {
    object.attributes.tags = source.attributes.tags;
  }
  std::shared_ptr<client::File> file;
  if (!source.marker) {
    FF_CO_TRY(file, co_await call.store.open_file(call.caller(), source));
  }
  ObjectReader reader(std::move(file), 0, source.size());
  FF_CO_TRY(const auto stored, co_await call.store.put(std::move(object), reader));
  XmlWriter document("CopyObjectResult");
  document.element("LastModified", format_xml_time(stored.mtime_s()));
  document.element("ETag", quoted(stored.attributes.etag));
  co_return co_await call.reply_xml(std::move(document));
}

}  // namespace ff::s3
