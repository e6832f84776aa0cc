// `ff fs ls`, `find` and `du`: list entries page by page, in bounded memory.
#include <algorithm>
#include <cerrno>
#include <set>

#include "cmd/fs/fs.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "storage/client/mode.h"
#include "storage/client/walk.h"

namespace ff::cmd {
namespace {

using client::TreeWalker;
using meta::Inode;

struct LsOptions {
  std::vector<std::string> paths;
  bool details = false;
  bool all = false;
  bool recursive = false;
  bool directory = false;
  bool bytes = false;
};

std::string size_text(uint64_t bytes, bool plain) {
  return plain ? fmt::to_string(bytes) : format_size(bytes);
}

// Prints entries in one of the forms of ls.
class Lister {
 public:
  Lister(FsClient& run, const LsOptions& options)
      : out_(run.session().out), options_(options), accounts_(run.disk()), json_(out_, "entries") {
    if (!options.details) return;
    table_.emplace(out_, std::vector<Column>{{"MODE"},
                                             {"LINKS", Align::right},
                                             {"USER"},
                                             {"GROUP"},
                                             {"SIZE", Align::right},
                                             {"MODIFIED"},
                                             {"NAME"}});
  }

  // `inode`: null if the directory is readable but not searchable.
  void add(const std::string& path, const std::string& name, meta::InodeType kind,
           const Inode* inode) {
    if (out_.mode().json) {
      json_.add(inode != nullptr
                    ? entry_json(path, *inode)
                    : Json{{"path", path}, {"type", kind_name(kind)}, {"inode", nullptr}});
    } else if (table_) {
      row(name, kind, inode);
    } else {
      out_.line(color_of(kind), "{}", name);
    }
  }
  void end() {
    table_.reset();
    json_.finish();
  }

 private:
  static Color color_of(meta::InodeType kind) {
    return kind == meta::InodeType::directory ? Color::bold : Color::none;
  }
  void row(const std::string& name, meta::InodeType kind, const Inode* inode) {
    const Cell shown(inode != nullptr && inode->is(meta::InodeType::symlink)
                         ? fmt::format("{} -> {}", name, inode->target)
                         : name,
                     color_of(kind));
    if (inode == nullptr) {
      table_->row({std::string(1, kind_letter(kind)) + "?", "?", "?", "?", "?", "?", shown});
      return;
    }
    table_->row({client::mode_text(kind_letter(kind), inode->mode), fmt::to_string(inode->links),
                 accounts_.user(inode->uid), accounts_.group(inode->gid),
                 size_text(inode->length, options_.bytes), format_time(inode->mtime_ns), shown});
  }

