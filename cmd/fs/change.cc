// `ff fs mkdir`, `rm`, `mv`, `ln`, `chmod`, `chown` and `touch`: changes of names and attributes.
#include <cerrno>

#include "cmd/fs/fs.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "storage/client/mode.h"
#include "storage/client/walk.h"

namespace ff::cmd {
namespace {

using client::TreeWalker;
using meta::Namespace;
using Words = std::vector<std::string>;

// Runs an operation on each path in turn; counts the successes.
using Change = std::function<Task<Result<void>>(FsClient&, std::string)>;

Task<Result<void>> change_paths(FsClient& run, const Words& paths, const Change& change,
                                Failures& failures, uint64_t& done) {
  for (const std::string& path : paths) {
    auto changed = co_await change(run, path);
    if (changed) done++;
    if (!changed && !failures.add(std::move(changed).error())) break;
  }
  co_return Result<void>();
}

Result<void> change_all(Session& session, const FsOptions& common, const Words& words,
                        const Change& change) {
  FF_TRY(const auto paths, FsPaths::of(words));
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {}));
  Failures failures(session.out);
  uint64_t done = 0;
  FF_TRY(run->run(change_paths(*run, paths.paths, change, failures, done)));
  session.out.data({{"done", done}, {"failed", failures.count()}});
  return failures.result();
}

struct MkdirOptions {
  Words paths;
  bool parents = false;
  std::optional<std::string> mode;
};

Task<Result<void>> make_dir(FsClient& run, std::string path, uint32_t mode) {
  auto found = co_await client::resolve_name(run.metadata(), run.caller(), path);
  if (!found && found.error().code == Errc::usage && found.error().sys == 0) {
    co_return errno_error(EEXIST, printable(path));
  }
  FF_CO_TRY(const client::ResolvedName place, std::move(found));
  Namespace::CreateOptions make{.kind = meta::InodeType::directory, .mode = mode};
  auto made =
      co_await run.metadata().create(run.caller(), place.dir.ref(), place.name, std::move(make));
  if (!made) co_return client::with_path(path, std::move(made).error());
  co_return Result<void>();
}

// Creates missing parents too, with write permission for their owner (mkdir -p).
Task<Result<void>> make_dirs(FsClient& run, std::string path, uint32_t mode,
                             uint32_t parents_mode) {
  size_t at = 0;
  for (;;) {
    at = path.find_first_not_of('/', at);
    if (at == path.npos) co_return Result<void>();
    at = std::min(path.find('/', at), path.size());
    const bool last = path.find_first_not_of('/', at) == path.npos;
    const std::string part = path.substr(0, at);
    auto found = co_await client::resolve_path(run.metadata(), run.caller(), part, true);
    if (found && found->inode.is(meta::InodeType::directory)) continue;
    if (found) co_return errno_error(last ? EEXIST : ENOTDIR, printable(part));
    if (found.error().sys != ENOENT) co_return std::move(found).error();
    auto making = make_dir(run, part, last ? mode : parents_mode);
    auto made = co_await std::move(making);
    // Another process has created it: the next step checks that it is a directory.
    if (!made && (made.error().sys != EEXIST || last)) co_return made;
  }
}

Result<void> run_mkdir(Session& session, const FsOptions& common, const MkdirOptions& options) {
  std::optional<client::ModeChange> change;
  if (options.mode) {
    FF_TRY(change, client::ModeChange::parse(*options.mode, 0));
  }
  const Change make = [&](FsClient& run, std::string path) {
    const uint32_t usual = 0777 & ~run.umask();
    const uint32_t mode = change ? change->apply(usual, true) : usual;
    return options.parents ? make_dirs(run, std::move(path), mode, usual | 0300)
                           : make_dir(run, std::move(path), mode);
  };
  return change_all(session, common, options.paths, make);
}

struct RmOptions {
  Words paths;
  bool recursive = false;
  bool force = false;
};

