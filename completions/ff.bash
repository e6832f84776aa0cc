# Completions of ff for bash.
# Written by `ff help --emit`; do not edit.

# Each sets `reply` from the tables.
_ff_subs() {
  reply=
  case "$1" in
    '') reply='admin bench checkpoint help serve-meta serve-storage sim' ;;
    'admin') reply='init status nodes disks targets chains plan drain undrain replace-target accept-loss backup restore adopt' ;;
    'bench') reply='disk digest chain chunk net' ;;
    'checkpoint') reply='save load ls show diff latest verify forget prune export salvage watch' ;;
  esac
}
_ff_options() {
  reply=
  case "$1" in
    '') reply='--json --quiet -q --verbose -v --help -h --version' ;;
    'admin') reply='--meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin init') reply='--timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin status') reply='--timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin nodes') reply='--timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin disks') reply='--timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin targets') reply='--timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin chains') reply='--timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin plan') reply='--targets-per-disk --replicas --table --seed --apply --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin drain') reply='--node --target --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin undrain') reply='--node --target --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin replace-target') reply='--node --disk --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin accept-loss') reply='--promote --yes --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin backup') reply='--kv --dir --etcd-ca --etcd-cert --etcd-key --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin restore') reply='--kv --dir --etcd-ca --etcd-cert --etcd-key --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'admin adopt') reply='--without-absent --timeout --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'bench') reply='--json --quiet -q --verbose -v --help -h' ;;
    'bench disk') reply='--size --timeout --json --quiet -q --verbose -v --help -h' ;;
    'bench digest') reply='--size --json --quiet -q --verbose -v --help -h' ;;
    'bench chain') reply='--meta --table --raw --size --depth --small-depth --rounds --hold --keep --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --timeout --json --quiet -q --verbose -v --help -h' ;;
    'bench chunk') reply='--size --depth --small-depth --rounds --chunks --timeout --json --quiet -q --verbose -v --help -h' ;;
    'bench net') reply='--listen --connect --http --disk --test --size --in-flight --duration --incast --max-senders --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --timeout --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint') reply='--store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint save') reply='--run --compress --no-compress --opaque --digest --step --rank --world --attempt --split --replace --name --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint load') reply='--tensor --slice --rank --reshard --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint ls') reply='--store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint show') reply='--tensor --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint diff') reply='--values --all --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint latest') reply='--path --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint verify') reply='--all --sample --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint forget') reply='--run --keep-last --keep-every --keep-within --apply --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint prune') reply='--grace --wait --dry-run -n --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint export') reply='--file --tensor --rank --force --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint salvage') reply='--timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'checkpoint watch') reply='--run --compress --no-compress --opaque --digest --settle --once --timeout --store --threads --meta --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'help') reply='--emit --install --versions --json --quiet -q --verbose -v --help -h' ;;
    'serve-meta') reply='--kv --dir --etcd-ca --etcd-cert --etcd-key --accept-data-loss --collect-after --root-squash --no-root-squash --listen --advertise --http --log-json --no-log-json --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'serve-storage') reply='--disk --meta --node --name --domain --format --io --resync-limit --scrub-limit --listen --advertise --http --log-json --no-log-json --net --rdma-device --rdma-gid --rdma-sl --rdma-poll --no-rdma-poll --tls-cert --tls-key --tls-ca --key --token --json --quiet -q --verbose -v --help -h' ;;
    'sim') reply='--story --seed --seeds --list --json --quiet -q --verbose -v --help -h' ;;
  esac
}
_ff_value() {
  reply=
  case "$1 $2" in
    'admin --meta') reply='any' ;;
    'admin --net') reply='auto|tcp|verbs' ;;
    'admin --rdma-device') reply='any' ;;
    'admin --rdma-gid') reply='any' ;;
    'admin --rdma-sl') reply='any' ;;
    'admin --tls-cert') reply='file' ;;
    'admin --tls-key') reply='file' ;;
    'admin --tls-ca') reply='file' ;;
    'admin --key') reply='file' ;;
    'admin --token') reply='file' ;;
    'admin init --timeout') reply='any' ;;
    'admin init --meta') reply='any' ;;
    'admin init --net') reply='auto|tcp|verbs' ;;
    'admin init --rdma-device') reply='any' ;;
    'admin init --rdma-gid') reply='any' ;;
    'admin init --rdma-sl') reply='any' ;;
    'admin init --tls-cert') reply='file' ;;
    'admin init --tls-key') reply='file' ;;
    'admin init --tls-ca') reply='file' ;;
    'admin init --key') reply='file' ;;
    'admin init --token') reply='file' ;;
    'admin status --timeout') reply='any' ;;
    'admin status --meta') reply='any' ;;
    'admin status --net') reply='auto|tcp|verbs' ;;
    'admin status --rdma-device') reply='any' ;;
    'admin status --rdma-gid') reply='any' ;;
    'admin status --rdma-sl') reply='any' ;;
    'admin status --tls-cert') reply='file' ;;
    'admin status --tls-key') reply='file' ;;
    'admin status --tls-ca') reply='file' ;;
    'admin status --key') reply='file' ;;
    'admin status --token') reply='file' ;;
    'admin nodes --timeout') reply='any' ;;
    'admin nodes --meta') reply='any' ;;
    'admin nodes --net') reply='auto|tcp|verbs' ;;
    'admin nodes --rdma-device') reply='any' ;;
    'admin nodes --rdma-gid') reply='any' ;;
    'admin nodes --rdma-sl') reply='any' ;;
    'admin nodes --tls-cert') reply='file' ;;
    'admin nodes --tls-key') reply='file' ;;
    'admin nodes --tls-ca') reply='file' ;;
    'admin nodes --key') reply='file' ;;
    'admin nodes --token') reply='file' ;;
    'admin disks --timeout') reply='any' ;;
    'admin disks --meta') reply='any' ;;
    'admin disks --net') reply='auto|tcp|verbs' ;;
    'admin disks --rdma-device') reply='any' ;;
    'admin disks --rdma-gid') reply='any' ;;
    'admin disks --rdma-sl') reply='any' ;;
    'admin disks --tls-cert') reply='file' ;;
    'admin disks --tls-key') reply='file' ;;
    'admin disks --tls-ca') reply='file' ;;
    'admin disks --key') reply='file' ;;
    'admin disks --token') reply='file' ;;
    'admin targets --timeout') reply='any' ;;
    'admin targets --meta') reply='any' ;;
    'admin targets --net') reply='auto|tcp|verbs' ;;
    'admin targets --rdma-device') reply='any' ;;
    'admin targets --rdma-gid') reply='any' ;;
    'admin targets --rdma-sl') reply='any' ;;
    'admin targets --tls-cert') reply='file' ;;
    'admin targets --tls-key') reply='file' ;;
    'admin targets --tls-ca') reply='file' ;;
    'admin targets --key') reply='file' ;;
    'admin targets --token') reply='file' ;;
    'admin chains --timeout') reply='any' ;;
    'admin chains --meta') reply='any' ;;
    'admin chains --net') reply='auto|tcp|verbs' ;;
    'admin chains --rdma-device') reply='any' ;;
    'admin chains --rdma-gid') reply='any' ;;
    'admin chains --rdma-sl') reply='any' ;;
    'admin chains --tls-cert') reply='file' ;;
    'admin chains --tls-key') reply='file' ;;
    'admin chains --tls-ca') reply='file' ;;
    'admin chains --key') reply='file' ;;
    'admin chains --token') reply='file' ;;
    'admin plan --targets-per-disk') reply='any' ;;
    'admin plan --replicas') reply='any' ;;
    'admin plan --table') reply='any' ;;
    'admin plan --seed') reply='any' ;;
    'admin plan --timeout') reply='any' ;;
    'admin plan --meta') reply='any' ;;
    'admin plan --net') reply='auto|tcp|verbs' ;;
    'admin plan --rdma-device') reply='any' ;;
    'admin plan --rdma-gid') reply='any' ;;
    'admin plan --rdma-sl') reply='any' ;;
    'admin plan --tls-cert') reply='file' ;;
    'admin plan --tls-key') reply='file' ;;
    'admin plan --tls-ca') reply='file' ;;
    'admin plan --key') reply='file' ;;
    'admin plan --token') reply='file' ;;
    'admin drain --node') reply='any' ;;
    'admin drain --target') reply='any' ;;
    'admin drain --timeout') reply='any' ;;
    'admin drain --meta') reply='any' ;;
    'admin drain --net') reply='auto|tcp|verbs' ;;
    'admin drain --rdma-device') reply='any' ;;
    'admin drain --rdma-gid') reply='any' ;;
    'admin drain --rdma-sl') reply='any' ;;
    'admin drain --tls-cert') reply='file' ;;
    'admin drain --tls-key') reply='file' ;;
    'admin drain --tls-ca') reply='file' ;;
    'admin drain --key') reply='file' ;;
    'admin drain --token') reply='file' ;;
    'admin undrain --node') reply='any' ;;
    'admin undrain --target') reply='any' ;;
    'admin undrain --timeout') reply='any' ;;
    'admin undrain --meta') reply='any' ;;
    'admin undrain --net') reply='auto|tcp|verbs' ;;
    'admin undrain --rdma-device') reply='any' ;;
    'admin undrain --rdma-gid') reply='any' ;;
    'admin undrain --rdma-sl') reply='any' ;;
    'admin undrain --tls-cert') reply='file' ;;
    'admin undrain --tls-key') reply='file' ;;
    'admin undrain --tls-ca') reply='file' ;;
    'admin undrain --key') reply='file' ;;
    'admin undrain --token') reply='file' ;;
    'admin replace-target --node') reply='any' ;;
    'admin replace-target --disk') reply='any' ;;
    'admin replace-target --timeout') reply='any' ;;
    'admin replace-target --meta') reply='any' ;;
    'admin replace-target --net') reply='auto|tcp|verbs' ;;
    'admin replace-target --rdma-device') reply='any' ;;
    'admin replace-target --rdma-gid') reply='any' ;;
    'admin replace-target --rdma-sl') reply='any' ;;
    'admin replace-target --tls-cert') reply='file' ;;
    'admin replace-target --tls-key') reply='file' ;;
    'admin replace-target --tls-ca') reply='file' ;;
    'admin replace-target --key') reply='file' ;;
    'admin replace-target --token') reply='file' ;;
    'admin accept-loss --promote') reply='any' ;;
    'admin accept-loss --timeout') reply='any' ;;
    'admin accept-loss --meta') reply='any' ;;
    'admin accept-loss --net') reply='auto|tcp|verbs' ;;
    'admin accept-loss --rdma-device') reply='any' ;;
    'admin accept-loss --rdma-gid') reply='any' ;;
    'admin accept-loss --rdma-sl') reply='any' ;;
    'admin accept-loss --tls-cert') reply='file' ;;
    'admin accept-loss --tls-key') reply='file' ;;
    'admin accept-loss --tls-ca') reply='file' ;;
    'admin accept-loss --key') reply='file' ;;
    'admin accept-loss --token') reply='file' ;;
    'admin backup --kv') reply='any' ;;
    'admin backup --dir') reply='dir' ;;
    'admin backup --etcd-ca') reply='file' ;;
    'admin backup --etcd-cert') reply='file' ;;
    'admin backup --etcd-key') reply='file' ;;
    'admin backup --timeout') reply='any' ;;
    'admin backup --meta') reply='any' ;;
    'admin backup --net') reply='auto|tcp|verbs' ;;
    'admin backup --rdma-device') reply='any' ;;
    'admin backup --rdma-gid') reply='any' ;;
    'admin backup --rdma-sl') reply='any' ;;
    'admin backup --tls-cert') reply='file' ;;
    'admin backup --tls-key') reply='file' ;;
    'admin backup --tls-ca') reply='file' ;;
    'admin backup --key') reply='file' ;;
    'admin backup --token') reply='file' ;;
    'admin restore --kv') reply='any' ;;
    'admin restore --dir') reply='dir' ;;
    'admin restore --etcd-ca') reply='file' ;;
    'admin restore --etcd-cert') reply='file' ;;
    'admin restore --etcd-key') reply='file' ;;
    'admin restore --timeout') reply='any' ;;
    'admin restore --meta') reply='any' ;;
    'admin restore --net') reply='auto|tcp|verbs' ;;
    'admin restore --rdma-device') reply='any' ;;
    'admin restore --rdma-gid') reply='any' ;;
    'admin restore --rdma-sl') reply='any' ;;
    'admin restore --tls-cert') reply='file' ;;
    'admin restore --tls-key') reply='file' ;;
    'admin restore --tls-ca') reply='file' ;;
    'admin restore --key') reply='file' ;;
    'admin restore --token') reply='file' ;;
    'admin adopt --timeout') reply='any' ;;
    'admin adopt --meta') reply='any' ;;
    'admin adopt --net') reply='auto|tcp|verbs' ;;
    'admin adopt --rdma-device') reply='any' ;;
    'admin adopt --rdma-gid') reply='any' ;;
    'admin adopt --rdma-sl') reply='any' ;;
    'admin adopt --tls-cert') reply='file' ;;
    'admin adopt --tls-key') reply='file' ;;
    'admin adopt --tls-ca') reply='file' ;;
    'admin adopt --key') reply='file' ;;
    'admin adopt --token') reply='file' ;;
    'bench disk --size') reply='any' ;;
    'bench disk --timeout') reply='any' ;;
    'bench digest --size') reply='any' ;;
    'bench chain --meta') reply='any' ;;
    'bench chain --table') reply='any' ;;
    'bench chain --raw') reply='dir' ;;
    'bench chain --size') reply='any' ;;
    'bench chain --depth') reply='any' ;;
    'bench chain --small-depth') reply='any' ;;
    'bench chain --rounds') reply='any' ;;
    'bench chain --hold') reply='any' ;;
    'bench chain --net') reply='auto|tcp|verbs' ;;
    'bench chain --rdma-device') reply='any' ;;
    'bench chain --rdma-gid') reply='any' ;;
    'bench chain --rdma-sl') reply='any' ;;
    'bench chain --tls-cert') reply='file' ;;
    'bench chain --tls-key') reply='file' ;;
    'bench chain --tls-ca') reply='file' ;;
    'bench chain --key') reply='file' ;;
    'bench chain --token') reply='file' ;;
    'bench chain --timeout') reply='any' ;;
    'bench chunk --size') reply='any' ;;
    'bench chunk --depth') reply='any' ;;
    'bench chunk --small-depth') reply='any' ;;
    'bench chunk --rounds') reply='any' ;;
    'bench chunk --chunks') reply='any' ;;
    'bench chunk --timeout') reply='any' ;;
    'bench net --listen') reply='any' ;;
    'bench net --connect') reply='any' ;;
    'bench net --http') reply='any' ;;
    'bench net --disk') reply='dir' ;;
    'bench net --test') reply='call|read|read-crc|write|disk' ;;
    'bench net --size') reply='any' ;;
    'bench net --in-flight') reply='any' ;;
    'bench net --duration') reply='any' ;;
    'bench net --incast') reply='any' ;;
    'bench net --max-senders') reply='any' ;;
    'bench net --net') reply='auto|tcp|verbs' ;;
    'bench net --rdma-device') reply='any' ;;
    'bench net --rdma-gid') reply='any' ;;
    'bench net --rdma-sl') reply='any' ;;
    'bench net --tls-cert') reply='file' ;;
    'bench net --tls-key') reply='file' ;;
    'bench net --tls-ca') reply='file' ;;
    'bench net --key') reply='file' ;;
    'bench net --token') reply='file' ;;
    'bench net --timeout') reply='any' ;;
    'checkpoint --store') reply='dir' ;;
    'checkpoint --threads') reply='any' ;;
    'checkpoint --meta') reply='any' ;;
    'checkpoint --net') reply='auto|tcp|verbs' ;;
    'checkpoint --rdma-device') reply='any' ;;
    'checkpoint --rdma-gid') reply='any' ;;
    'checkpoint --rdma-sl') reply='any' ;;
    'checkpoint --tls-cert') reply='file' ;;
    'checkpoint --tls-key') reply='file' ;;
    'checkpoint --tls-ca') reply='file' ;;
    'checkpoint --key') reply='file' ;;
    'checkpoint --token') reply='file' ;;
    'checkpoint save --run') reply='any' ;;
    'checkpoint save --opaque') reply='any' ;;
    'checkpoint save --digest') reply='xxh128|sha256' ;;
    'checkpoint save --step') reply='any' ;;
    'checkpoint save --rank') reply='any' ;;
    'checkpoint save --world') reply='any' ;;
    'checkpoint save --attempt') reply='any' ;;
    'checkpoint save --split') reply='any' ;;
    'checkpoint save --name') reply='any' ;;
    'checkpoint save --timeout') reply='any' ;;
    'checkpoint save --store') reply='dir' ;;
    'checkpoint save --threads') reply='any' ;;
    'checkpoint save --meta') reply='any' ;;
    'checkpoint save --net') reply='auto|tcp|verbs' ;;
    'checkpoint save --rdma-device') reply='any' ;;
    'checkpoint save --rdma-gid') reply='any' ;;
    'checkpoint save --rdma-sl') reply='any' ;;
    'checkpoint save --tls-cert') reply='file' ;;
    'checkpoint save --tls-key') reply='file' ;;
    'checkpoint save --tls-ca') reply='file' ;;
    'checkpoint save --key') reply='file' ;;
    'checkpoint save --token') reply='file' ;;
    'checkpoint load --tensor') reply='any' ;;
    'checkpoint load --slice') reply='any' ;;
    'checkpoint load --rank') reply='any' ;;
    'checkpoint load --reshard') reply='any' ;;
    'checkpoint load --timeout') reply='any' ;;
    'checkpoint load --store') reply='dir' ;;
    'checkpoint load --threads') reply='any' ;;
    'checkpoint load --meta') reply='any' ;;
    'checkpoint load --net') reply='auto|tcp|verbs' ;;
    'checkpoint load --rdma-device') reply='any' ;;
    'checkpoint load --rdma-gid') reply='any' ;;
    'checkpoint load --rdma-sl') reply='any' ;;
    'checkpoint load --tls-cert') reply='file' ;;
    'checkpoint load --tls-key') reply='file' ;;
    'checkpoint load --tls-ca') reply='file' ;;
    'checkpoint load --key') reply='file' ;;
    'checkpoint load --token') reply='file' ;;
    'checkpoint ls --store') reply='dir' ;;
    'checkpoint ls --threads') reply='any' ;;
    'checkpoint ls --meta') reply='any' ;;
    'checkpoint ls --net') reply='auto|tcp|verbs' ;;
    'checkpoint ls --rdma-device') reply='any' ;;
    'checkpoint ls --rdma-gid') reply='any' ;;
    'checkpoint ls --rdma-sl') reply='any' ;;
    'checkpoint ls --tls-cert') reply='file' ;;
    'checkpoint ls --tls-key') reply='file' ;;
    'checkpoint ls --tls-ca') reply='file' ;;
    'checkpoint ls --key') reply='file' ;;
    'checkpoint ls --token') reply='file' ;;
    'checkpoint show --tensor') reply='any' ;;
    'checkpoint show --store') reply='dir' ;;
    'checkpoint show --threads') reply='any' ;;
    'checkpoint show --meta') reply='any' ;;
    'checkpoint show --net') reply='auto|tcp|verbs' ;;
    'checkpoint show --rdma-device') reply='any' ;;
    'checkpoint show --rdma-gid') reply='any' ;;
    'checkpoint show --rdma-sl') reply='any' ;;
    'checkpoint show --tls-cert') reply='file' ;;
    'checkpoint show --tls-key') reply='file' ;;
    'checkpoint show --tls-ca') reply='file' ;;
    'checkpoint show --key') reply='file' ;;
    'checkpoint show --token') reply='file' ;;
    'checkpoint diff --timeout') reply='any' ;;
    'checkpoint diff --store') reply='dir' ;;
    'checkpoint diff --threads') reply='any' ;;
    'checkpoint diff --meta') reply='any' ;;
    'checkpoint diff --net') reply='auto|tcp|verbs' ;;
    'checkpoint diff --rdma-device') reply='any' ;;
    'checkpoint diff --rdma-gid') reply='any' ;;
    'checkpoint diff --rdma-sl') reply='any' ;;
    'checkpoint diff --tls-cert') reply='file' ;;
    'checkpoint diff --tls-key') reply='file' ;;
    'checkpoint diff --tls-ca') reply='file' ;;
    'checkpoint diff --key') reply='file' ;;
    'checkpoint diff --token') reply='file' ;;
    'checkpoint latest --store') reply='dir' ;;
    'checkpoint latest --threads') reply='any' ;;
    'checkpoint latest --meta') reply='any' ;;
    'checkpoint latest --net') reply='auto|tcp|verbs' ;;
    'checkpoint latest --rdma-device') reply='any' ;;
    'checkpoint latest --rdma-gid') reply='any' ;;
    'checkpoint latest --rdma-sl') reply='any' ;;
    'checkpoint latest --tls-cert') reply='file' ;;
    'checkpoint latest --tls-key') reply='file' ;;
    'checkpoint latest --tls-ca') reply='file' ;;
    'checkpoint latest --key') reply='file' ;;
    'checkpoint latest --token') reply='file' ;;
    'checkpoint verify --sample') reply='any' ;;
    'checkpoint verify --timeout') reply='any' ;;
    'checkpoint verify --store') reply='dir' ;;
    'checkpoint verify --threads') reply='any' ;;
    'checkpoint verify --meta') reply='any' ;;
    'checkpoint verify --net') reply='auto|tcp|verbs' ;;
    'checkpoint verify --rdma-device') reply='any' ;;
    'checkpoint verify --rdma-gid') reply='any' ;;
    'checkpoint verify --rdma-sl') reply='any' ;;
    'checkpoint verify --tls-cert') reply='file' ;;
    'checkpoint verify --tls-key') reply='file' ;;
    'checkpoint verify --tls-ca') reply='file' ;;
    'checkpoint verify --key') reply='file' ;;
    'checkpoint verify --token') reply='file' ;;
    'checkpoint forget --run') reply='any' ;;
    'checkpoint forget --keep-last') reply='any' ;;
    'checkpoint forget --keep-every') reply='any' ;;
    'checkpoint forget --keep-within') reply='any' ;;
    'checkpoint forget --timeout') reply='any' ;;
    'checkpoint forget --store') reply='dir' ;;
    'checkpoint forget --threads') reply='any' ;;
    'checkpoint forget --meta') reply='any' ;;
    'checkpoint forget --net') reply='auto|tcp|verbs' ;;
    'checkpoint forget --rdma-device') reply='any' ;;
    'checkpoint forget --rdma-gid') reply='any' ;;
    'checkpoint forget --rdma-sl') reply='any' ;;
    'checkpoint forget --tls-cert') reply='file' ;;
    'checkpoint forget --tls-key') reply='file' ;;
    'checkpoint forget --tls-ca') reply='file' ;;
    'checkpoint forget --key') reply='file' ;;
    'checkpoint forget --token') reply='file' ;;
    'checkpoint prune --grace') reply='any' ;;
    'checkpoint prune --wait') reply='any' ;;
    'checkpoint prune --timeout') reply='any' ;;
    'checkpoint prune --store') reply='dir' ;;
    'checkpoint prune --threads') reply='any' ;;
    'checkpoint prune --meta') reply='any' ;;
    'checkpoint prune --net') reply='auto|tcp|verbs' ;;
    'checkpoint prune --rdma-device') reply='any' ;;
    'checkpoint prune --rdma-gid') reply='any' ;;
    'checkpoint prune --rdma-sl') reply='any' ;;
    'checkpoint prune --tls-cert') reply='file' ;;
    'checkpoint prune --tls-key') reply='file' ;;
    'checkpoint prune --tls-ca') reply='file' ;;
    'checkpoint prune --key') reply='file' ;;
    'checkpoint prune --token') reply='file' ;;
    'checkpoint export --file') reply='any' ;;
    'checkpoint export --tensor') reply='any' ;;
    'checkpoint export --rank') reply='any' ;;
    'checkpoint export --timeout') reply='any' ;;
    'checkpoint export --store') reply='dir' ;;
    'checkpoint export --threads') reply='any' ;;
    'checkpoint export --meta') reply='any' ;;
    'checkpoint export --net') reply='auto|tcp|verbs' ;;
    'checkpoint export --rdma-device') reply='any' ;;
    'checkpoint export --rdma-gid') reply='any' ;;
    'checkpoint export --rdma-sl') reply='any' ;;
    'checkpoint export --tls-cert') reply='file' ;;
    'checkpoint export --tls-key') reply='file' ;;
    'checkpoint export --tls-ca') reply='file' ;;
    'checkpoint export --key') reply='file' ;;
    'checkpoint export --token') reply='file' ;;
    'checkpoint salvage --timeout') reply='any' ;;
    'checkpoint salvage --store') reply='dir' ;;
    'checkpoint salvage --threads') reply='any' ;;
    'checkpoint salvage --meta') reply='any' ;;
    'checkpoint salvage --net') reply='auto|tcp|verbs' ;;
    'checkpoint salvage --rdma-device') reply='any' ;;
    'checkpoint salvage --rdma-gid') reply='any' ;;
    'checkpoint salvage --rdma-sl') reply='any' ;;
    'checkpoint salvage --tls-cert') reply='file' ;;
    'checkpoint salvage --tls-key') reply='file' ;;
    'checkpoint salvage --tls-ca') reply='file' ;;
    'checkpoint salvage --key') reply='file' ;;
    'checkpoint salvage --token') reply='file' ;;
    'checkpoint watch --run') reply='any' ;;
    'checkpoint watch --opaque') reply='any' ;;
    'checkpoint watch --digest') reply='xxh128|sha256' ;;
    'checkpoint watch --settle') reply='any' ;;
    'checkpoint watch --timeout') reply='any' ;;
    'checkpoint watch --store') reply='dir' ;;
    'checkpoint watch --threads') reply='any' ;;
    'checkpoint watch --meta') reply='any' ;;
    'checkpoint watch --net') reply='auto|tcp|verbs' ;;
    'checkpoint watch --rdma-device') reply='any' ;;
    'checkpoint watch --rdma-gid') reply='any' ;;
    'checkpoint watch --rdma-sl') reply='any' ;;
    'checkpoint watch --tls-cert') reply='file' ;;
    'checkpoint watch --tls-key') reply='file' ;;
    'checkpoint watch --tls-ca') reply='file' ;;
    'checkpoint watch --key') reply='file' ;;
    'checkpoint watch --token') reply='file' ;;
    'help --emit') reply='dir' ;;
    'help --install') reply='dir' ;;
    'serve-meta --kv') reply='any' ;;
    'serve-meta --dir') reply='dir' ;;
    'serve-meta --etcd-ca') reply='file' ;;
    'serve-meta --etcd-cert') reply='file' ;;
    'serve-meta --etcd-key') reply='file' ;;
    'serve-meta --collect-after') reply='any' ;;
    'serve-meta --listen') reply='any' ;;
    'serve-meta --advertise') reply='any' ;;
    'serve-meta --http') reply='any' ;;
    'serve-meta --net') reply='auto|tcp|verbs' ;;
    'serve-meta --rdma-device') reply='any' ;;
    'serve-meta --rdma-gid') reply='any' ;;
    'serve-meta --rdma-sl') reply='any' ;;
    'serve-meta --tls-cert') reply='file' ;;
    'serve-meta --tls-key') reply='file' ;;
    'serve-meta --tls-ca') reply='file' ;;
    'serve-meta --key') reply='file' ;;
    'serve-meta --token') reply='file' ;;
    'serve-storage --disk') reply='dir' ;;
    'serve-storage --meta') reply='any' ;;
    'serve-storage --node') reply='any' ;;
    'serve-storage --name') reply='any' ;;
    'serve-storage --domain') reply='any' ;;
    'serve-storage --io') reply='direct|buffered' ;;
    'serve-storage --resync-limit') reply='any' ;;
    'serve-storage --scrub-limit') reply='any' ;;
    'serve-storage --listen') reply='any' ;;
    'serve-storage --advertise') reply='any' ;;
    'serve-storage --http') reply='any' ;;
    'serve-storage --net') reply='auto|tcp|verbs' ;;
    'serve-storage --rdma-device') reply='any' ;;
    'serve-storage --rdma-gid') reply='any' ;;
    'serve-storage --rdma-sl') reply='any' ;;
    'serve-storage --tls-cert') reply='file' ;;
    'serve-storage --tls-key') reply='file' ;;
    'serve-storage --tls-ca') reply='file' ;;
    'serve-storage --key') reply='file' ;;
    'serve-storage --token') reply='file' ;;
    'sim --story') reply='any' ;;
    'sim --seed') reply='any' ;;
    'sim --seeds') reply='any' ;;
  esac
}
_ff_argument() {
  reply=
  case "$1 $2" in
    'admin replace-target '0) reply='any' ;;
    'admin accept-loss '0) reply='any' ;;
    'admin backup '0) reply='file' ;;
    'admin restore '0) reply='file' ;;
    'bench disk '0) reply='dir' ;;
    'bench chunk '0) reply='dir' ;;
    'checkpoint save '*) reply='file' ;;
    'checkpoint load '0) reply='any' ;;
    'checkpoint load '1) reply='dir' ;;
    'checkpoint ls '0) reply='any' ;;
    'checkpoint show '0) reply='any' ;;
    'checkpoint diff '0) reply='any' ;;
    'checkpoint diff '1) reply='any' ;;
    'checkpoint latest '0) reply='any' ;;
    'checkpoint verify '*) reply='any' ;;
    'checkpoint forget '*) reply='any' ;;
    'checkpoint export '0) reply='any' ;;
    'checkpoint export '1) reply='file' ;;
    'checkpoint salvage '0) reply='any' ;;
    'checkpoint salvage '1) reply='dir' ;;
    'checkpoint watch '0) reply='dir' ;;
    'help '*) reply='command' ;;
  esac
}