  Output& out_;
  const LsOptions& options_;
  const client::AccountNames accounts_;
  std::optional<Table> table_;
  JsonList json_;
};

bool hidden(std::string_view path) { return client::last_component(path).starts_with('.'); }

Task<Result<void>> list_dir(FsClient& run, const LsOptions& options, std::string path,
                            meta::InodeView dir, Lister& lister) {
  const bool inodes = options.details || run.session().out.mode().json;
  client::DirLister listing(run.metadata(), run.caller(), dir.ref(), inodes);
  for (;;) {
    auto next = co_await listing.next();
    if (!next) co_return client::with_path(path, std::move(next).error());
    if (!*next) co_return Result<void>();
    const auto& entry = **next;
    if (!options.all && entry.name.starts_with('.')) continue;
    lister.add(client::join_path(path, entry.name), entry.name, entry.kind,
               entry.view ? &entry.view->inode : nullptr);
  }
}

Task<Result<void>> list_tree(FsClient& run, const LsOptions& options, std::string path,
                             meta::InodeView dir, Lister& lister, Failures& failures) {
  TreeWalker walk(run.metadata(), run.caller(), path, std::move(dir));
  std::optional<size_t> hides;  // depth of a hidden directory; deeper entries are hidden
  for (;;) {
    FF_CO_TRY(auto next, co_await walk.next());
    if (!next) co_return Result<void>();
    if (next->kind == TreeWalker::Step::Kind::failed) {
      if (!failures.add(std::move(*next->error))) co_return Result<void>();
      continue;
    }
    if (next->kind == TreeWalker::Step::Kind::directory_end) continue;
    if (hides && next->depth > *hides) continue;
    hides.reset();
    if (!options.all && hidden(next->path)) {
      hides = next->depth;
      continue;
    }
    lister.add(next->path, next->path, next->inode_kind, next->view ? &next->view->inode : nullptr);
  }
}

Task<Result<void>> list_path(FsClient& run, const LsOptions& options, std::string path, bool titled,
                             Lister& lister, Failures& failures) {
  FF_CO_TRY(auto seen,
            co_await client::resolve_path(run.metadata(), run.caller(), path, !options.directory));
  if (options.directory || !seen.inode.is(meta::InodeType::directory)) {
    lister.add(path, path, seen.inode.kind, &seen.inode);
    co_return Result<void>();
  }
  if (options.recursive) {
    co_return co_await list_tree(run, options, path, std::move(seen), lister, failures);
  }
  if (titled && !options.details) run.session().out.line("{}:", path);
  co_return co_await list_dir(run, options, path, std::move(seen), lister);
}

Task<Result<void>> list_paths(FsClient& run, const LsOptions& options,
                              std::vector<std::string> paths, Lister& lister, Failures& failures) {
  for (const std::string& path : paths) {
    auto listed = co_await list_path(run, options, path, paths.size() > 1, lister, failures);
    if (!listed && !failures.add(std::move(listed).error())) break;
  }
  co_return Result<void>();
}

Result<void> run_ls(Session& session, const FsOptions& common, const LsOptions& options) {
  FF_TRY(auto paths,
         FsPaths::of(options.paths.empty() ? std::vector<std::string>{"/"} : options.paths));
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {}));
  Failures failures(session.out);
  Lister lister(*run, options);
  const auto done = run->run(list_paths(*run, options, std::move(paths.paths), lister, failures));
  lister.end();
  FF_TRY(Result<void>(done));
  return failures.result();
}

struct FindOptions {
  std::vector<std::string> paths;
  std::optional<std::string> name;
  std::optional<std::string> type;
  std::optional<std::string> size;
  std::optional<int64_t> newer_ns;
  std::optional<int64_t> older_ns;
  bool null = false;
};

// The conditions of find.
struct FindConditions {
  const FindOptions& options;
  std::optional<uint64_t> above = {};
  std::optional<uint64_t> below = {};
  int64_t now_ns = 0;

  static Result<FindConditions> of(const FindOptions& options, int64_t now_ns) {
    FindConditions wanted{.options = options, .now_ns = now_ns};
    if (!options.size) return wanted;
    const std::string_view text = *options.size;
    const bool signed_size = text.starts_with('+') || text.starts_with('-');
    FF_TRY(const uint64_t bytes, parse_size(signed_size ? text.substr(1) : text));
    if (!text.starts_with('-')) wanted.above = bytes;
    if (!text.starts_with('+')) wanted.below = bytes;
    return wanted;
  }
  bool fits(const std::string& path, meta::InodeType kind, const Inode* inode) const {
    if (options.name && !glob_match(*options.name, client::last_component(path))) return false;
    if (options.type) {
      const char letter = kind == meta::InodeType::file ? 'f' : kind_letter(kind);
      if (options.type->front() != letter) return false;
    }
    if (!above && !below && !options.newer_ns && !options.older_ns) return true;
    if (inode == nullptr) return false;
    if ((above || below) && !inode->is(meta::InodeType::file)) return false;
    // Like find(1): +N is more than N, -N less than N, N exactly N.
    const bool exact = above && below;
    if (above && (exact ? inode->length < *above : inode->length <= *above)) return false;
    if (below && (exact ? inode->length > *below : inode->length >= *below)) return false;
    if (options.newer_ns && inode->mtime_ns < now_ns - *options.newer_ns) return false;
    return !options.older_ns || inode->mtime_ns < now_ns - *options.older_ns;
  }
};

class Finder {
 public:
  Finder(Output& out, const FindConditions& wanted)
      : out_(out), wanted_(wanted), json_(out, "entries") {}
  void visit(const std::string& path, meta::InodeType kind, const Inode* inode) {
    if (!wanted_.fits(path, kind, inode)) return;
    if (out_.mode().json) {
      json_.add(inode != nullptr ? entry_json(path, *inode)
                                 : Json{{"path", path}, {"type", kind_name(kind)}});
    } else if (wanted_.options.null) {
      out_.raw_text(path + '\0');  // for programs: unescaped
    } else {
      out_.line("{}", path);
    }
  }
  void end() { json_.finish(); }

