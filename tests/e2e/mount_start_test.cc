// How a mount begins: in the background, for a line of /etc/fstab, before its cluster is there, and
// what is said when it cannot be.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "e2e/child.h"
#include "e2e/local_cluster.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

// The line of a mount point in the table of mounts; "" when nothing is mounted there.
std::string mount_line(const std::string& dir) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" " + dir + " ") != line.npos) return line;
  }
  return "";
}

std::string one_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class MountStartTest : public testing::Test {
 protected:
  void SetUp() override {
    const int fuse = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0 || ::geteuid() != 0) GTEST_SKIP() << "FUSE cannot be used here";
    ::close(fuse);
    fs::create_directory(mnt_);
  }
  ~MountStartTest() override {
    (void)::umount2(mnt_.c_str(), MNT_DETACH);
    EXPECT_TRUE(eventually([&] { return processes(mnt_).empty(); })) << "something still runs";
  }
  std::string at(const std::string& name) const { return dir_ / name; }
  static std::string meta() { return shared_cluster().address(); }
  static std::string url() { return "ff://" + meta() + "/"; }
  ProcessResult mount(Words more, const std::string& address = meta()) {
    Words words = {"mount", "/", mnt_, "--meta", address};
    words.insert(words.end(), more.begin(), more.end());
    return run_ff(std::move(words));
  }
  // The link, as `ff help --install` makes it.
  std::string helper() {
    fs::create_directory(at("links"));
    EXPECT_EQ(run_ff({"help", "--install", at("links")}).exit, 0);
    return at("links/mount.ff");
  }

  TempDir dir_;
  const std::string mnt_ = dir_ / "mnt";
};

TEST_F(MountStartTest, DetachedItServesWhenItReturnsAndGoesOn) {
  const ProcessResult ran = mount({"--detach", "--log", at("log"), "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.out << ran.err;
  const json data = json::parse(ran.out)["data"];
  EXPECT_EQ(data["dir"], mnt_);
  const pid_t pid = data["pid"];
  EXPECT_EQ(::getsid(pid), pid);
  write_file(mnt_ + "/detached", "text");
  EXPECT_EQ(read_file(mnt_ + "/detached"), "text");
  EXPECT_EQ(fs::read_symlink("/proc/" + std::to_string(pid) + "/cwd"), "/");
  fs::remove(mnt_ + "/detached");
  // A log that was moved away is begun anew.
  fs::rename(at("log"), at("log.old"));
  EXPECT_TRUE(eventually([&] { return fs::exists(at("log")); }));
  ASSERT_EQ(::umount2(mnt_.c_str(), 0), 0);
  EXPECT_TRUE(eventually([&] { return processes(mnt_).empty(); }));
  EXPECT_NE(read_file(at("log")).find("info stopping"), std::string::npos);

  const ProcessResult again = mount({"--detach", "--log", at("log")});
  ASSERT_EQ(again.exit, 0) << again.err;
  EXPECT_EQ(again.out, "/ is mounted on " + mnt_ + "\n");
  EXPECT_EQ(mount({"--detach"}).exit, 1) << "twice";
}

TEST_F(MountStartTest, DetachedItTellsWhatKeepsItFromServing) {
  const ProcessResult none = run_ff({"mount", "/none", mnt_, "--meta", meta(), "--detach"});
  EXPECT_EQ(none.exit, 1);
  EXPECT_NE(none.err.find("/none: No such file or directory"), std::string::npos) << none.err;
  const ProcessResult log = mount({"--detach", "--log", at("none/log")});
  EXPECT_EQ(log.exit, 1);
  EXPECT_NE(log.err.find("none/log"), std::string::npos) << log.err;
  EXPECT_EQ(mount({"--detach", "--log", mnt_ + "/log"}).exit, 2);
  EXPECT_EQ(mount({"--log", at("log")}).exit, 2);
  EXPECT_EQ(mount_line(mnt_), "");

  // Whoever is tired of waiting, or is killed, leaves nothing behind.
  for (const int number : {SIGINT, SIGKILL}) {
    Child waiting({.argv = {FF_BINARY, "mount", "/", mnt_, "--meta", "127.0.0.1:1", "--wait",
                            "--detach", "--log", at("log")}});
    EXPECT_TRUE(eventually([&] { return processes(mnt_).size() == 3; }));
    waiting.signal(number);
    EXPECT_EQ(waiting.finish(), number == SIGINT ? 130 : 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return processes(mnt_).empty(); }));
  }
}

