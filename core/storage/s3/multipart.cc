// multipart.cc: the folders of uploads.
#include "storage/s3/multipart.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "platform/base/text.h"
#include "storage/client/walk.h"
#include "storage/s3/hash.h"
#include "storage/s3/s3_error.h"
#include "storage/s3/uri.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kUploadKind = "upload";
constexpr std::string_view kUploadPrefix = ".ff-s3-upload-";
constexpr std::string_view kPartPrefix = "part-";
constexpr uint32_t kUploadMode = 0700;

Error no_such_upload() {
  return s3_error(
      S3Code::no_such_upload,
      "The upload does not exist. Its id may be wrong, or it was aborted or completed.");
}

Error invalid_part(uint32_t number) {
  return s3_error(S3Code::invalid_part, "Part {} was not uploaded, or has another ETag.", number);
}

std::string part_name(uint32_t number) { return fmt::format("{}{:05}", kPartPrefix, number); }

// The parts of an upload, one after the other.
class PartsSource final : public ObjectSource {
 public:
  struct Part {
    meta::InodeRef inode;
    uint64_t size = 0;
    uint64_t offset = 0;  // in the file
  };
  PartsSource(client::FileSystem& files, meta::Caller caller, std::vector<Part> parts)
      : files_(files), caller_(std::move(caller)), parts_(std::move(parts)) {
    for (const Part& part : parts_) size_ += part.size;
  }

  std::optional<uint64_t> size() const override { return size_; }
  Task<Result<size_t>> read(ByteSpan into) override;

 private:
  client::FileSystem& files_;
  const meta::Caller caller_;
  std::vector<Part> parts_;
  uint64_t size_ = 0;
  size_t next_ = 0;
  std::optional<ObjectReader> reader_;
};

Task<Result<size_t>> PartsSource::read(ByteSpan into) {
  size_t all = 0;
  while (all < into.size()) {
    if (!reader_) {
      if (next_ == parts_.size()) break;
      const Part& part = parts_[next_++];
      FF_CO_TRY(auto file, co_await files_.open(caller_, part.inode, meta::kMayRead));
      reader_.emplace(std::move(file), part.offset, part.size);
    }
    FF_CO_TRY(const size_t got, co_await reader_->read(into.subspan(all)));
    all += got;
    if (*reader_->size() == 0) reader_.reset();
  }
  co_return all;
}

}  // namespace

Task<Result<std::string>> Uploads::create(meta::Caller caller, std::string bucket, std::string key,
                                          std::vector<http::Field> fields) {
  FF_CO_TRY(auto path, parse_key(key));
  if (path.marker) {
    co_return s3_error(S3Code::invalid_argument,
                       "Objects are files here, and a key that ends in '/' is a folder.");
  }
  FF_CO_TRY(auto folder,
            co_await store_.make_folders(caller, std::move(bucket), std::move(path.folders)));
  std::string name = store_.hidden_name(kUploadKind);
  meta::Namespace::CreateOptions options;
  options.kind = meta::InodeType::directory;
  options.mode = kUploadMode;
  FF_CO_TRY(const auto dir,
            co_await store_.metadata().create(caller, folder.dir.ref(), name, std::move(options)));
  ObjectAttributes attributes{.fields = std::move(fields)};
  attributes.fields.push_back({std::string(kUploadKey), percent_encode(key, true)});
  FF_CO_TRY(co_await store_.set_text(caller, dir.ref(), format_attributes(attributes, dir.inode)));
  PartPlaces places(store_, caller, dir);
  FF_CO_TRY(co_await places.create());
  FF_CO_TRY(co_await store_.finish_change());
  co_return name.substr(kUploadPrefix.size());
}