 private:
  Output& out_;
  const FindConditions& wanted_;
  JsonList json_;
};

// Visits each entry of the trees, including `top`.
using Visit = std::function<void(const TreeWalker::Step&)>;

Task<Result<void>> visit_tree(FsClient& run, std::string path, const Visit& visit,
                              Failures& failures) {
  FF_CO_TRY(auto seen, co_await client::resolve_path(run.metadata(), run.caller(), path, false));
  visit({.path = path, .view = seen, .inode_kind = seen.inode.kind});
  if (!seen.inode.is(meta::InodeType::directory)) co_return Result<void>();
  TreeWalker walk(run.metadata(), run.caller(), path, std::move(seen));
  for (;;) {
    FF_CO_TRY(auto next, co_await walk.next());
    if (!next) co_return Result<void>();
    if (next->kind == TreeWalker::Step::Kind::failed) {
      if (!failures.add(*next->error)) co_return Result<void>();
    }
    visit(*next);
  }
}

Task<Result<void>> visit_trees(FsClient& run, std::vector<std::string> paths, const Visit& visit,
                               Failures& failures) {
  for (const std::string& path : paths) {
    auto visited = co_await visit_tree(run, path, visit, failures);
    if (!visited && !failures.add(std::move(visited).error())) break;
  }
  co_return Result<void>();
}

Result<void> run_find(Session& session, const FsOptions& common, const FindOptions& options) {
  FF_TRY(auto paths,
         FsPaths::of(options.paths.empty() ? std::vector<std::string>{"/"} : options.paths));
  FF_TRY(const FindConditions wanted, FindConditions::of(options, session.stop.clock().wall_ns()));
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {}));
  Failures failures(session.out);
  Finder finder(session.out, wanted);
  const Visit visit = [&finder](const TreeWalker::Step& step) {
    if (step.kind != TreeWalker::Step::Kind::entry) return;
    finder.visit(step.path, step.inode_kind, step.view ? &step.view->inode : nullptr);
  };
  const auto done = run->run(visit_trees(*run, std::move(paths.paths), visit, failures));
  finder.end();
  FF_TRY(Result<void>(done));
  return failures.result();
}

struct DuOptions {
  std::vector<std::string> paths;
  bool summary = false;
  bool bytes = false;
};

// Sums the sizes of directories, innermost first.
class Adder {
 public:
  Adder(Output& out, const DuOptions& options)
      : out_(out),
        options_(options),
        table_(out, {{"SIZE", Align::right}, {"FILES", Align::right}, {"PATH"}}),
        json_(out, "directories") {}
  void add(const TreeWalker::Step& step) {
    const bool dir = step.inode_kind == meta::InodeType::directory;
    if (step.kind != TreeWalker::Step::Kind::entry) {
      const Sum sum = sums_[step.depth];
      sums_.resize(step.depth);
      if (step.depth > 0) sums_.back().add(sum);
      if (step.depth == 0 || !options_.summary) show(step.path, sum);
      return;
    }
    if (dir && step.view) sums_.resize(step.depth + 1);
    if (dir) return;
    Sum one{.bytes = 0, .files = 1};
    if (step.view && counted(step.view->inode)) one.bytes = step.view->inode.length;
    if (step.depth == 0) return show(step.path, one);
    sums_.back().add(one);
  }
  void end() { json_.finish(); }

 private:
  struct Sum {
    uint64_t bytes = 0;
    uint64_t files = 0;
    void add(const Sum& other) {
      bytes += other.bytes;
      files += other.files;
    }
  };
  // Count a file with several hard links once.
  bool counted(const Inode& inode) {
    if (!inode.is(meta::InodeType::file)) return false;
    return inode.links < 2 || linked_.insert(inode.id).second;
  }
  void show(const std::string& path, const Sum& sum) {
    table_.row({size_text(sum.bytes, options_.bytes), fmt::to_string(sum.files), path});
    json_.add({{"path", path}, {"bytes", sum.bytes}, {"files", sum.files}});
  }