Task<Result<void>> remove(FsClient& run, const RmOptions& options, std::string path) {
  auto found = co_await client::resolve_name(run.metadata(), run.caller(), path);
  if (!found && options.force && found.error().sys == ENOENT) co_return Result<void>();
  FF_CO_TRY(const client::ResolvedName place, std::move(found));
  if (!place.found) {
    if (options.force) co_return Result<void>();
    co_return errno_error(ENOENT, printable(path));
  }
  const bool dir = place.found->inode.is(meta::InodeType::directory);
  if (dir && !options.recursive) {
    Error error = errno_error(EISDIR, printable(path));
    error.hint = "-r removes directories with their content.";
    co_return error;
  }
  auto removing =
      dir ? run.metadata().remove_tree(run.caller(), place.dir.ref(), place.name)
          : run.metadata().unlink(run.caller(), place.dir.ref(), place.name, std::nullopt);
  auto removed = co_await std::move(removing);
  if (removed || (options.force && removed.error().sys == ENOENT)) co_return Result<void>();
  co_return client::with_path(path, std::move(removed).error());
}

struct MvOptions {
  Words paths;  // the last is the destination
  bool no_replace = false;
  bool exchange = false;
};

// The new name of `from`: inside `to` if that is a directory, otherwise `to` itself.
Task<Result<client::ResolvedName>> target_of(FsClient& run, std::string from, std::string to,
                                             bool into) {
  auto there = co_await client::resolve_path(run.metadata(), run.caller(), to, true);
  const bool dir = there && there->inode.is(meta::InodeType::directory);
  if (!dir && into) co_return there ? errno_error(ENOTDIR, printable(to)) : there.error();
  if (dir) to = client::join_path(to, client::last_component(from));
  co_return co_await client::resolve_name(run.metadata(), run.caller(), to);
}

Task<Result<void>> move(FsClient& run, const MvOptions& options, std::string from, std::string to,
                        bool into) {
  FF_CO_TRY(client::ResolvedName source,
            co_await client::resolve_name(run.metadata(), run.caller(), from));
  if (!source.found) co_return errno_error(ENOENT, printable(from));
  auto placing = options.exchange ? client::resolve_name(run.metadata(), run.caller(), to)
                                  : target_of(run, from, to, into);
  FF_CO_TRY(client::ResolvedName target, co_await std::move(placing));
  meta::MetaClient::Rename rename{.from_dir = source.dir.ref(),
                                  .from = source.name,
                                  .to_dir = target.dir.ref(),
                                  .to = target.name,
                                  .no_replace = options.no_replace,
                                  .exchange = options.exchange};
  auto renamed = co_await run.metadata().rename(run.caller(), std::move(rename));
  if (renamed) co_return Result<void>();
  Error error = client::with_path(fmt::format("{} to {}", from, to), std::move(renamed).error());
  if (error.sys == EINVAL) error.hint = std::string("A directory cannot be moved below itself.");
  co_return error;
}

Result<void> run_mv(Session& session, const FsOptions& common, const MvOptions& options) {
  if (options.paths.size() < 2) return fail(Errc::usage, "mv needs a source and a destination");
  if (options.exchange && (options.paths.size() > 2 || options.no_replace)) {
    return fail(Errc::usage, "--exchange takes two paths, and excludes --no-replace");
  }
  const std::string to = options.paths.back();
  FF_TRY(const auto target, client::parse_cluster_path(to));
  const Words sources(options.paths.begin(), options.paths.end() - 1);
  FF_TRY(auto all, FsPaths::of(options.paths));
  FF_TRY(const auto run, FsClient::open(session, common, all.servers, {}));
  Failures failures(session.out);
  uint64_t done = 0;
  all.paths.pop_back();
  const Change change = [&](FsClient& with, std::string from) {
    return move(with, options, std::move(from), target.path, sources.size() > 1);
  };
  FF_TRY(run->run(change_paths(*run, all.paths, change, failures, done)));
  session.out.data({{"done", done}, {"failed", failures.count()}});
  return failures.result();
}

struct LnOptions {
  std::string target;
  std::string name;
  bool symbolic = false;
};

