// part_places.cc: reservations, and the size that the parts of an upload have.
#include "storage/s3/part_places.h"

#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "storage/client/walk.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kDataName = "data";
constexpr std::string_view kPlacePrefix = "place-";
constexpr std::string_view kReplaced = "replaced";
constexpr uint32_t kReservationMode = 0600;

std::string place_name(uint32_t number) { return fmt::format("{}{:05}", kPlacePrefix, number); }

}  // namespace

Task<Result<void>> PartPlaces::create() {
  meta::Namespace::CreateOptions options;
  options.mode = store_.file_mode();
  FF_CO_TRY(co_await store_.metadata().create(caller_, dir_.ref(), std::string(kDataName),
                                              std::move(options)));
  co_return Result<void>();
}

// 0: nobody has set it.
Task<Result<uint64_t>> PartPlaces::part_size() {
  FF_CO_TRY(const auto text, co_await store_.metadata().get_xattr(caller_, dir_.ref(),
                                                                  std::string(kPlaceAttribute)));
  co_return text ? parse_u64(*text).value_or(0) : 0;
}

// 0: this part does not say it. The first part may be the only one; the last one of several is
// often smaller than the others, and seldom a number of whole chunks.
Task<Result<uint64_t>> PartPlaces::agree_on_size(uint32_t number, uint64_t size, uint64_t chunk) {
  FF_CO_TRY(const uint64_t agreed, co_await part_size());
  if (agreed > 0) co_return agreed;
  if (number > 1 && (size < kPartMin || size % chunk != 0)) co_return uint64_t{0};
  const auto set = co_await store_.metadata().set_xattr(
      caller_, dir_.ref(), std::string(kPlaceAttribute), std::optional(fmt::to_string(size)),
      meta::Namespace::XattrMode::create);
  if (!set && set.error().sys != EEXIST) co_return set.error();
  co_return co_await part_size();
}

Task<Result<PartPlaces::Reservation>> PartPlaces::place_of(uint32_t number, uint64_t size,
                                                           meta::InodeRef by) {
  auto data = co_await store_.metadata().lookup(caller_, dir_.ref(), std::string(kDataName));
  if (!data && data.error().code == Errc::not_found) co_return Reservation();
  if (!data) co_return std::move(data).error();
  const uint64_t chunk = data->inode.layout.chunk_size;
  FF_CO_TRY(const uint64_t part, co_await agree_on_size(number, size, chunk));
  if (size > part || (number > 1 && part % chunk != 0)) co_return Reservation();
  co_return Reservation{std::move(by), data->ref(), (number - 1) * part};
}

Task<Result<PartPlaces::Reservation>> PartPlaces::reserve(uint32_t number,
                                                          std::optional<uint64_t> size) {
  const std::string name = place_name(number);
  meta::Namespace::CreateOptions options;
  options.mode = kReservationMode;
  auto made = co_await store_.metadata().create(caller_, dir_.ref(), name, std::move(options));
  if (!made && made.error().code == Errc::exists) {
    auto there = co_await store_.metadata().lookup(caller_, dir_.ref(), name);
    Reservation found;
    if (there) found.by = there->ref();
    if (!there && there.error().code != Errc::not_found) co_return std::move(there).error();
    co_return found;
  }
  if (!made) co_return std::move(made).error();
  Result<Reservation> place = Reservation();
  if (size && *size > 0) place = co_await place_of(number, *size, made->ref());
  // Nobody writes to the place, so another request may reserve it.
  if (!place || !place->file) {
    (void)co_await store_.metadata().unlink(caller_, dir_.ref(), name, std::nullopt);
  }
  co_return place;
}

Task<Result<void>> PartPlaces::fulfil(const Reservation& reservation, const std::string& etag,
                                      uint64_t size) {
  std::string text = fmt::format("{} {}", etag, size);
  FF_CO_TRY(co_await store_.metadata().set_xattr(
      caller_, *reservation.by, std::string(kPlaceAttribute), std::optional(std::move(text)),
      meta::Namespace::XattrMode::any));
  co_return co_await store_.finish_change();
}

Task<Result<void>> PartPlaces::replace(const Reservation& reservation) {
  if (!reservation.by) co_return Result<void>();
  const auto set = co_await store_.metadata().set_xattr(
      caller_, *reservation.by, std::string(kPlaceAttribute), std::optional(std::string(kReplaced)),
      meta::Namespace::XattrMode::any);
  if (!set && !is_missing(set.error())) co_return set.error();
  co_return co_await store_.finish_change();
}

Task<Result<PartPlaces::Found>> PartPlaces::find() {
  Found found;
  FF_CO_TRY(found.part_size, co_await part_size());
  client::DirLister lister(store_.metadata(), caller_, dir_.ref(), true);
  for (;;) {
    FF_CO_TRY(auto entry, co_await lister.next());
    if (!entry) co_return found;
    if (!entry->name.starts_with(kPlacePrefix) || !entry->view) continue;
    const auto number = parse_u64(std::string_view(entry->name).substr(kPlacePrefix.size()));
    if (!number || *number == 0 || *number > kPartNumberMax) continue;
    FF_CO_TRY(const auto text, co_await store_.metadata().get_xattr(caller_, entry->view->ref(),
                                                                    std::string(kPlaceAttribute)));
    const auto words = split(text ? std::string_view(*text) : std::string_view(), ' ');
    const auto size = words.size() == 2 ? parse_u64(words[1]) : std::nullopt;
    if (size) {
      found.parts[static_cast<uint32_t>(*number)] = {std::string(words[0]), *size,
                                                     entry->view->inode.ctime_ns / kSecond,
                                                     (*number - 1) * found.part_size};
    } else {
      found.settled = false;
    }
  }
}

Task<Result<std::optional<meta::InodeView>>> PartPlaces::seal() {
  meta::MetaClient::Rename rename;
  rename.from_dir = rename.to_dir = dir_.ref();
  rename.from = kDataName;
  rename.to = kSealedName;
  const auto renamed = co_await store_.metadata().rename(caller_, std::move(rename));
  if (!renamed && renamed.error().code != Errc::not_found) co_return renamed.error();
  auto sealed = co_await store_.metadata().lookup(caller_, dir_.ref(), std::string(kSealedName));
  if (!sealed && sealed.error().code == Errc::not_found) {
    co_return std::optional<meta::InodeView>();
  }
  if (!sealed) co_return std::move(sealed).error();
  co_return std::optional(std::move(*sealed));
}

}  // namespace ff::s3