# Completes the word under the cursor as a value of this kind.
_ff_offer() {
  case $1 in
    any) ;;
    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    dir) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${1//|/ }" -- "$2") ;;
  esac
}

_ff() {
  local cur=${COMP_WORDS[COMP_CWORD]} path= topic= value= options=1 operands=0 word i reply
  local program=${COMP_WORDS[0]##*/}
  COMPREPLY=()
  [[ $program == ff-* ]] && path=${program#ff-}
  [[ $cur == '=' ]] && cur=
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '=' ]]; then
      continue
    elif [[ -n $value ]]; then
      value=
    elif [[ $options == 1 && $word == -- ]]; then
      options=0
    elif [[ $options == 1 && $word == -?* ]]; then
      _ff_value "$path" "$word"
      value=$reply
    else
      _ff_subs "$path"
      if [[ " $reply " == *" $word "* ]]; then
        path="${path:+$path }$word"
      else
        operands=$((operands + 1))
        topic="${topic:+$topic }$word"
      fi
    fi
  done
  if [[ -n $value ]]; then
    _ff_offer "$value" "$cur"
  elif [[ $options == 1 && $cur == -* ]]; then
    _ff_options "$path"
    _ff_offer "$reply" "$cur"
  else
    _ff_subs "$path"
    if [[ -z $reply ]]; then
      _ff_argument "$path" "$operands"
      if [[ $reply == command ]]; then
        _ff_subs "$topic"
        [[ -z $topic ]] && reply+=' config exit-codes'
      fi
    fi
    _ff_offer "${reply:-any}" "$cur"
  fi
}

complete -F _ff ff ff-admin ff-bench ff-checkpoint ff-help ff-serve-meta ff-serve-storage ff-sim