Task<Result<Uploads::Folder>> Uploads::find(meta::Caller caller, UploadName upload) {
  auto path = parse_key(upload.key);
  const bool is_id = !upload.id.empty() && upload.id.find('/') == upload.id.npos &&
                     upload.id.size() < meta::kNameMax / 2;
  FF_CO_TRY(auto bucket, co_await store_.find_bucket(caller, std::move(upload.bucket)));
  if (!path || !is_id) co_return no_such_upload();
  auto beside = co_await store_.find_folder(caller, std::move(bucket), std::move(path->folders));
  if (!beside && is_missing(beside.error())) co_return no_such_upload();
  if (!beside) co_return std::move(beside).error();
  auto dir = co_await store_.metadata().lookup(caller, beside->ref(),
                                               std::string(kUploadPrefix) + upload.id);
  if (!dir && is_missing(dir.error())) co_return no_such_upload();
  if (!dir) co_return std::move(dir).error();
  FF_CO_TRY(auto info, co_await store_.info_of(std::move(caller), *dir, true));
  std::vector<http::Field> fields = std::move(info.attributes.fields);
  const std::string* const key = http::find_field(fields, kUploadKey);
  if (key == nullptr || *key != percent_encode(upload.key, true)) co_return no_such_upload();
  std::erase_if(fields, [](const http::Field& field) { return field.name == kUploadKey; });
  co_return Folder{std::move(*beside), std::move(*dir), std::move(fields)};
}

Task<Result<PartInfo>> Uploads::put_part(meta::Caller caller, UploadName upload, uint32_t number,
                                         ObjectSource& source) {
  if (number == 0 || number > kPartNumberMax) {
    co_return s3_error(S3Code::invalid_argument, "Part numbers are from 1 to {}.", kPartNumberMax);
  }
  FF_CO_TRY(auto folder, co_await find(caller, std::move(upload)));
  PartPlaces places(store_, caller, folder.dir);
  FF_CO_TRY(auto reservation, co_await places.reserve(number, source.size()));
  if (reservation.file) {
    co_return co_await put_in_place(std::move(caller), places, std::move(reservation), number,
                                    source);
  }
  co_return co_await put_in_file(std::move(caller), places, std::move(reservation), number,
                                 std::move(folder), source);
}

// On errors the place stays reserved: some of the bytes may be there, or still arrive.
Task<Result<PartInfo>> Uploads::put_in_place(meta::Caller caller, PartPlaces& places,
                                             PartPlaces::Reservation reservation, uint32_t number,
                                             ObjectSource& source) {
  const uint64_t size = *source.size();
  FF_CO_TRY(auto file, co_await store_.files().open(caller, *reservation.file, meta::kMayWrite));
  const auto written = co_await store_.write_bytes(*file, reservation.offset, source, true);
  Result<void> stored;
  if (written && store_.options().durable) stored = co_await file->sync();
  const auto closed = co_await file->close();
  FF_CO_TRY(written);
  FF_CO_TRY(stored);
  FF_CO_TRY(closed);
  FF_CO_TRY(co_await places.fulfil(reservation, *written, size));
  co_return PartInfo{number, *written, size, store_.loop().clock().wall_ns() / kSecond};
}

Task<Result<PartInfo>> Uploads::put_in_file(meta::Caller caller, PartPlaces& places,
                                            PartPlaces::Reservation reservation, uint32_t number,
                                            Folder folder, ObjectSource& source) {
  FF_CO_TRY(auto hidden, co_await store_.create_hidden_in(caller, std::move(folder.dir)));
  auto written = co_await store_.fill(hidden, source);
  Result<void> done;
  if (!written) {
    done = std::move(written).error();
  } else {
    const ObjectAttributes attributes{.etag = written->md5};
    done = co_await store_.set_text(caller, written->view.ref(),
                                    format_attributes(attributes, written->view.inode));
  }
  if (done) done = co_await store_.publish(caller, hidden, part_name(number), false);
  if (!done) {
    co_await store_.drop(std::move(caller), hidden);
    co_return std::move(done).error();
  }
  FF_CO_TRY(co_await places.replace(reservation));
  const meta::Inode& inode = written->view.inode;
  co_return PartInfo{number, written->md5, inode.length, inode.mtime_ns / kSecond};
}

