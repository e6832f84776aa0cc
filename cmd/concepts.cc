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
     "A node reports every second. One that was not heard for 10 seconds has failed, and its "
     "chains go on without it; it has stopped serving by itself 5 seconds earlier, so that nobody "
     "reads what is old. One that is started again, or told to stop with SIGTERM, is known at "
     "once. Programs wait meanwhile; they see no error as long as one target of each chain "
     "serves. Of two nodes that are alive and cannot reach each other, one leaves the chains in "
     "which it comes right behind the other, within some 15 seconds; it is tried again after 10 "
     "seconds, then after twice as long each time, 5 minutes at most."},
    {"",
     "A target of a chain is serving, syncing (it is copied what it missed, while it is written "
     "to), waiting, or offline. The last one that served is lastsrv: the chain waits for it, since "
     "others may lack what it acknowledged. 'ff admin accept-loss' goes on with the one that has "
     "most, and erases nothing: replicas that may hold what it lacks are set aside, can be put "
     "back, and are removed by 'ff admin drop-target' or after a week (ff serve-meta "
     "--keep-lost). Where only one was left that was still being filled, chunks that it lacks are "
     "read as errors (EIO), not as zeros."},
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
     "appends from several mounts keep apart; none overwrites another, also when fcntl(2) has set "
     "the flag later. Of a file that was opened with it, a write(2) of up to 1,020 KiB from one "
     "buffer is one piece. The kernel cuts longer ones, and where the flag was set later those "
     "that cross a page of 4 KiB: then what other mounts append may come between the parts; what "
     "programs of this mount append does not. RWF_APPEND and RWF_NOAPPEND are not known to the "
     "mount: it goes by the file's flags."},
    {"fallocate(2), ftruncate(2)",
     "FALLOC_FL_PUNCH_HOLE and FALLOC_FL_ZERO_RANGE clear bytes that the file has when they begin: "
     "what other mounts append meanwhile stays, and so does what anybody writes once a truncation "
     "has returned. A chunk without a byte left takes no room. They, SEEK_DATA and SEEK_HOLE ask "
     "for the chunks that there are: a hole costs nothing, whatever its size."},
    {"close(2)",
     "returns when all replicas that serve have the data, and the length is known to all. They "
     "have it in memory or on disk: it survives the death of any daemon, and the loss of power on "
     "all but one node of a chain."},
    {"fsync(2)",
     "returns when data, length and the names before it are on the disks. What is not asked for "
     "follows by itself: data within a second, names on SQLite within a tenth of one, on etcd at "
     "once. An fsync that cannot say so fails with EIO."},
    {"a metadata server that loses its power",
     "may have answered a change of names, modes or times, an append or a truncation, and not have "
     "it any more. Mounts notice, as NFS clients do by their server's write verifier: lengths of "
     "what was written are told again; anything else makes the next fsync of the directory, or of "
     "the file, fail with EIO, once for each open file description, and the log of the mount names "
     "the inode and what is lost. Without an fsync nobody is told."},
    {"writes that fail late",
     "A write is answered before storage has it. Bytes that could not be written are kept and "
     "tried again, every few seconds and by each fsync, while half of the mount's memory for "
     "writes has room; they are read as they were written. Until they are there write(2), fsync(2) "
     "and close(2) fail. The error belongs to the file, as on Linux: each open file description "
     "is told of the newest once, by its own fsync (or O_SYNC, or msync(2)), also when the bytes "
     "have come to storage since; close(2) repeats it and takes it from nobody, no other call "
     "tells it, and who opens the file later is told what no fsync has told before. What cannot "
     "be kept, or is still not written at the last close, is lost: the log names the inode and "
     "the range, and ff_client_lost_bytes_total counts it."},
    {"syncfs(2), sync(2)",
     "do not reach the mount, since the kernel does not tell a FUSE mount of them: they return "
     "while data is only there. Call fsync(2)."},
    {"signals",
     "A call that waits for the cluster ends with EINTR a second after a signal. An fsync that "
     "ended so has told nothing: errors and what is not durable are there for the next."},
    {"locks",
     "flock(2) and fcntl(2) hold among the programs of one mount, and are not known to others."},
    {"errors",
     "A request that no chain could serve for a minute fails with EIO or ETIMEDOUT; a full "
     "cluster with ENOSPC, and so does a file of which one disk is full: new files go where "
     "there is room, a file stays on the chains it was made on. Wrong data is never returned."},
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
