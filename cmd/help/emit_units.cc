// Units for systemd, one a daemon and one for the weekly check of a node; the same as a line for
// cron. What differs from cluster to cluster stands in /etc/ff/ff.toml
// and, for lists, in small files of variables beside it, so that the units stay as they are.
//
// serve-meta and serve-storage get no more of the machine than they need. What mounts gets no
// protection that would give it a world of mounts of its own (ProtectSystem=, PrivateTmp= and the
// like): nobody else would see what it mounts there. Nor does the agent: its tasks would have it.
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

// Of all: they say themselves when they are ready, and come back when they die. Many files and
// connections; memory that RDMA devices reach is locked.
constexpr std::string_view kService =
    "\n[Service]\nType=notify\nRestart=on-failure\nRestartSec=1\n"
    "LimitNOFILE=1048576\nLimitMEMLOCK=infinity\n";

// Netlink is how RDMA devices are found.
constexpr std::string_view kConfined =
    "NoNewPrivileges=yes\nProtectSystem=full\nPrivateTmp=yes\nProtectClock=yes\n"
    "ProtectControlGroups=yes\nProtectHostname=yes\nProtectKernelLogs=yes\n"
    "ProtectKernelModules=yes\nProtectKernelTunables=yes\nLockPersonality=yes\n"
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\nRestrictNamespaces=yes\n"
    "RestrictRealtime=yes\nRestrictSUIDSGID=yes\nSystemCallArchitectures=native\n";

constexpr std::string_view kInstall = "\n[Install]\nWantedBy=multi-user.target\n";

std::string serve_meta(std::string_view program) {
  return unit_head(
             "ff, the cluster manager and metadata service", "ff-serve-meta",
             "# Its settings: [serve-meta] and [net] in /etc/ff/ff.toml (`ff help config`).\n") +
         "After=etcd.service\n" + std::string(kService) +
         fmt::format("ExecStart={} serve-meta\nStateDirectory=ff\nStateDirectoryMode=0700\n",
                     program) +
         std::string(kConfined) + std::string(kInstall);
}

std::string serve_storage(std::string_view program) {
  return unit_head(
             "ff, a storage node", "ff-serve-storage",
             "# Its disks, in /etc/ff/serve-storage.env:\n"
             "#   DISKS=--disk /disk1 --disk /disk2\n"
             "# Its other settings: [serve-storage], [cluster] and [net] in /etc/ff/ff.toml.\n") +
         "After=ff-serve-meta.service local-fs.target\n" + std::string(kService) +
         // A new node waits for the cluster to be formed; one that stops hands its chains over.
         fmt::format(
             "EnvironmentFile=/etc/ff/serve-storage.env\nExecStart={} serve-storage $DISKS\n"
             "TimeoutStartSec=infinity\nTimeoutStopSec=60\n",
             program) +
         std::string(kConfined) + std::string(kInstall);
}

std::string mount(std::string_view program) {
  return unit_head(
             "ff, a mount on %f", "ff-mount",
             "# ff-mount@mnt-data.service mounts on /mnt/data (systemd-escape --path). What, in\n"
             "# /etc/ff/mount-mnt-data.env, if it is not all of the cluster of ff.toml:\n"
             "#   SOURCE=ff://m1:4400,m2:4400,m3:4400/data\n"
             "#   OPTIONS=--memory 2GiB --http 9103\n"
             "# A line of /etc/fstab does as well: see ff-mount(1).\n") +
         "After=ff-serve-meta.service ff-serve-storage.service\n" + std::string(kService) +
         fmt::format(
             "Environment=SOURCE=/\nEnvironmentFile=-/etc/ff/mount-%i.env\n"
             "ExecStart={} mount --wait $OPTIONS ${{SOURCE}} %f\n"
             "TimeoutStartSec=infinity\nTimeoutStopSec=120\nOOMScoreAdjust=-500\n",
             program) +
         std::string(kInstall);
}

std::string up(std::string_view program) {
  return unit_head(
             "ff, a cluster on this machine in %f", "ff-up",
             "# ff-up@data-ff.service runs the cluster in /data/ff (systemd-escape --path). More,\n"
             "# in /etc/ff/up-data-ff.env:\n"
             "#   OPTIONS=--mount /mnt/ff\n") +
         std::string(kService) +
         // It stops its daemons itself, in the right order.
         fmt::format(
             "EnvironmentFile=-/etc/ff/up-%i.env\nExecStart={} up --foreground --dir %f $OPTIONS\n"
             "KillMode=mixed\nTimeoutStartSec=120\nTimeoutStopSec=120\n",
             program) +
         std::string(kInstall);
}

std::string schedule_agent(std::string_view program) {
  return unit_head("ff, the agent of a node", "ff-schedule",
                   "# Its settings: [schedule], [schedule-agent] and [net] in /etc/ff/ff.toml.\n") +
         std::string(kService) +
         // Ranks go on without it, and one that the kernel kills for memory is the task's affair.
         fmt::format(
             "ExecStart={} schedule agent\nKillMode=process\nOOMPolicy=continue\n"
             "TasksMax=infinity\nDelegate=yes\n",
             program) +
         std::string(kInstall);
}

// Its verdict is the unit's: `systemctl --failed` names nodes that are not well.
std::string validate_service(std::string_view program) {
  return fmt::format(
      "# Written by `ff generate systemd`; change it with `systemctl edit`.\n"
      "# Its settings: [validate] in /etc/ff/ff.toml (`ff help config`).\n"
      "[Unit]\nDescription=ff, a check of this node\n"
      "Documentation=man:ff-validate(1)\n"
      "\n[Service]\nType=oneshot\nExecStart={} validate --level weekly --quiet\n",
      program);
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
          {"ff-mount@.service", mount(program)},
          {"ff-up@.service", up(program)},
          {"ff-schedule-agent.service", schedule_agent(program)},
          {"ff-validate.service", validate_service(program)},
          {"ff-validate.timer", validate_timer()}};
}

}  // namespace ff::cmd
