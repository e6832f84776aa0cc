// `ff fs stat` and `layout`: the attributes of an inode, and its layout on chains.
#include <cerrno>

#include "cmd/fs/fs.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "storage/client/mode.h"
#include "storage/client/walk.h"

namespace ff::cmd {
namespace {

using meta::Inode;
using meta::Layout;

struct StatOptions {
  std::vector<std::string> paths;
  bool exact = false;
  bool follow = false;
};

struct Shown {
  Inode inode;
  std::vector<std::string> xattrs = {};
  std::vector<cluster::ChainId> chains = {};
};

Task<Result<Shown>> stat_path(FsClient& run, const StatOptions& options, std::string path) {
  FF_CO_TRY(auto seen,
            co_await client::resolve_path(run.metadata(), run.caller(), path, options.follow));
  if (options.exact && seen.inode.is(meta::InodeType::file)) {
    auto measured = co_await run.metadata().stat(seen.ref(), true);
    if (!measured) co_return client::with_path(path, std::move(measured).error());
    seen = std::move(*measured);
  }
  Shown shown{.inode = seen.inode};
  if (seen.inode.xattrs > 0) {
    auto listed = co_await run.metadata().list_xattrs(seen.ref());
    if (!listed) co_return client::with_path(path, std::move(listed).error());
    shown.xattrs = std::move(*listed);
  }
  if (shown.inode.is(meta::InodeType::file)) {
    auto chains = co_await run.files().chains_of(shown.inode.layout);
    if (!chains) co_return client::with_path(path, std::move(chains).error());
    shown.chains = std::move(*chains);
  }
  co_return shown;
}

Json layout_json(const Layout& layout) {
  return {{"table", layout.table},
          {"version", layout.version},
          {"chunk_size", layout.chunk_size},
          {"stripe", layout.stripe}};
}

std::string layout_text(const Layout& layout) {
  return fmt::format("chunks of {} on {} chains of table {}{}", format_size(layout.chunk_size),
                     layout.stripe, layout.table,
                     layout.version == 0 ? "" : fmt::format(".{}", layout.version));
}

Json shown_json(const std::string& path, const Shown& shown) {
  const Inode& inode = shown.inode;
  Json json = entry_json(path, inode);
  json["atime_ns"] = inode.atime_ns;
  json["ctime_ns"] = inode.ctime_ns;
  json["btime_ns"] = inode.btime_ns;
  json["xattrs"] = shown.xattrs;
  if (inode.is(meta::InodeType::directory)) json["parent"] = inode.parent;
  if (inode.device != 0) json["device"] = inode.device;
  if (inode.layout.table != 0) json["layout"] = layout_json(inode.layout);
  if (!inode.is(meta::InodeType::file)) return json;
  json["floor"] = inode.min_length;
  json["truncations"] = inode.truncate_seq;
  json["cutting"] = inode.truncating;
  json["chains"] = shown.chains;
  return json;
}

void print_accounts(Output& out, const client::AccountNames& accounts, const std::string& path,
                    const Shown& shown) {
  const Inode& inode = shown.inode;
  out.line(Color::bold, "{}", path);
  out.line("  inode    {}, {}", inode.id, kind_name(inode.kind));
  if (inode.is(meta::InodeType::symlink)) out.line("  target   {}", inode.target);
  out.line("  mode     {} ({:04o})", client::mode_text(kind_letter(inode.kind), inode.mode),
           inode.mode);
  out.line("  owner    {} ({}), group {} ({})", accounts.user(inode.uid), inode.uid,
           accounts.group(inode.gid), inode.gid);
  out.line("  links    {}", inode.links);
  out.line("  size     {} ({})", inode.length, format_size(inode.length));
  out.line("  modified {}", format_time(inode.mtime_ns));
  out.line("  changed  {}", format_time(inode.ctime_ns));
  out.line("  read     {}", format_time(inode.atime_ns));
  out.line("  made     {}", format_time(inode.btime_ns));
  if (inode.layout.table != 0) out.line("  layout   {}", layout_text(inode.layout));
  if (!shown.chains.empty()) out.line("  chains   {}", fmt::join(shown.chains, " "));
  if (inode.truncating) out.line("  cutting  to {} bytes, not done yet", inode.truncate_to);
  for (const std::string& name : shown.xattrs) out.line("  xattr    {}", name);
}

Result<void> run_stat(Session& session, const FsOptions& common, const StatOptions& options) {
  FF_TRY(auto paths, FsPaths::of(options.paths));
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {.chains = true}));
  const client::AccountNames accounts(run->disk());
  Failures failures(session.out);
  JsonList json(session.out, "entries");
  for (const std::string& path : paths.paths) {
    const auto shown = run->run(stat_path(*run, options, path));
    if (!shown) {
      if (!failures.add(shown.error())) break;
      continue;
    }
    json.add(shown_json(path, *shown));
    print_accounts(session.out, accounts, path, *shown);
  }
  json.finish();
  return failures.result();
}

struct LayoutOptions {
  std::string path;
  std::optional<uint64_t> chunk_size;
  std::optional<uint32_t> stripe;
  std::optional<uint64_t> table;
  bool inherit = false;

