// `ff record show`, `ls`, `cat` and `verify`: read FFRecord files.
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "cmd/record/record.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "training/record/names.h"
#include "training/record/verify.h"

namespace ff::cmd {

namespace {

using Words = std::vector<std::string>;

struct CatOptions {
  std::string path;
  std::vector<uint64_t> samples;
};

std::vector<std::string*> pointers_to(Words& words) {
  std::vector<std::string*> pointers;
  for (std::string& word : words) pointers.push_back(&word);
  return pointers;
}

Result<void> run_record_show(Session& session, const RecordOptions& common, Words paths) {
  FF_TRY(auto run, RecordSession::open(session, common, pointers_to(paths)));
  FF_TRY(const auto reader, run->reader(paths, true));
  Json files = Json::array();
  auto table = session.out.table({{"SAMPLES", Align::right},
                                  {"SIZE", Align::right},
                                  {"SHORTEST", Align::right},
                                  {"LONGEST", Align::right},
                                  {"FILE"}});
  for (const auto& file : reader->files()) {
    const record::RecordIndex& index = file.index;
    uint64_t shortest = index.samples() == 0 ? 0 : index.bytes_of(0);
    uint64_t longest = 0;
    for (uint64_t i = 0; i < index.samples(); i++) {
      shortest = std::min(shortest, index.bytes_of(i));
      longest = std::max(longest, index.bytes_of(i));
    }
    table.row({format_count(index.samples()), format_size(index.offsets.back()),
               format_size(shortest), format_size(longest), file.open->path()});
    files.push_back({{"path", file.open->path()},
                     {"samples", index.samples()},
                     {"bytes", index.offsets.back()},
                     {"shortest", shortest},
                     {"longest", longest},
                     {"index_checked", index.checked}});
  }
  session.out.data({{"samples", reader->samples()}, {"files", std::move(files)}});
  return {};
}

Result<void> run_record_ls(Session& session, const RecordOptions& common, Words paths) {
  FF_TRY(auto run, RecordSession::open(session, common, pointers_to(paths)));
  FF_TRY(const auto reader, run->reader(paths, true));
  Json samples = Json::array();
  auto table = session.out.table({{"SAMPLE", Align::right},
                                  {"BYTES", Align::right},
                                  {"CRC32"},
                                  {"OFFSET", Align::right},
                                  {"FILE"},
                                  {"NAME"}});
  for (const auto& file : reader->files()) {
    FF_TRY(const auto names,
           record::read_names(run->disk(), file.open->path(), file.index.samples()));
    for (uint64_t i = 0; i < file.index.samples(); i++) {
      FF_TRY(session.stop.check());
      const std::string crc = fmt::format("{:08x}", file.index.checksums[i]);
      table.row({std::to_string(file.first + i), std::to_string(file.index.bytes_of(i)), crc,
                 std::to_string(file.index.offsets[i]), file.open->path(),
                 names ? printable((*names)[i]) : ""});
      if (!session.out.mode().json) continue;
      samples.push_back({{"sample", file.first + i},
                         {"bytes", file.index.bytes_of(i)},
                         {"crc32", crc},
                         {"offset", file.index.offsets[i]},
                         {"path", file.open->path()}});
      if (names) samples.back()["name"] = printable((*names)[i]);
    }
  }
  session.out.data({{"samples", std::move(samples)}});
  return {};
}

// Ends like other filters (SIGPIPE) if the reader of stdout closes it.
Result<void> print_bytes(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      ::signal(SIGPIPE, SIG_DFL);
      ::raise(SIGPIPE);
    } else if (errno != EINTR) {
      return errno_error(errno, "standard output");
    }
  }
  return {};
}

