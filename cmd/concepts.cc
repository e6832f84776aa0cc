// man 7 ff: how a cluster works and what may be relied on, for those who run one and those whose
// programs use it. Options stand with their commands; this is what they all take for granted.
#include <span>

#include "cmd/build_info.h"
#include "cmd/emit.h"
#include "cmd/troff.h"

#include <fmt/format.h>

namespace ff::cmd {
namespace {

// A paragraph, or one word and what it means.
struct ConceptEntry {
  std::string_view word;  // "": a paragraph
  std::string_view text;
};

constexpr ConceptEntry kParts[] = {
    {"",
     "A cluster keeps one tree of files on the disks of many machines, several copies of "
     "everything. Three daemons make it up, all of them this one program:"},
    {"serve-meta",
     "keeps the names, owners, permissions and lengths of files, and manages the cluster: which "
     "nodes are alive, which chains serve. One is enough, with SQLite; three share an etcd."},
    {"serve-storage",
     "keeps the bytes: a node, with the disks of one machine. It knows nothing of files."},
    {"mount",
     "puts the tree on a directory, for programs as they are. 'ff fs' and 'ff checkpoint' use it "
     "without a mount."},
    {"", "'ff up' runs all of them on one machine."},
};

constexpr ConceptEntry kData[] = {
    {"chunk",
     "A file is cut into chunks, of 1 MiB unless its directory says otherwise ('ff fs layout'). "
     "A chunk is what is replicated, checked and repaired. Chunks that were never written take no "
     "room and read as zeros."},
    {"target", "A share of one disk. Each disk carries several, of different chains."},
    {"chain",
     "Some targets on different nodes, in order: every one of them has the same chunks. A write "
     "enters at the head and goes down to the tail; it is acknowledged once all that serve have "
     "it. A read asks any of them."},
    {"stripe", "The chunks of one file lie in turn on several chains, 4 unless told otherwise."},
    {"table", "The list of chains that new files take theirs from. 'ff admin plan' writes it."},
    {"inode", "What a file is, apart from its names: a number that is never used again."},
    {"checksum",
     "Every piece of a chunk has a CRC32C, made where it was written and compared where it is "
     "read. A copy that does not match is read elsewhere, and written anew."},
};

constexpr ConceptEntry kFailures[] = {
    {"",
     "A node reports to the manager every second. When the manager has not heard a node for 10 "
     "seconds, the node has failed, and its chains go on without it; the node itself stopped "
     "serving 5 seconds earlier, so that nobody reads old data. A node that restarts, or stops by "
     "SIGTERM, tells the manager at once. Programs wait meanwhile; they see no error as long as "
     "one target of each chain serves. When two nodes are alive and cannot reach each other, the "
     "manager takes the one that follows the other out of their common chains, within some 15 "
     "seconds. It tries that node again after 10 seconds, then after twice as long each time, 5 "
     "minutes at most."},
    {"",
     "A target of a chain is serving, syncing (its predecessor copies to it what it missed, while "
     "it takes new writes), waiting, or offline. The last one that served is lastsrv: the chain "
     "waits for it, since others may lack what it acknowledged. 'ff admin accept-loss' promotes "
     "the replica that has the most data, and erases nothing: nodes set aside the replicas that "
     "may hold what the promoted one lacks. The operator can put these back; 'ff admin "
     "drop-target' removes them, and so does the manager after a week (ff serve-meta --keep-lost)."
     " Where only a syncing replica was left, programs that read the chunks it lacks get an error "
     "(EIO), not zeros."},
    {"",
     "One manager of several is primary, by a lease of 3 seconds in etcd. Another takes over some "
     "five seconds after it died. Whatever an old one still wants to write is refused."},
};

constexpr ConceptEntry kPromises[] = {
    {"close-to-open",
     "Who opens a file sees all that was written by those who have closed it before, through any "
     "mount. Programs of one mount see each other's writes at once, as on a disk."},
    {"while both have it open",
     "A reader sees that a file of another mount has grown within a second or so. What was "
     "overwritten without a change of length it sees when it opens the file again, or reads with "
     "O_DIRECT."},
    {"names and attributes",
     "are changed at once, one after the other, for everybody: rename(2) is atomic. A mount "
     "believes what it has seen for one second."},
    {"O_APPEND",
     "No append overwrites another, whichever mounts they come from and also when fcntl(2) has set"
     " the flag later. In a file that a program opened with O_APPEND, a write(2) of up to 1,020 "
     "KiB from one buffer stays in one piece. The kernel cuts longer writes, and, where fcntl(2) "
     "set the flag, those that cross a page of 4 KiB; appends of other mounts may then come "
     "between the parts, appends through this mount do not. The mount does not see RWF_APPEND and "
     "RWF_NOAPPEND: it goes by the file's flags."},
    {"fallocate(2), ftruncate(2)",
     "FALLOC_FL_PUNCH_HOLE and FALLOC_FL_ZERO_RANGE clear the bytes that the file has when the "
     "call begins; bytes that other mounts append meanwhile stay. Bytes that anybody writes after "
     "a truncation has returned stay, too. A chunk that has lost its last byte takes no room. "
     "These calls, SEEK_DATA and SEEK_HOLE visit only chunks that exist: a hole costs no time, "
     "whatever its size."},
    {"close(2)",
     "returns when all replicas that serve have the data, and the length is known to all. They "
     "have it in memory or on disk: it survives the death of any daemon, and the loss of power on "
     "all but one node of a chain."},
    {"fsync(2)",
     "returns when the data, the length and all earlier names are on the disks, and fails with EIO"
     " where the mount cannot be sure of that. Without an fsync, storage nodes write data to the "
     "disk within a second; the metadata service writes names within a tenth of one on SQLite, at "
     "once on etcd."},
    {"a metadata server that loses its power",
     "can lose its last answers: changes of names, modes or times, appends, truncations. Mounts "
     "notice it, as NFS clients do by the write verifier of their server. They report the lengths "
     "of written files again. For any other lost change the next fsync of the directory or of the "
     "file fails with EIO, once for each open file description, and the log of the mount names the"
     " inode and the change. A program that calls no fsync gets no error."},
    {"writes that fail late",
     "The mount answers a write before storage has the bytes. When storage refuses them, the mount"
     " keeps them and writes them again, every few seconds and at each fsync, as long as half of "
     "its memory for writes has room; reads return them meanwhile. Until storage has them, "
     "write(2), fsync(2) and close(2) fail. The error belongs to the file, as on Linux: each open "
     "file description gets the newest error once, from its own fsync (or O_SYNC, or msync(2)), "
     "even when storage has the bytes by then. close(2) returns the error too, without using it "
     "up; no other call does. A program that opens the file later gets the error if no fsync has "
     "returned it yet. The mount drops bytes that it has no room to keep, and those that storage "
     "still refuses at the last close: its log names the inode and the range, and "
     "ff_client_lost_bytes_total counts them."},
    {"syncfs(2), sync(2)",
     "do not reach the mount: the kernel does not pass them to a FUSE file system. They return "
     "while the mount still holds data. Call fsync(2)."},
    {"signals",
     "A call that waits for the cluster ends with EINTR a second after a signal. An fsync that "
     "ended so has used up no error: the next fsync returns it, and syncs what is not on disk "
     "yet."},
    {"locks",
     "flock(2) and fcntl(2) hold among the programs of one mount, and are not known to others."},
    {"errors",
     "A request that its chain cannot serve for a minute fails with EIO or ETIMEDOUT. A write to a"
     " full cluster fails with ENOSPC, and so does a write to a file of which one disk is full: "
     "the metadata service places new files where there is room, but a file stays on its chains. A"
     " read never returns wrong data."},
};

constexpr ConceptEntry kRights[] = {
    {"cluster key",
     "A file of 64 hexadecimal digits, the same on all machines. Who holds it is one of the "
     "cluster, and may act for any user: a mount of root does, for all users of its machine. It "
     "is proved in both directions and never sent."},
    {"token",
     "A file that makes its holder one user, whom the servers check: 'ff admin user add'. Storage "
     "nodes do for him what a capability allows that the metadata service has signed."},
    {"permissions",
     "Mode bits, groups, sticky and set-group-ID directories, checked by the servers. "
     "--root-squash makes root of the machines nobody."},
    {"secrecy",
     "Without certificates (--tls-cert) data goes over the network as it is; RDMA is never "
     "encrypted."},
};

constexpr ConceptEntry kFiles[] = {
    {"/etc/ff/ff.toml", "Settings of the machine: 'ff help config' lists them."},
    {"/var/lib/ff", "State of daemons that run as root, unless $FF_STATE names another folder."},
    {"/var/lib/ff/validate.db", "What 'ff validate' has found on this machine, run by run."},
    {"3fs-virt", "In the root of a mount: rings and orders for programs made for 3FS."},
};

std::string section(std::string_view heading, std::span<const ConceptEntry> entries) {
  std::string text = fmt::format(".SH {}\n", heading);
  bool first = true;
  for (const ConceptEntry& entry : entries) {
    if (entry.word.empty()) {
      text += (first ? "" : ".PP\n") + filled(entry.text);
    } else {
      text += fmt::format(".TP\n.B {}\n{}", macro_word(entry.word), filled(entry.text));
    }
    first = false;
  }
  return text;
}

}  // namespace

std::string concepts_page() {
  return fmt::format(
             ".\\\" Written by `ff help --emit`; do not edit.\n"
             ".TH \"FF\" 7 \"\" {} \"Concepts\"\n"
             ".SH NAME\nff \\- how a cluster works, and what may be relied on\n",
             macro_word(fmt::format("ff {}", kBuildInfo.version))) +
         section("DESCRIPTION", kParts) + section("WHERE DATA LIES", kData) +
         section("FAILURES", kFailures) + section("WHAT MAY BE RELIED ON", kPromises) +
         section("WHO MAY WHAT", kRights) + section("FILES", kFiles) +
         ".SH SEE ALSO\n.BR ff (1),\n.BR ff\\-up (1),\n.BR ff\\-mount (1),\n"
         ".BR ff\\-serve\\-meta (1),\n.BR ff\\-serve\\-storage (1),\n.BR ff\\-admin (1)\n";
}

}  // namespace ff::cmd