Task<Result<Uploads::StoredParts>> Uploads::stored_parts(meta::Caller caller, meta::InodeView dir) {
  PartPlaces places(store_, caller, dir);
  FF_CO_TRY(auto placed, co_await places.find());
  StoredParts stored;
  stored.settled = placed.settled;
  for (auto& [number, part] : placed.parts) {
    PartInfo info{number, std::move(part.etag), part.size, part.mtime_s};
    stored.parts.push_back({std::move(info), std::nullopt, part.offset});
  }
  client::DirLister lister(store_.metadata(), caller, dir.ref(), true);
  for (;;) {
    FF_CO_TRY(auto entry, co_await lister.next());
    if (!entry) break;
    if (!entry->name.starts_with(kPartPrefix) || !entry->view) continue;
    const auto number = parse_u64(std::string_view(entry->name).substr(kPartPrefix.size()));
    if (!number || *number > kPartNumberMax) continue;
    if (placed.parts.contains(static_cast<uint32_t>(*number))) continue;
    FF_CO_TRY(auto info, co_await store_.info_of(caller, std::move(*entry->view), false));
    PartInfo part{static_cast<uint32_t>(*number), info.attributes.etag, info.size(),
                  info.mtime_s()};
    stored.parts.push_back({std::move(part), std::move(info.view), 0});
  }
  std::ranges::sort(stored.parts, {}, [](const StoredPart& part) { return part.info.number; });
  co_return stored;
}

Task<Result<std::vector<PartInfo>>> Uploads::list_parts(meta::Caller caller, UploadName upload) {
  FF_CO_TRY(auto folder, co_await find(caller, std::move(upload)));
  FF_CO_TRY(auto stored, co_await stored_parts(std::move(caller), std::move(folder.dir)));
  std::vector<PartInfo> parts;
  for (StoredPart& part : stored.parts) parts.push_back(std::move(part.info));
  co_return parts;
}

// The file of places becomes the object.
Task<Result<ObjectInfo>> Uploads::rename_to_object(const ObjectStore::NewObject& object,
                                                   const Folder& folder, meta::InodeView sealed) {
  FF_CO_TRY(auto path, parse_key(object.key));
  ObjectInfo info{.view = std::move(sealed), .attributes = object.attributes};
  FF_CO_TRY(co_await store_.set_text(object.caller, info.view.ref(),
                                     format_attributes(info.attributes, info.view.inode)));
  FF_CO_TRY(co_await store_.check_condition(object));
  ObjectStore::HiddenFile hidden;
  hidden.folder.dir = folder.beside;
  hidden.below = folder.dir;
  hidden.name = PartPlaces::kSealedName;
  FF_CO_TRY(co_await store_.publish(object.caller, hidden, std::move(path.name),
                                    object.condition.must_be_new));
  co_return info;
}

Result<std::vector<Uploads::StoredPart>> Uploads::choose_parts(
    const StoredParts& stored, const std::vector<WantedPart>& wanted) {
  if (wanted.empty()) return s3_error(S3Code::malformed_xml, "The request names no parts.");
  for (size_t i = 1; i < wanted.size(); i++) {
    if (wanted[i].number <= wanted[i - 1].number) {
      return s3_error(S3Code::invalid_part_order, "The parts are not in the order of numbers.");
    }
  }
  std::vector<StoredPart> chosen;
  for (const WantedPart& one : wanted) {
    const auto found = std::ranges::find(stored.parts, one.number,
                                         [](const StoredPart& part) { return part.info.number; });
    if (found == stored.parts.end() || found->info.etag != one.etag) {
      return invalid_part(one.number);
    }
    if (found->info.size < kPartMin && &one != &wanted.back()) {
      return s3_error(S3Code::entity_too_small,
                      "Part {} has {} bytes; all parts but the last need {}.", one.number,
                      found->info.size, kPartMin);
    }
    chosen.push_back(*found);
  }
  return chosen;
}