Task<Result<void>> link(FsClient& run, const LnOptions& options, std::string target,
                        std::string name) {
  FF_CO_TRY(const client::ResolvedName place, co_await target_of(run, target, name, false));
  if (options.symbolic) {
    Namespace::CreateOptions make{.kind = meta::InodeType::symlink, .mode = 0777, .target = target};
    auto made =
        co_await run.metadata().create(run.caller(), place.dir.ref(), place.name, std::move(make));
    if (!made) co_return client::with_path(name, std::move(made).error());
    co_return Result<void>();
  }
  FF_CO_TRY(const auto seen,
            co_await client::resolve_path(run.metadata(), run.caller(), target, false));
  auto linked = co_await run.metadata().link(run.caller(), seen.ref(), place.dir.ref(), place.name);
  if (linked) co_return Result<void>();
  const bool of_dir = linked.error().sys == EPERM && seen.inode.is(meta::InodeType::directory);
  Error error = client::with_path(of_dir ? target : name, std::move(linked).error());
  if (of_dir) error.hint = std::string("Directories have one name; -s makes a symbolic link.");
  co_return error;
}

Result<void> run_ln(Session& session, const FsOptions& common, const LnOptions& options) {
  FsPaths paths;
  FF_TRY(auto name, client::parse_cluster_path(options.name));
  FF_TRY(paths.add(std::move(name)));
  std::string target = options.target;
  // The target of a symbolic link is any text; that of a hard link is a path.
  if (!options.symbolic || client::is_url(target)) {
    FF_TRY(auto url, client::parse_cluster_path(target));
    target = url.path;
    FF_TRY(paths.add(std::move(url)));
  }
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {}));
  return run->run(link(*run, options, target, paths.paths.front()));
}

struct AttributeOptions {
  std::string to;
  Words paths;
  bool recursive = false;
};
// The new attributes of an inode.
using Attributes = std::function<Namespace::Attributes(const meta::Inode&)>;

Task<Result<void>> set_one(FsClient& run, const std::string& path, const meta::InodeView& seen,
                           const Attributes& attributes) {
  auto set =
      co_await run.metadata().set_attributes(run.caller(), seen.ref(), attributes(seen.inode));
  if (!set) co_return client::with_path(path, std::move(set).error());
  co_return Result<void>();
}

// Change a directory after its content: its new mode may deny access to the caller.
Task<Result<void>> set_tree(FsClient& run, std::string path, meta::InodeView top,
                            const Attributes& attributes, Failures& failures) {
  TreeWalker walk(run.metadata(), run.caller(), path, std::move(top));
  for (;;) {
    FF_CO_TRY(auto next, co_await walk.next());
    if (!next) co_return Result<void>();
    const bool dir = next->inode_kind == meta::InodeType::directory;
    if (next->kind == TreeWalker::Step::Kind::failed && !failures.add(std::move(*next->error))) {
      co_return Result<void>();
    }
    // Like chmod -R and chown -R: symbolic links are not changed.
    if (next->kind == TreeWalker::Step::Kind::entry && (dir || !next->view)) continue;
    if (next->inode_kind == meta::InodeType::symlink) continue;
    auto set = co_await set_one(run, next->path, *next->view, attributes);
    if (!set && !failures.add(std::move(set).error())) co_return Result<void>();
  }
}

Task<Result<void>> set_path(FsClient& run, bool recursive, std::string path,
                            const Attributes& attributes, Failures& failures) {
  FF_CO_TRY(auto seen, co_await client::resolve_path(run.metadata(), run.caller(), path, true));
  if (recursive && seen.inode.is(meta::InodeType::directory)) {
    co_return co_await set_tree(run, path, std::move(seen), attributes, failures);
  }
  co_return co_await set_one(run, path, seen, attributes);
}

