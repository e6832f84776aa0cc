// A chunk store's disk with rows from anywhere: no crash, no hang; rows that are accepted are those
// that encoders write; whatever the store opens with can be listed, read, scrubbed and changed, and
// no byte is read that has no right CRC.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/sim/sim_disk.h"
#include "platform/sim/sim_world.h"
#include "storage/chunk/chunk_store.h"

namespace {

using namespace ff;
using namespace ff::chunk;

constexpr TargetId kTarget = 1;
const std::string kDir = "/disk";

// The input is a list of rows: u8 table, u8 number for the key, u8 length, then the body.
struct InputRow {
  unsigned table = 0;
  uint64_t number = 0;
  std::string_view body;
};

std::vector<InputRow> rows_of(std::string_view input) {
  std::vector<InputRow> rows;
  while (input.size() >= 3 && rows.size() < 16) {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(input[at]); };
    const size_t length = std::min<size_t>(byte(2), input.size() - 3);
    rows.push_back(
        {.table = byte(0) % 4u, .number = byte(1) % 4u, .body = input.substr(3, length)});
    input.remove_prefix(3 + length);
  }
  return rows;
}

std::string input_row(unsigned table, uint64_t number, const std::string& body) {
  std::string row;
  row += static_cast<char>(table);
  row += static_cast<char>(number);
  row += static_cast<char>(body.size());
  return row + body;
}

RowChange change_of(const InputRow& row) {
  const uint64_t n = row.number;
  std::string body(row.body);
  switch (row.table) {
    case 0: return {.key = key_of(RowKind::chunk, {kTarget, n, n}), .body = body};
    case 1: return {.key = key_of(RowKind::undo, {1 + n % 2, kTarget, n / 2, n / 2}), .body = body};
    case 2: return {.key = key_of(RowKind::result, {kTarget, n, n}), .body = body};
    default: return {.key = key_of(RowKind::target, {kTarget + n}), .body = body};
  }
}

// What is accepted is exactly what would be written.
bool check_codec(std::string_view body) {
  if (const auto result = decode_result(body)) FF_CHECK(encode(*result) == body);
  if (const auto target = decode_target(body)) FF_CHECK(encode(*target) == body);
  (void)parse_identity(body, "x");
  const auto record = decode_record(body);
  if (record) FF_CHECK(encode(*record) == body);
  return record.ok();
}

void use(Loop& loop, ChunkStore& store) {
  std::string text(100000, '\0');
  const ByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
  const auto chunks = store.list(kTarget, {}, 100);
  if (!chunks) return;
  for (const ChunkInfo& info : *chunks) {
    const ReadRequest request{.target = kTarget, .id = info.id};
    (void)run_task(loop, store.read(request, into));
    const Update update{.target = kTarget,
                        .id = info.id,
                        .version = info.state.committed.version + 1,
                        .data = as_bytes("text"),
                        .chunk_size = 70000};
    (void)run_task(loop, store.write(update));
    (void)run_task(loop, store.commit(kTarget, info.id, update.version, 1));
  }
  (void)run_task(loop, store.scrub(kTarget, {}, 100));
  (void)run_task(loop, store.close());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto rows = rows_of(input);
  bool worth_opening = false;
  for (const InputRow& row : rows) worth_opening |= check_codec(row.body);
  if (!worth_opening) return 0;
  sim::SimWorld world;
  SeededRng rng(1);
  sim::SimDisk disk(1, world.clock());
  const ChunkStoreOptions options{.disk = disk,
                                  .loop = world.loop(),
                                  .rng = rng,
                                  .dir = kDir,
                                  .cluster = "c",
                                  .boot_id = "b",
                                  .commit_on = CommitOn::loop};
  const DiskIdentity identity{.cluster = "c", .disk = "d"};
  FF_CHECK(ChunkStore::create(options, identity).ok());
  {
    auto opened = Metadata::open({.disk = disk, .dir = kDir, .disk_id = {}, .rng = rng});
    FF_CHECK(opened.ok() && (*opened)->start().ok());
    const std::unique_ptr<Metadata> metadata = std::move(*opened);
    const TargetRecord target;
    RowChanges changes;
    changes.push_back({.key = key_of(RowKind::target, {kTarget}), .body = encode(target)});
    for (const InputRow& row : rows) changes.push_back(change_of(row));
    FF_CHECK(metadata->apply(changes).ok());
  }
  auto store = run_task(world.loop(), ChunkStore::open(options));
  if (store) use(world.loop(), **store);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  ChunkRecord record;
  record.committed.state = {.version = 3, .length = 300000, .checksum = 77};
  record.committed.block = BlockLocation{.size_class = 3, .number = 5};
  record.committed.overlay_block = BlockLocation{.size_class = 2, .number = 6};
  record.committed.overlays = {{.unit = 1, .slot = 4}, {.unit = 9, .slot = 0}};
  ChunkRecord plain;
  plain.committed.state = {.version = 1, .length = 5000, .checksum = 7};
  plain.committed.block = BlockLocation{.size_class = 0, .number = 1};
  plain.pending.emplace().version.state = {
      .version = 2, .length = 0, .checksum = 0, .removed = true};
  ChannelResult result;
  result.state.version = 2;
  TargetRecord target;
  target.removing = true;
  return {input_row(0, 1, encode(record)) + input_row(0, 2, encode(plain)),
          input_row(0, 1, encode(plain)) + input_row(1, 2, encode(record)) + input_row(1, 3, "") +
              input_row(2, 1, encode(result)),
          input_row(0, 0, encode(plain)) + input_row(3, 0, encode(target)),
          input_row(0, 0, to_line({.cluster = "c", .disk = "d", .node = 1}))};
}