  Output& out_;
  const DuOptions& options_;
  Table table_;
  JsonList json_;
  std::vector<Sum> sums_;  // of the directories from the top to the current one
  std::set<meta::InodeId> linked_;
};

Result<void> run_du(Session& session, const FsOptions& common, const DuOptions& options) {
  FF_TRY(auto paths,
         FsPaths::of(options.paths.empty() ? std::vector<std::string>{"/"} : options.paths));
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {}));
  Failures failures(session.out);
  {
    Adder adder(session.out, options);
    const Visit visit = [&adder](const TreeWalker::Step& step) { adder.add(step); };
    const auto done = run->run(visit_trees(*run, std::move(paths.paths), visit, failures));
    adder.end();
    FF_TRY(Result<void>(done));
  }
  return failures.result();
}

void declare_find(Command& fs, const FsOptions& common) {
  Command& find = fs.sub("find", "Find files in a tree");
  auto& options = find.keep<FindOptions>();
  find.about(
      "Prints each PATH (default: the root) and everything below it that matches all conditions. A "
      "directory precedes its content; symbolic links are not followed.");
  find.argument("PATH", text(options.paths, "PATH"), "Where to search").optional();
  find.option("--name", text(options.name, "GLOB"), "Match the name with this pattern: * ? [a-z]");
  find.option("--type", choice(options.type, {"f", "d", "l", "p", "s", "c", "b"}),
              "Type: file, directory, symbolic link, pipe, socket, character or block device");
  find.option("--size", text(options.size, "[+-]SIZE"),
              "Files larger than (+1GiB), smaller than (-1GiB) or of exactly this size");
  find.option("--newer", duration(options.newer_ns, "AGE"), "Modified within this time");
  find.option("--older", duration(options.older_ns, "AGE"), "Not modified within this time");
  find.flag("-0,--null", options.null,
            "Print unescaped names, each followed by a NUL byte, for xargs -0");
  find.example("ff fs find /data --name '*.bin' --size +1GiB", "large files");
  find.example("ff fs find /tmp --type f --older 7d", "files that nobody has modified for a week");
  find.blocking();
  find.run([&](Session& session) { return run_find(session, common, options); });
}

void declare_du(Command& fs, const FsOptions& common) {
  Command& du = fs.sub("du", "Show the space that directories use");
  auto& options = du.keep<DuOptions>();
  du.about(
      "Prints, for PATH and each directory below it, the total length of the files and the number "
      "of entries that are not directories. A file with several names counts once. The total "
      "excludes replicas.");
  du.argument("PATH", text(options.paths, "PATH"), "Directories (default: the root)").optional();
  du.flag("-s,--summary", options.summary, "Print only the total of each PATH");
  du.flag("-b,--bytes", options.bytes, "Print sizes in bytes");
  du.example("ff fs du -s /data /home", "the totals of two directories");
  du.blocking();
  du.run([&](Session& session) { return run_du(session, common, options); });
}

}  // namespace

void declare_fs_list(Command& fs, const FsOptions& common) {
  Command& ls = fs.sub("ls", "List directories");
  auto& options = ls.keep<LsOptions>();
  ls.about(
      "Lists the content of each PATH (default: the root), one name per line, sorted by bytes. "
      "Without -a it omits names that begin with '.'.");
  ls.argument("PATH", text(options.paths, "PATH"), "Directories or files").optional();
  ls.flag("-l,--long", options.details, "Also print mode, links, owner, size and time");
  ls.flag("-a,--all", options.all, "Include names that begin with '.'");
  ls.flag("-R,--recursive", options.recursive, "List everything below, with paths");
  ls.flag("-d,--directory", options.directory, "List directories themselves, not their content");
  ls.flag("-b,--bytes", options.bytes, "With -l print sizes in bytes");
  ls.example("ff fs ls -l /data", "with details");
  ls.example("ff fs ls --json ff://node1:4400/data", "for programs");
  ls.blocking();
  ls.run([&](Session& session) { return run_ls(session, common, options); });
  declare_find(fs, common);
  declare_du(fs, common);
}

}  // namespace ff::cmd
