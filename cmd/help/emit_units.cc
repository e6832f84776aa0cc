// Units for systemd: one for each daemon, one for the users of daemons, one for the weekly check of
// a node, and the line for cron that does the same. Settings that differ from cluster to cluster
// are in /etc/ff/ff.toml, and lists in files of environment variables beside it, so that an
// operator need not edit the units.
//
// serve-meta, serve-storage, serve-kv and schedule serve run as users of their own, without
// capabilities and with a private view of the file system. systemd passes them the key and ff.toml
// as credentials, so that these files can stay readable to root only.
//
// The other units must not have a private view of the file system (ProtectSystem=, PrivateTmp= and
// the like): nobody else would see what `ff mount` mounts there, and the tasks of an agent would
// inherit the view, as they would inherit lost capabilities and NoNewPrivileges=.
#include "cmd/help/emit.h"

namespace ff::cmd {
namespace {

std::string unit_head(std::string_view description, std::string_view page, std::string_view notes) {
  return fmt::format(
      "# Written by `ff generate systemd`; change it with `systemctl edit`.\n"
      "{}\n[Unit]\nDescription={}\nDocumentation=man:{}(1) man:ff(7)\n"
      "Wants=network-online.target\nAfter=network-online.target\n",
      notes, description, page);
}

// For daemons: they report when they are ready, and systemd restarts them after a failure. They
// have many files and connections, and lock the memory that RDMA devices access. A daemon that is
// stopped before it is ready exits with 130.
constexpr std::string_view kService =
    "\n[Service]\nType=notify\nRestart=on-failure\nRestartSec=1\nSuccessExitStatus=130\n"
    "LimitNOFILE=1048576\nLimitMEMLOCK=infinity\n";

// The user of serve-meta, serve-kv and schedule serve, which hold the root key, and that of
// serve-storage, which does not.
constexpr std::string_view kManagerUser = "ff";
constexpr std::string_view kStorageUser = "ff-storage";

// Without a private view of the file system, so that mounts reach the whole machine. The network
// includes AF_NETLINK, by which libraries list addresses and RDMA devices.
constexpr std::string_view kRestricted =
    "LimitCORE=0\nNoNewPrivileges=yes\nLockPersonality=yes\nMemoryDenyWriteExecute=yes\n"
    "ProtectClock=yes\nProtectHostname=yes\nDevicePolicy=closed\n"
    "DeviceAllow=char-infiniband* rw\n"
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\nRestrictNamespaces=yes\n"
    "RestrictRealtime=yes\nRestrictSUIDSGID=yes\nSystemCallArchitectures=native\n"
    "SystemCallErrorNumber=EPERM\n";

// @system-service includes io_uring.
constexpr std::string_view kConfined =
    "CapabilityBoundingSet=\nUMask=0077\nPrivateMounts=yes\nPrivateTmp=yes\n"
    "ProtectControlGroups=yes\nProtectHome=yes\nProtectKernelLogs=yes\n"
    "ProtectKernelModules=yes\nProtectKernelTunables=yes\nProtectProc=invisible\nRemoveIPC=yes\n"
    "SystemCallFilter=@system-service\n"
    "SystemCallFilter=~@keyring @privileged @resources process_vm_readv process_vm_writev\n";

constexpr std::string_view kInstall = "\n[Install]\nWantedBy=multi-user.target\n";

constexpr std::string_view kNeedsUsers = "Requires=ff-users.service\nAfter=ff-users.service\n";

// Runs as `user`, with the key in `key_file`. Without ff.toml it gets a file with one comment.
std::string identity_of(std::string_view user, std::string_view key_file) {
  return fmt::format(
      "User={}\nGroup={}\nLoadCredential=ff.key:{}\n"
      "LoadCredential=ff.toml:/etc/ff/ff.toml\nSetCredential=ff.toml:#\n"
      "Environment=FF_KEY=%d/ff.key FF_CONFIG=%d/ff.toml\n",
      user, user, key_file);
}

// State of a manager or scheduler: /var/lib/ff/NAME is all that it sees of /var/lib/ff, which other
// users cannot enter. systemd changes the owner of a directory that root has made.
std::string state_folder(std::string_view name) {
  return fmt::format(
      "Environment=FF_STATE=/var/lib/ff\nStateDirectory=ff/{0}\nStateDirectoryMode=0700\n"
      "ProtectSystem=strict\nProcSubset=pid\nTemporaryFileSystem=/var/lib/ff:ro\n"
      "BindPaths=/var/lib/ff/{0}\n",
      name);
}

std::string serve_meta(std::string_view program) {
  return unit_head(
             "ff, the cluster manager and metadata service", "ff-serve-meta",
             "# Its settings: [serve-meta] and [net] in /etc/ff/ff.toml (`ff help config`).\n"
             "# Its key: /etc/ff/cluster.key, whatever net.key says. It runs as the user ff, who\n"
             "# must be able to read the certificates and keys for etcd or TLS, if there are any.\n"
             "# If it shall keep its state in another directory than /var/lib/ff/meta: chown -R "
             "it\n"
             "# to ff, and add ReadWritePaths=DIR (below /home also ProtectHome=no).\n") +
         "After=etcd.service postgresql.service\n" + std::string(kNeedsUsers) +
         std::string(kService) + fmt::format("ExecStart={} serve-meta\n", program) +
         identity_of(kManagerUser, "/etc/ff/cluster.key") + state_folder("meta") +
         std::string(kRestricted) + std::string(kConfined) + std::string(kInstall);
}

std::string schedule_serve(std::string_view program) {
  return unit_head(
             "ff, the scheduler", "ff-schedule",
             "# Its settings: [schedule-serve] and [net] in /etc/ff/ff.toml.\n"
             "# Its key, its user and its state: as those of ff-serve-meta.service, the state\n"
             "# in /var/lib/ff/schedule.\n") +
         "After=etcd.service postgresql.service ff-serve-meta.service\n" +
         std::string(kNeedsUsers) + std::string(kService) +
         fmt::format("ExecStart={} schedule serve\n", program) +
         identity_of(kManagerUser, "/etc/ff/cluster.key") + state_folder("schedule") +
         std::string(kRestricted) + std::string(kConfined) + std::string(kInstall);
}

// It keeps nothing on its machine: its folders are in the cluster.
std::string serve_kv(std::string_view program) {
  return unit_head(
             "ff, a gateway for clients of Redis and S3", "ff-serve-kv",
             "# Its folders, in /etc/ff/serve-kv.env:\n"
             "#   FOLDER=ff:///kv\n"
             "#   OPTIONS=--s3-listen 127.0.0.1:9000 --s3-root ff:///objects\n"
             "# It runs as the user ff. Make both folders for it first:\n"
             "#   ff fs mkdir /kv /objects; ff fs chown ff /kv /objects\n"
             "# With ff-serve-kv.socket it starts when the first client of Redis connects, with\n"
             "# ff-serve-kv-s3.socket when the first one of S3 does; enable these, or this unit.\n"
             "# Its other settings: [serve-kv] and [net] in /etc/ff/ff.toml. Its key: as that of\n"
             "# ff-serve-meta.service.\n") +
         "After=ff-serve-meta.service ff-serve-storage.service\n" + std::string(kNeedsUsers) +
         std::string(kService) + "EnvironmentFile=/etc/ff/serve-kv.env\n" +
         fmt::format("ExecStart={} serve-kv $OPTIONS ${{FOLDER}}\n", program) +
         identity_of(kManagerUser, "/etc/ff/cluster.key") + "ProtectSystem=strict\n" +
         std::string(kRestricted) + std::string(kConfined) +
         // Others may read objects, as they do those of a gateway that somebody has started by
         // hand.
         "UMask=0022\n" + std::string(kInstall);
}

// `name`: how the gateway knows the socket. Both start the same gateway, which then gets both.
std::string serve_kv_socket(std::string_view clients, std::string_view name,
                            std::string_view address) {
  return fmt::format(
      "# Written by `ff generate systemd`; change it with `systemctl edit`.\n"
      "# Another address: ListenStream= (which drops this one) and ListenStream=ADDRESS. One that\n"
      "# other machines reach needs TLS, see ff-serve-kv(1).\n"
      "[Unit]\nDescription=ff, starts the gateway for clients of {}\n"
      "Documentation=man:ff-serve-kv(1)\n"
      "\n[Socket]\nListenStream={}\nFileDescriptorName={}\nService=ff-serve-kv.service\n"
      "Backlog=1024\n"
      "\n[Install]\nWantedBy=sockets.target\n",
      clients, address, name);
}

// Before each start, as root: makes the directories of the disks, and gives those that belong to
// root to the daemon's user. A directory of the daemon's user stays as it is, so that nobody can
// have root follow what the daemon has put there.
constexpr std::string_view kOwnDisks =
    "ExecStartPre=+-/bin/sh -c 'before=; for word; do dir=; \\\n"
    "  case $$word in --disk=/*) dir=$${{word#--disk=}} ;; --*) before=$$word ;; \\\n"
    "  /*) [ \"$$before\" != --disk ] || dir=$$word ;; esac; \\\n"
    "  [ -z \"$$dir\" ] || {{ mkdir -p \"$$dir\" && find \"$$dir/.\" -maxdepth 0 -user root \\\n"
    "  -exec chown -hR {0}:{0} {{}} +; }}; done' sh $DISKS\n";

// Before each start, as root: lets programs ask for large pages in the memory that they share,
// because only root may mount a file system that has them. Other programs notice no change.
constexpr std::string_view kLargePages =
    "ExecStartPre=+-/bin/sh -c 'cd /sys/kernel/mm/transparent_hugepage && \\\n"
    "  if grep -qF \"[never]\" shmem_enabled; then echo advise >shmem_enabled; fi'\n";

std::string serve_storage(std::string_view program) {
  return unit_head(
             "ff, a storage node", "ff-serve-storage",
             "# Its disks, in /etc/ff/serve-storage.env; they will belong to the user ff-storage:\n"
             "#   DISKS=--disk /disk1 --disk /disk2\n"
             "# If they are below /home, add ProtectHome=no.\n"
             "# Its other settings: [serve-storage], [cluster] and [net] in /etc/ff/ff.toml.\n"
             "# Its key: /etc/ff/storage.key, whatever net.key says (`ff admin key create`). On a\n"
             "# machine that holds the cluster key for a manager, a link to that does as well.\n"
             "# With ProtectSystem=strict and ReadWritePaths= of its disks it sees even less.\n") +
         "After=ff-serve-meta.service local-fs.target\n" + std::string(kNeedsUsers) +
         std::string(kService) + "EnvironmentFile=/etc/ff/serve-storage.env\n" +
         fmt::format(kOwnDisks, kStorageUser) + std::string(kLargePages) +
         // A new node waits until the cluster is formed; a node that stops hands its chains over.
         fmt::format("ExecStart={} serve-storage $DISKS\nTimeoutStartSec=infinity\n", program) +
         "TimeoutStopSec=60\n" + identity_of(kStorageUser, "/etc/ff/storage.key") +
         "ProtectSystem=full\n" + std::string(kRestricted) + std::string(kConfined) +
         std::string(kInstall);
}

std::string mount(std::string_view program) {
  return unit_head(
             "ff, a mount on %f", "ff-mount",
             "# ff-mount@mnt-data.service mounts on /mnt/data (systemd-escape --path). In\n"
             "# /etc/ff/mount-mnt-data.env, what it mounts, if that is not the whole cluster of\n"
             "# ff.toml, and its key, if that is not net.key:\n"
             "#   SOURCE=ff://m1:4400,m2:4400,m3:4400/data\n"
             "#   OPTIONS=--memory 2GiB --http 9103\n"
             "#   FF_KEY=/etc/ff/mount.key\n"
             "# A line of /etc/fstab does as well: see ff-mount(1).\n") +
         "After=ff-serve-meta.service ff-serve-storage.service\n" + std::string(kService) +
         fmt::format(
             "Environment=SOURCE=/\nEnvironmentFile=-/etc/ff/mount-%i.env\n"
             "ExecStart={} mount --wait $OPTIONS ${{SOURCE}} %f\n"
             "TimeoutStartSec=infinity\nTimeoutStopSec=120\nOOMScoreAdjust=-500\n",
             program) +
         // It mounts, and opens memory that programs of any user share with it.
         "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER\n" +
         std::string(kRestricted) +
         "DeviceAllow=/dev/fuse rw\nSystemCallFilter=@system-service @mount\n" +
         std::string(kInstall);
}

std::string up(std::string_view program) {
  return unit_head(
             "ff, a cluster on this machine in %f", "ff-up",
             "# ff-up@data-ff.service runs the cluster in /data/ff (systemd-escape --path). More,\n"
             "# in /etc/ff/up-data-ff.env:\n"
             "#   OPTIONS=--mount /mnt/ff\n") +
         std::string(kService) +
         // It stops its daemons itself, in the right order. Nothing is restricted: with --mount and
         // --schedule it also mounts and runs tasks.
         fmt::format(
             "EnvironmentFile=-/etc/ff/up-%i.env\nExecStart={} up --foreground --dir %f $OPTIONS\n"
             "KillMode=mixed\nTimeoutStartSec=120\nTimeoutStopSec=120\n",
             program) +
         std::string(kInstall);
}

std::string schedule_agent(std::string_view program) {
  return unit_head(
             "ff, the agent of a node", "ff-schedule",
             "# Its settings: [schedule], [schedule-agent] and [net] in /etc/ff/ff.toml. Tasks\n"
             "# inherit the limits and restrictions of this unit, so it has none.\n") +
         std::string(kService) +
         // Ranks go on without it, and one that the kernel kills for lack of memory concerns its
         // task only.
         fmt::format(
             "ExecStart={} schedule agent\nKillMode=process\nOOMPolicy=continue\n"
             "TasksMax=infinity\nDelegate=yes\n",
             program) +
         std::string(kInstall);
}

// Its verdict is that of the unit: `systemctl --failed` names the nodes that failed. It reads
// devices, mounts, the kernel's log and other processes, and the driver of a GPU may load modules
// and make device files for it, so it keeps what these need. It has no private view of the file
// system, whose read-only mounts would look like errors of disks.
std::string validate_service(std::string_view program) {
  return fmt::format(
      "# Written by `ff generate systemd`; change it with `systemctl edit`.\n"
      "# Its settings: [validate] in /etc/ff/ff.toml (`ff help config`).\n"
      "[Unit]\nDescription=ff, a check of this node\n"
      "Documentation=man:ff-validate(1)\n"
      "\n[Service]\nType=oneshot\nExecStart={} validate --level weekly --quiet\n"
      "CapabilityBoundingSet=~CAP_AUDIT_CONTROL CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_BPF \\\n"
      "  CAP_LEASE CAP_LINUX_IMMUTABLE CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_NET_ADMIN \\\n"
      "  CAP_NET_BROADCAST CAP_SETFCAP CAP_SETPCAP CAP_SYS_BOOT CAP_SYS_CHROOT CAP_SYS_PACCT \\\n"
      "  CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_WAKE_ALARM\n"
      "LimitCORE=0\nLockPersonality=yes\nProtectHostname=yes\nRestrictNamespaces=yes\n"
      "RestrictRealtime=yes\n"
      "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\nRestrictSUIDSGID=yes\n"
      "SystemCallArchitectures=native\nSystemCallErrorNumber=EPERM\n"
      "SystemCallFilter=~@cpu-emulation @obsolete @raw-io @reboot @swap\n",
      program);
}

// Makes the users of the daemons where a package has not done so.
std::string users_service() {
  return fmt::format(
      "# Written by `ff generate systemd`; change it with `systemctl edit`.\n"
      "[Unit]\nDescription=ff, the users of its daemons\nDocumentation=man:ff-cluster(7)\n"
      "\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
      "ExecStart=systemd-sysusers --inline 'u {} - \"ff managers and schedulers\"' \\\n"
      "  'u {} - \"ff storage nodes\"'\n"
      "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER\nLimitCORE=0\n"
      "NoNewPrivileges=yes\nLockPersonality=yes\nMemoryDenyWriteExecute=yes\n"
      "PrivateDevices=yes\nPrivateMounts=yes\nPrivateNetwork=yes\nPrivateTmp=yes\n"
      "ProtectClock=yes\nProtectControlGroups=yes\nProtectHome=yes\nProtectHostname=yes\n"
      "ProtectKernelLogs=yes\nProtectKernelModules=yes\nProtectKernelTunables=yes\n"
      "ProtectProc=invisible\nProtectSystem=strict\nReadWritePaths=/etc\n"
      "RestrictAddressFamilies=AF_UNIX\nRestrictNamespaces=yes\nRestrictRealtime=yes\n"
      "RestrictSUIDSGID=yes\nSystemCallArchitectures=native\nSystemCallErrorNumber=EPERM\n"
      "SystemCallFilter=@system-service\n",
      kManagerUser, kStorageUser);
}

// Each node at its own moment, and the same one every week.
std::string validate_timer() {
  return "# Written by `ff generate systemd`; change it with `systemctl edit`.\n"
         "[Unit]\nDescription=ff, a check of this node once a week\n"
         "\n[Timer]\nOnCalendar=Sun 03:00\nRandomizedDelaySec=4h\nFixedRandomDelay=true\n"
         "Persistent=true\n"
         "\n[Install]\nWantedBy=timers.target\n";
}

}  // namespace

std::vector<EmittedFile> emit_cron(std::string_view program) {
  return {{"ff-validate",
           fmt::format("# Written by `ff generate cron`, for /etc/cron.d: cron mails what is not\n"
                       "# well. Each node begins at its own moment within four hours.\n"
                       "MAILTO=root\n"
                       "0 3 * * 0 root {} validate --level weekly --quiet --splay 4h\n",
                       program)}};
}

std::vector<EmittedFile> emit_units(std::string_view program) {
  return {{"ff-serve-meta.service", serve_meta(program)},
          {"ff-serve-storage.service", serve_storage(program)},
          {"ff-serve-kv.service", serve_kv(program)},
          {"ff-serve-kv.socket", serve_kv_socket("Redis", "redis", "127.0.0.1:6379")},
          {"ff-serve-kv-s3.socket", serve_kv_socket("S3", "s3", "127.0.0.1:9000")},
          {"ff-mount@.service", mount(program)},
          {"ff-up@.service", up(program)},
          {"ff-schedule-serve.service", schedule_serve(program)},
          {"ff-schedule-agent.service", schedule_agent(program)},
          {"ff-validate.service", validate_service(program)},
          {"ff-validate.timer", validate_timer()},
          {"ff-users.service", users_service()}};
}

}  // namespace ff::cmd