  bool sets() const { return chunk_size || stripe || table; }
};

// The layout that a directory without one inherits from its nearest ancestor.
Task<Result<Layout>> layout_in_force(FsClient& run, meta::InodeView seen) {
  while (seen.inode.layout.table == 0 && seen.inode.id != meta::kRoot) {
    FF_CO_TRY(auto above, co_await run.metadata().walk(run.caller(), seen.ref(), "..", true));
    if (!above.found) co_return errno_error(ENOENT, "..");
    seen = std::move(*above.found);
  }
  co_return seen.inode.layout;
}

struct LayoutShown {
  Inode inode;
  Layout in_force;
};

Task<Result<LayoutShown>> do_layout(FsClient& run, const LayoutOptions& options, std::string path) {
  FF_CO_TRY(auto seen, co_await client::resolve_path(run.metadata(), run.caller(), path, true));
  if (options.sets() || options.inherit) {
    Layout layout;
    if (options.sets()) {
      // Values that are not given keep the current layout, or the default of the cluster.
      layout = seen.inode.layout;
      layout.table = options.table.value_or(layout.table != 0 ? layout.table : meta::kDefaultTable);
      layout.chunk_size = options.chunk_size.value_or(layout.chunk_size);
      layout.stripe = options.stripe.value_or(layout.stripe);
    }
    auto set = co_await run.metadata().set_layout(run.caller(), seen.ref(), layout);
    if (!set) co_return client::with_path(path, std::move(set).error());
    seen.inode = std::move(set->inode);
  }
  LayoutShown shown{.inode = seen.inode, .in_force = seen.inode.layout};
  if (seen.inode.is(meta::InodeType::directory)) {
    auto layout = co_await layout_in_force(run, std::move(seen));
    if (!layout) co_return client::with_path(path, std::move(layout).error());
    shown.in_force = *layout;
  }
  shown.in_force = meta::with_defaults(shown.in_force);
  co_return shown;
}

Result<void> run_layout(Session& session, const FsOptions& common, const LayoutOptions& options) {
  if (options.inherit && options.sets()) {
    return fail(Errc::usage, "--inherit excludes --chunk-size, --stripe and --table");
  }
  if (options.table == 0) return fail(Errc::usage, "--table 0: tables are numbered from 1");
  if (options.stripe == 0 || options.chunk_size == 0) {
    return fail(Errc::usage, "--stripe and --chunk-size must be greater than 0");
  }
  FF_TRY(auto paths, FsPaths::of({options.path}));
  const std::string path = paths.paths.front();
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {}));
  FF_TRY(const auto shown, run->run(do_layout(*run, options, path)));
  const bool own = shown.inode.layout.table != 0;
  Json json = layout_json(shown.in_force);
  json["path"] = path;
  json["inherited"] = !own;
  session.out.data(std::move(json));
  session.out.line("{}{}", layout_text(shown.in_force), own ? "" : " (inherited)");
  return {};
}

}  // namespace

void declare_fs_show(Command& fs, const FsOptions& common) {
  Command& stat = fs.sub("stat", "Show the details of a file or directory");
  auto& options = stat.keep<StatOptions>();
  stat.about(
      "Prints the inode, type, mode, owner, length, times, layout, chains and the names of "
      "extended attributes. The length is what writers have reported so far; --exact asks storage, "
      "for a file that is being written or whose writer has crashed.");
  stat.argument("PATH", text(options.paths, "PATH"), "Files and directories").required();
  stat.flag("--exact", options.exact, "Ask storage for the length of files");
  stat.flag("-L,--dereference", options.follow,
            "Show the target of a symbolic link instead of the link");
  stat.example("ff fs stat /data/model.bin", "show one file");
  stat.blocking();
  stat.run([&](Session& session) { return run_stat(session, common, options); });

  Command& layout = fs.sub("layout", "Show or set the layout of new files");
  auto& wanted = layout.keep<LayoutOptions>();
  layout.about(
      "ff stores a file as chunks, which are distributed in turn over the chains of its stripe. A "
      "new file gets the layout of its directory, or of the nearest parent that has one, and keeps "
      "it. A changed layout of a directory applies to files and directories that are created in it "
      "from then on.");
  layout.argument("PATH", text(wanted.path, "PATH"),
                  "Directory; or a file, only to show its layout");
  layout.option("--chunk-size", size(wanted.chunk_size),
                "Chunk size: a power of two from 64KiB to 64MiB");
  layout.option("--stripe", number(wanted.stripe), "Number of chains per file, 1 to 256");
  layout.option("--table", number(wanted.table), "Chain table that provides the chains");
  layout.flag("--inherit", wanted.inherit,
              "Remove the layout of this directory, so that it inherits that of its parent");
  layout.example("ff fs layout /data", "show the layout of new files");
  layout.example("ff fs layout /data --chunk-size 4MiB --stripe 16", "large files, many disks");
  layout.blocking();
  layout.run([&](Session& session) { return run_layout(session, common, wanted); });
}

}  // namespace ff::cmd