Result<void> set_all(Session& session, const FsOptions& common, const AttributeOptions& options,
                     const Attributes& attributes) {
  FF_TRY(const auto paths, FsPaths::of(options.paths));
  FF_TRY(const auto run, FsClient::open(session, common, paths.servers, {}));
  Failures failures(session.out);
  uint64_t done = 0;
  const Change change = [&](FsClient& with, std::string path) {
    return set_path(with, options.recursive, std::move(path), attributes, failures);
  };
  FF_TRY(run->run(change_paths(*run, paths.paths, change, failures, done)));
  session.out.data({{"done", done}, {"failed", failures.count()}});
  return failures.result();
}

struct TouchOptions {
  Words paths;
  bool no_create = false;
};

Task<Result<void>> touch(FsClient& run, const TouchOptions& options, std::string path) {
  auto found = co_await client::resolve_path(run.metadata(), run.caller(), path, true);
  if (!found && found.error().sys == ENOENT) {
    if (options.no_create) co_return Result<void>();
    FF_CO_TRY(const client::ResolvedName place,
              co_await client::resolve_name(run.metadata(), run.caller(), path));
    Namespace::CreateOptions make{.mode = 0666 & ~run.umask(), .exclusive = false};
    auto made =
        co_await run.metadata().create(run.caller(), place.dir.ref(), place.name, std::move(make));
    if (!made) co_return client::with_path(path, std::move(made).error());
    co_return Result<void>();
  }
  FF_CO_TRY(const meta::InodeView seen, std::move(found));
  const Attributes now = [](const meta::Inode&) {
    return Namespace::Attributes{.times_now = true};
  };
  co_return co_await set_one(run, path, seen, now);
}

void declare_names(Command& fs, const FsOptions& common) {
  Command& mkdir = fs.sub("mkdir", "Create directories");
  auto& making = mkdir.keep<MkdirOptions>();
  mkdir.about("Creates each PATH. The mode is 777 minus the umask, or the value of --mode.");
  mkdir.argument("PATH", text(making.paths, "PATH"), "Directories to create").required();
  mkdir.flag("-p,--parents", making.parents,
             "Also create parent directories; existing ones are no error");
  mkdir.option("-m,--mode", text(making.mode, "MODE"), "Mode, in the notation of chmod");
  mkdir.example("ff fs mkdir -p /data/run7/logs", "with all parent directories");
  mkdir.blocking();
  mkdir.run([&](Session& session) { return run_mkdir(session, common, making); });

  Command& rm = fs.sub("rm", "Remove files and directories");
  auto& removing = rm.keep<RmOptions>();
  rm.about(
      "Removes each PATH. With -r a directory disappears at once, with all its content; the "
      "servers free the content in the background, and no other name keeps it. If you may not "
      "empty a directory in the tree, the servers refuse before they remove anything.");
  rm.argument("PATH", text(removing.paths, "PATH"), "Files and directories to remove").required();
  rm.flag("-r,--recursive", removing.recursive, "Also remove directories, with their content");
  rm.flag("-f,--force", removing.force, "Ignore paths that do not exist");
  rm.example("ff fs rm -r /data/old", "remove a whole tree");
  rm.blocking();
  rm.run([&](Session& session) {
    const Change change = [&](FsClient& run, std::string path) {
      return remove(run, removing, std::move(path));
    };
    return change_all(session, common, removing.paths, change);
  });

  Command& mv = fs.sub("mv", "Move or rename within a cluster");
  auto& moving = mv.keep<MvOptions>();
  mv.about(
      "Renames FROM to TO atomically: others see either the old or the new name, and an existing "
      "file TO is replaced. If TO is a directory, FROM moves into it; several FROM require a "
      "directory.");
  mv.argument("PATH", text(moving.paths, "FROM... TO"), "Source paths and the destination")
      .required();
  mv.flag("-n,--no-replace", moving.no_replace, "Fail if TO exists");
  mv.flag("--exchange", moving.exchange, "Exchange the two paths, which must both exist");
  mv.example("ff fs mv /data/new /data/current", "rename a directory");
  mv.blocking();
  mv.run([&](Session& session) { return run_mv(session, common, moving); });

  Command& ln = fs.sub("ln", "Make links");
  auto& linking = ln.keep<LnOptions>();
  ln.about(
      "Creates a hard link NAME to the file TARGET. With -s it creates a symbolic link with the "
      "text TARGET, whether TARGET exists or not. If NAME is a directory, the link gets the name "
      "of TARGET in it.");
  ln.argument("TARGET", text(linking.target, "TARGET"), "Target of the link");
  ln.argument("NAME", text(linking.name, "NAME"), "Name of the link");
  ln.flag("-s,--symbolic", linking.symbolic, "Create a symbolic link");
  ln.example("ff fs ln -s run7 /data/latest", "relative to the directory of the link");
  ln.blocking();
  ln.run([&](Session& session) { return run_ln(session, common, linking); });
}