// In a world of its own, with a /dev/log that the test listens on.
TEST_F(MountStartTest, DetachedItLogsToSyslog) {
  write_file(at("script"), R"py(
import os, socket, subprocess, sys
dev, mnt, ff, meta = sys.argv[1:]
def sh(line): subprocess.run(line, shell=True, check=True)
os.mkdir(dev)
sh(f"mount -t tmpfs none {dev} && touch {dev}/fuse {dev}/null")
sh(f"mount --bind /dev/fuse {dev}/fuse && mount --bind /dev/null {dev}/null")
sh(f"mount --rbind {dev} /dev")
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
log.settimeout(60)
sh(f"{ff} mount / {mnt} --meta {meta} --detach && umount {mnt}")
while True:
    line = log.recv(4096).decode()
    print(line)
    if "info stopping" in line: break
)py");
  const ProcessResult ran =
      run({.argv = {"unshare", "-m", "python3", at("script"), at("dev"), mnt_, FF_BINARY, meta()}});
  EXPECT_EQ(ran.exit, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find(": info stopping"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.err.find("no syslog"), std::string::npos) << ran.err;
}

TEST_F(MountStartTest, SystemdHearsWhenItServes) {
  const int heard = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  at("notify").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(heard, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const timeval patience = {60, 0};
  ::setsockopt(heard, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto next = [heard] {
    char text[64] = {};
    return std::string(
        text, static_cast<size_t>(std::max<ssize_t>(0, ::recv(heard, text, sizeof text, 0))));
  };
  Child daemon({.argv = {FF_BINARY, "mount", "/", mnt_, "--meta", meta()},
                .env = {{"NOTIFY_SOCKET", at("notify")}}});
  EXPECT_EQ(next(), "READY=1") << daemon.err;
  EXPECT_NE(mount_line(mnt_), "");
  daemon.signal(SIGTERM);
  EXPECT_EQ(next(), "STOPPING=1");
  EXPECT_EQ(daemon.finish(), 0);
  ::close(heard);
}

TEST_F(MountStartTest, ADryRunMountsNothing) {
  const ProcessResult fine = mount({"--dry-run"});
  EXPECT_EQ(fine.exit, 0) << fine.err;
  EXPECT_EQ(mount_line(mnt_), "");
  EXPECT_EQ(run_ff({"mount", "/none", mnt_, "--meta", meta(), "--dry-run"}).exit, 1);
}

TEST_F(MountStartTest, ALineOfFstab) {
  const std::string link = helper();
  const auto call = [&](Words words) {
    words.insert(words.begin(), link);
    return run({.argv = std::move(words)});
  };
  const ProcessResult fine =
      call({url(), mnt_, "-n", "-o",
            "rw,noexec,noatime,_netdev,nofail,user=ann,x-systemd.requires=x,wait,"
            "memory=128MiB,net=tcp,log=" +
                at("log"),
            "-t", "ff"});
  ASSERT_EQ(fine.exit, 0) << fine.err;
  EXPECT_EQ(fine.out, "");
  const std::string line = mount_line(mnt_);
  for (const std::string& part :
       Words{"noexec", "noatime", "nosuid", "nodev", "fuse.hf3fs", url()}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
  EXPECT_EQ(call({url(), mnt_}).exit, 32) << "twice";
  ASSERT_EQ(::umount2(mnt_.c_str(), 0), 0);

  const ProcessResult read_only =
      call({url(), mnt_, "-v", "-o", "ro,suid,dev,sync,meta=\"a:1,b:2\",log=" + at("log")});
  ASSERT_EQ(read_only.exit, 0) << read_only.err;
  EXPECT_EQ(read_only.out, url() + " is mounted on " + mnt_ + "\n");
  EXPECT_NE(mount_line(mnt_).find(" ro,"), std::string::npos) << mount_line(mnt_);
  EXPECT_EQ(mount_line(mnt_).find("nosuid"), std::string::npos) << mount_line(mnt_);
  ASSERT_EQ(::umount2(mnt_.c_str(), 0), 0);

  EXPECT_EQ(call({url(), mnt_, "-f", "-o", "rw"}).exit, 0);
  EXPECT_EQ(mount_line(mnt_), "");
  const ProcessResult unknown = call({url(), mnt_, "-o", "rw,no_such=1"});
  EXPECT_EQ(unknown.exit, 1);
  EXPECT_NE(unknown.err.find("unknown mount option 'no_such'"), std::string::npos) << unknown.err;
  EXPECT_EQ(call({url(), mnt_, "-sf", "-o", "rw,no_such=1"}).exit, 0);
  EXPECT_EQ(call({url(), mnt_, "-o", "remount,rw"}).exit, 1);
  EXPECT_EQ(call({url(), mnt_, "-o", "memory"}).exit, 1);
  EXPECT_EQ(call({url(), mnt_, "-o", "ro=1"}).exit, 1);
  EXPECT_EQ(call({url(), mnt_, "-x"}).exit, 1);
  EXPECT_EQ(call({url()}).exit, 1);
  EXPECT_EQ(call({url(), at("none")}).exit, 32);
  EXPECT_EQ(mount_line(mnt_), "");
}

// In a world of its own, where the link is what mount(8) looks for.
TEST_F(MountStartTest, MountItselfCallsTheHelper) {
  write_file(at("fstab"), url() + " " + mnt_ + " ff noauto,_netdev,noatime,log=" + at("log") +
                              " 0 0\n" + "ff:/// " + at("other") + " ff meta=" + meta() +
                              ",log=" + at("log") + " 0 0\n");
  fs::create_directory(at("other"));
  write_file(at("script"), R"sh(set -e
mount -t tmpfs none "$(realpath /sbin)"
ln -s "$FF" /sbin/mount.ff
mount -T "$DIR/fstab" "$DIR/mnt"
echo text > "$DIR/mnt/file"
mount -T "$DIR/fstab" -a
mount -T "$DIR/fstab" -a
cat "$DIR/other/file"
rm "$DIR/other/file"
umount "$DIR/mnt" "$DIR/other"
mount -t ff -o ro,log="$DIR/log" "$URL" "$DIR/mnt"
if touch "$DIR/mnt/file" 2>/dev/null; then exit 3; fi
umount "$DIR/mnt"
if mount -t ff -o no_such "$URL" "$DIR/mnt"; then exit 4; fi
echo done
)sh");
  const ProcessResult ran =
      run({.argv = {"unshare", "-m", "-p", "-f", "--mount-proc", "sh", at("script")},
           .env = {{"FF", FF_BINARY}, {"DIR", dir_.path()}, {"URL", url()}}});
  EXPECT_EQ(ran.out, "text\ndone\n") << ran.err;
  EXPECT_NE(ran.err.find("unknown mount option 'no_such'"), std::string::npos) << ran.err;
}

TEST_F(MountStartTest, ItShowsItsNumbers) {
  Child daemon({.argv = {FF_BINARY, "mount", "/", mnt_, "--meta", meta(), "--http", "0"}});
  ASSERT_TRUE(daemon.wait_for_out("pages on port ")) << daemon.err;
  ASSERT_TRUE(daemon.wait_for_out("\n"));
  const std::string port(one_line(daemon.out.substr(daemon.out.find("pages on port ") + 14)));
  write_file(mnt_ + "/numbers", std::string(100'000, 'x'));
  EXPECT_EQ(read_file(mnt_ + "/numbers").size(), 100'000u);
  fs::remove(mnt_ + "/numbers");
  const auto get = [&port](const std::string& path) {
    return run({.argv = {"python3", "-c",
                         "import sys, urllib.request as r\n"
                         "print(r.urlopen(sys.argv[1]).read().decode())",
                         "http://127.0.0.1:" + port + path}});
  };
  const ProcessResult metrics = get("/metrics");
  for (const std::string line :
       {"ff_mount_request_seconds_count{op=\"create\"} 1", "ff_mount_written_bytes_total 100000",
        "ff_mount_request_seconds_count{op=\"unlink\"} 1", "ff_mount_requests_under_way 0",
        "ff_mount_failed_total 0", "ff_mount_memory_limit_bytes 536870912",
        "ff_mount_memory_bytes{use=\"writes\"} ", "ff_mount_open_files "}) {
    EXPECT_NE(metrics.out.find(line), std::string::npos) << line << "\n" << metrics.out;
  }
  EXPECT_NE(get("/status").err.find("HTTP Error 40"), std::string::npos) << "without a login";
  const size_t login = daemon.err.find("/login?token=");
  ASSERT_TRUE(login != std::string::npos || daemon.wait_for_err("/login?token="));
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.finish(), 0);
}

// From nothing to a mount, one step after the other.
TEST_F(MountStartTest, ItWaitsForAClusterThatIsNotFormedAndForItsChains) {
  Child meta({.argv = {FF_BINARY, "serve-meta", "--listen", "127.0.0.1:0", "--dir", at("meta")}});
  ASSERT_TRUE(meta.wait_for_out("\n")) << meta.err;
  const std::string address(one_line(meta.out.substr(meta.out.rfind(' ') + 1)));
  const auto admin = [&](Words words) {
    words.insert(words.begin(), "admin");
    return run_ff(std::move(words), {{"FF_META", address}});
  };
  const ProcessResult early = mount({}, address);
  EXPECT_EQ(early.exit, 1);
  EXPECT_NE(early.err.find("ff admin init"), std::string::npos) << early.err;
  Child waiting({.argv = {FF_BINARY, "mount", "/", mnt_, "--meta", address, "--wait"}});
  EXPECT_TRUE(waiting.wait_for_err("ff admin init")) << waiting.err;
  ASSERT_EQ(admin({"init"}).exit, 0);
  EXPECT_TRUE(waiting.wait_for_err("ff admin plan --apply")) << waiting.err;
  const ProcessResult bare = mount({}, address);
  EXPECT_EQ(bare.exit, 1);
  EXPECT_NE(bare.err.find("ff admin plan --apply"), std::string::npos) << bare.err;
  Child storage({.argv = {FF_BINARY, "serve-storage", "--node", "1", "--listen", "127.0.0.1:0",
                          "--meta", address, "--disk", at("disk")}});
  ASSERT_TRUE(storage.wait_for_out("listening")) << storage.err;
  EXPECT_TRUE(eventually([&] { return admin({"plan", "--replicas", "1", "--apply"}).exit == 0; }));
  EXPECT_TRUE(waiting.wait_for_out("is mounted on")) << waiting.err;
  write_file(mnt_ + "/file", "text");
  EXPECT_EQ(read_file(mnt_ + "/file"), "text");
  waiting.signal(SIGTERM);
  EXPECT_EQ(waiting.finish(), 0);
}

TEST_F(MountStartTest, WordsForWhatCannotBeMountedOn) {
  const auto refused = [&](const std::string& source, const std::string& dir) {
    const ProcessResult ran = run_ff({"mount", source, dir, "--meta", meta()});
    EXPECT_EQ(ran.exit, 1) << ran.err;
    return ran.err;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refused("/", at("none")), "mkdir -p " + at("none"));
  write_file(at("file"), "");
  has(refused("/", at("file")), "Not a directory");
  has(refused("/none", mnt_), "/none: No such file or directory");
  ASSERT_EQ(::mount("none", mnt_.c_str(), "tmpfs", 0, nullptr), 0);
  const std::string other = refused("/", mnt_);
  has(other, "a file system of type tmpfs is already mounted there");
  has(other, "umount " + mnt_);
  ASSERT_EQ(::umount(mnt_.c_str()), 0);
  ASSERT_EQ(mount({"--detach", "--log", at("log")}).exit, 0);
  has(refused("/", mnt_), "an ff file system is already mounted there");
}

TEST_F(MountStartTest, WordsForAClusterThatIsNotThere) {
  const ProcessResult nobody = mount({}, "127.0.0.1:1");
  EXPECT_EQ(nobody.exit, 1);
  EXPECT_NE(nobody.err.find("127.0.0.1:1"), std::string::npos) << nobody.err;
  EXPECT_NE(nobody.err.find("--wait waits for it"), std::string::npos) << nobody.err;
  const ProcessResult helped = run({.argv = {helper(), "ff://127.0.0.1:1/", mnt_}});
  EXPECT_EQ(helped.exit, 32);
}

TEST_F(MountStartTest, WordsForWhatIsNotPermitted) {
  // As a shell would run it: `how` before the command, with another /dev/fuse in a world of its
  // own.
  const auto said = [&](const std::string& change, const std::string& how, int exit) {
    const std::string line =
        change + " && exec " + how + " " + at("ff") + " mount / " + mnt_ + " --meta " + meta();
    const ProcessResult ran =
        run({.argv = {"unshare", "-m", "sh", "-c", line}, .env = {{"FF_CONFIG", at("ff.toml")}}});
    EXPECT_EQ(ran.exit, exit) << ran.err;
    return ran.err;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  write_file(at("ff.toml"), "");
  fs::copy_file(FF_BINARY, at("ff"));  // where everybody may go
  const std::string another = "mount --bind /dev/null /dev/fuse";
  has(said(another, "", 1), "/dev/fuse: a character device 1:3 instead of the FUSE device");
  write_file(at("file"), "");
  has(said("mount --bind " + at("file") + " /dev/fuse", "", 1), "/dev/fuse: a regular file");
  fs::create_directory(at("empty"));
  has(said("mount --bind " + at("empty") + " /dev", "", 1), "modprobe fuse");
  has(said("true", "setpriv --bounding-set=-sys_admin", 5), "CAP_SYS_ADMIN is missing");

  // Somebody who is not root, whom the device lets in.
  fs::permissions(dir_.path(), fs::perms(0755));
  fs::permissions(mnt_, fs::perms(0777));
  const std::string user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
  ASSERT_EQ(::mknod(at("fuse").c_str(), S_IFCHR | 0666, makedev(10, 229)), 0);
  ASSERT_EQ(::chmod(at("fuse").c_str(), 0666), 0);
  const int there = ::open(at("fuse").c_str(), O_RDWR | O_CLOEXEC);
  if (there < 0) GTEST_SKIP() << "no devices here (nodev)";
  ::close(there);
  const std::string open = "mount --bind " + at("fuse") + " /dev/fuse";
  const std::string closed = "chmod 600 " + at("fuse") + " && " + open;
  has(said(closed, user, 5), "chmod 666 /dev/fuse");
  ASSERT_EQ(::chmod(at("fuse").c_str(), 0666), 0);
  if (std::system("command -v fusermount3 >/dev/null") != 0) {
    has(said(open, user, 5), "need fusermount3, which is not installed");
  }
}

}  // namespace
}  // namespace ff::test