Result<void> run_record_cat(Session& session, const RecordOptions& common, CatOptions options) {
  if (session.out.mode().json) {
    return fail(Errc::usage, "--json and the bytes of samples exclude each other");
  }
  FF_TRY(auto run, RecordSession::open(session, common, {&options.path}));
  FF_TRY(const auto reader, run->reader({options.path}, true));
  for (const uint64_t sample : options.samples) {
    FF_TRY(session.stop.check());
    FF_TRY(const uint64_t size, reader->bytes_of(sample));
    std::vector<std::byte> bytes(size);
    std::byte* const place = bytes.data();
    FF_TRY(reader->read({&sample, 1}, {&place, 1}));
    FF_TRY(print_bytes(bytes));
  }
  return {};
}

Result<void> run_record_verify(Session& session, const RecordOptions& common, Words paths) {
  FF_TRY(auto run, RecordSession::open(session, common, pointers_to(paths)));
  FF_TRY(const auto reader, run->reader(paths, true));
  Json list = Json::array();
  auto bar = run->bar("verify");
  FF_TRY(record::verify(run->work(), *reader, [&](const record::Damage& damage) {
    session.out.line(Color::red, "{}", damage.cause);
    list.push_back({{"path", damage.path}, {"sample", damage.sample}, {"cause", damage.cause}});
  }));
  bar.reset();
  const size_t damaged = list.size();
  session.out.data({{"samples", reader->samples()},
                    {"bytes", run->work().progress.done.load()},
                    {"damaged", std::move(list)},
                    {"seconds", to_seconds(run->elapsed_ns())}});
  if (damaged == 0) {
    session.out.line("{} samples in {} files are as they were written",
                     format_count(reader->samples()), format_count(reader->files().size()));
    return {};
  }
  return Error{Errc::corrupt,
               fmt::format("{} of {} samples are damaged", format_count(damaged),
                           format_count(reader->samples())),
               "Copy the named files again from where they were made."};
}

void declare_lists(Command& record, RecordOptions& common) {
  Command& show = record.sub("show", "Print how many samples FFRecord files have");
  auto& shown = show.keep<Words>();
  show.about("Prints the number, total, least and greatest length of the samples of each file.");
  show.argument("PATH", file(shown, "PATH"), "FFRecord files or directories of them").required();
  show.example("ff record show train/", "all files of a directory");
  show.run([&](Session& session) { return run_record_show(session, common, shown); });

  Command& ls = record.sub("ls", "List the samples of FFRecord files");
  auto& listed = ls.keep<Words>();
  ls.about(
      "Prints number, length, CRC-32 and place of each sample, and its name if pack wrote names.");
  ls.argument("PATH", file(listed, "PATH"), "FFRecord files or directories of them").required();
  ls.example("ff record ls train/PART_00000.ffr", "the samples of one file");
  ls.run([&](Session& session) { return run_record_ls(session, common, listed); });
}

}  // namespace

void declare_record_read(Command& record, RecordOptions& common) {
  declare_lists(record, common);
  Command& cat = record.sub("cat", "Print samples");
  auto& options = cat.keep<CatOptions>();
  cat.about("Writes the bytes of samples to standard output, one after the other.");
  cat.argument("PATH", file(options.path, "PATH"), "FFRecord file, or directory of them");
  cat.argument("SAMPLE", number(options.samples, "SAMPLE"), "Numbers of samples").required();
  cat.example("ff record cat train/ 17 > sample.jpg", "one sample");
  cat.run([&](Session& session) { return run_record_cat(session, common, options); });

  Command& verify = record.sub("verify", "Compare all samples with their CRC-32");
  auto& verified = verify.keep<Words>();
  verify.about(
      "Reads all samples and names each one that does not match its CRC-32 or cannot be read. "
      "Exits with 3 if there is one.");
  verify.argument("PATH", file(verified, "PATH"), "FFRecord files or directories of them")
      .required();
  verify.example("ff record verify train/", "all files of a directory");
  verify.blocking();
  verify.run([&](Session& session) { return run_record_verify(session, common, verified); });
}

}  // namespace ff::cmd