void declare_attributes(Command& fs, const FsOptions& common) {
  Command& chmod = fs.sub("chmod", "Change modes");
  auto& mode = chmod.keep<AttributeOptions>();
  chmod.about(
      "MODE is octal (644) or symbolic (u+rwX,go-w). X means x for directories, and for files that "
      "have an x already.");
  chmod.argument("MODE", text(mode.to, "MODE"), "Mode or change of the mode");
  chmod.argument("PATH", text(mode.paths, "PATH"), "Files and directories").required();
  chmod.flag("-R,--recursive", mode.recursive,
             "Also change everything below; symbolic links stay unchanged");
  chmod.example("ff fs chmod -R u+rwX,go= /home/ann", "access for the owner only");
  chmod.blocking();
  chmod.run([&](Session& session) -> Result<void> {
    // chmod(1) applies the umask of the process; no FsClient has read it yet.
    FF_TRY(const auto change, client::ModeChange::parse(mode.to, 0));
    const Attributes attributes = [&](const meta::Inode& inode) {
      return Namespace::Attributes{
          .mode = change.apply(inode.mode, inode.is(meta::InodeType::directory))};
    };
    return set_all(session, common, mode, attributes);
  });

  Command& chown = fs.sub("chown", "Change owners");
  auto& owner = chown.keep<AttributeOptions>();
  chown.about(
      "USER and GROUP are numbers, or names from /etc/passwd and /etc/group of this machine. Only "
      "root can change the owner of a file; an owner can change the group to one of their own "
      "groups.");
  chown.argument("OWNER", text(owner.to, "USER[:GROUP]"), "New owner, or :GROUP alone");
  chown.argument("PATH", text(owner.paths, "PATH"), "Files and directories").required();
  chown.flag("-R,--recursive", owner.recursive,
             "Also change everything below; symbolic links stay unchanged");
  chown.example("ff fs chown -R 1000:100 /home/ann", "by user and group numbers");
  chown.blocking();
  chown.run([&](Session& session) -> Result<void> {
    io::SystemDisk disk;
    FF_TRY(const auto to, client::parse_owner(disk, owner.to));
    const Attributes attributes = [&](const meta::Inode&) {
      return Namespace::Attributes{.uid = to.uid, .gid = to.gid};
    };
    return set_all(session, common, owner, attributes);
  });

  Command& touch_command = fs.sub("touch", "Create empty files, or set times to now");
  auto& touching = touch_command.keep<TouchOptions>();
  touch_command.about(
      "Sets the times of existing files to now, and creates empty files where nothing exists.");
  touch_command.argument("PATH", text(touching.paths, "PATH"), "Files").required();
  touch_command.flag("-c,--no-create", touching.no_create, "Do not create files");
  touch_command.example("ff fs touch /data/DONE", "create an empty marker file");
  touch_command.blocking();
  touch_command.run([&](Session& session) {
    const Change change = [&](FsClient& run, std::string path) {
      return touch(run, touching, std::move(path));
    };
    return change_all(session, common, touching.paths, change);
  });
}

}  // namespace

void declare_fs_change(Command& fs, const FsOptions& common) {
  declare_names(fs, common);
  declare_attributes(fs, common);
}

}  // namespace ff::cmd