Task<Result<ObjectInfo>> Uploads::complete(meta::Caller caller, UploadName upload,
                                           std::vector<WantedPart> parts, PutCondition condition) {
  FF_CO_TRY(auto folder, co_await find(caller, upload));
  PartPlaces places(store_, caller, folder.dir);
  FF_CO_TRY(auto sealed, co_await places.seal());
  FF_CO_TRY(const auto stored, co_await stored_parts(caller, folder.dir));
  FF_CO_TRY(const auto chosen, choose_parts(stored, parts));
  std::vector<PartsSource::Part> sources;
  std::string digests;
  uint64_t bytes = 0;
  bool in_place = sealed && stored.settled;
  for (const StoredPart& part : chosen) {
    digests += parse_hex(part.info.etag).value_or("");
    if (!part.file && !sealed) co_return invalid_part(part.info.number);
    const meta::InodeView& file = part.file ? *part.file : *sealed;
    sources.push_back({file.ref(), part.info.size, part.offset});
    in_place = in_place && !part.file && part.offset == bytes;
    bytes += part.info.size;
  }
  ObjectStore::NewObject object{.caller = caller, .bucket = upload.bucket, .key = upload.key};
  object.attributes.fields = std::move(folder.fields);
  object.attributes.etag =
      fmt::format("{}-{}", hex(as_bytes(hash_of(HashKind::md5, digests))), parts.size());
  object.condition = std::move(condition);
  Result<ObjectInfo> done = fail(Errc::failed, "not completed");
  if (in_place) {
    FF_CO_TRY(*sealed, co_await store_.metadata().stat(sealed->ref(), false));
  }
  if (in_place && sealed->inode.length == bytes) {
    done = co_await rename_to_object(object, folder, std::move(*sealed));
  } else {
    PartsSource source(store_.files(), caller, std::move(sources));
    done = co_await store_.put(std::move(object), source);
  }
  FF_CO_TRY(auto info, std::move(done));
  // The object is there; parts that are left cost space only, and abort() removes them.
  (void)co_await store_.metadata().remove_tree(std::move(caller), folder.beside.ref(),
                                               std::string(kUploadPrefix) + upload.id);
  co_return info;
}

Task<Result<void>> Uploads::abort(meta::Caller caller, UploadName upload) {
  FF_CO_TRY(const auto folder, co_await find(caller, upload));
  FF_CO_TRY(co_await store_.metadata().remove_tree(caller, folder.beside.ref(),
                                                   std::string(kUploadPrefix) + upload.id));
  co_return co_await store_.prune_folders(std::move(caller), std::move(upload.bucket),
                                          std::move(upload.key));
}

Task<Result<void>> Uploads::list_below(meta::Caller caller, meta::InodeView dir, std::string path,
                                       std::string prefix, std::vector<ListedUpload>& found) {
  client::DirLister lister(store_.metadata(), caller, dir.ref(), true);
  for (;;) {
    auto entry = co_await lister.next();
    if (!entry && !path.empty() &&
        (is_missing(entry.error()) || entry.error().code == Errc::refused)) {
      co_return Result<void>();
    }
    if (!entry) co_return std::move(entry).error();
    if (!*entry) co_return Result<void>();
    meta::MetaClient::DirEntry& one = **entry;
    if (one.kind != meta::InodeType::directory || !one.view) continue;
    if (one.name.starts_with(kUploadPrefix)) {
      const auto info = co_await store_.info_of(caller, *one.view, true);
      const std::string* const text =
          info ? http::find_field(info->attributes.fields, kUploadKey) : nullptr;
      const auto key = text != nullptr ? percent_decode(*text) : std::nullopt;
      if (!key || !key->starts_with(prefix)) continue;
      found.push_back(
          {*key, one.name.substr(kUploadPrefix.size()), one.view->inode.btime_ns / kSecond});
      continue;
    }
    std::string below = path + one.name + "/";
    const bool leads_there = below.starts_with(prefix) || prefix.starts_with(below);
    if (one.name.starts_with(kHiddenPrefix) || !leads_there) continue;
    FF_CO_TRY(co_await list_below(caller, std::move(*one.view), std::move(below), prefix, found));
  }
}

Task<Result<std::vector<ListedUpload>>> Uploads::list(meta::Caller caller, std::string bucket,
                                                      std::string prefix) {
  FF_CO_TRY(auto dir, co_await store_.find_bucket(caller, std::move(bucket)));
  std::vector<ListedUpload> found;
  FF_CO_TRY(co_await list_below(std::move(caller), std::move(dir), std::string(), std::move(prefix),
                                found));
  std::ranges::sort(found, {}, [](const ListedUpload& one) { return std::tie(one.key, one.id); });
  co_return found;
}

}  // namespace ff::s3
