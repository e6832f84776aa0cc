// fsck_report.cc: the names of problems, as reports give them.
#include "storage/meta/fsck_report.h"

namespace ff::meta {

std::string_view name_of(Problem::Kind kind) {
  switch (kind) {
    case Problem::Kind::dangling_name: return "dangling-name";
    case Problem::Kind::name_nowhere: return "name-nowhere";
    case Problem::Kind::second_name: return "second-name";
    case Problem::Kind::wrong_kind: return "wrong-kind";
    case Problem::Kind::wrong_links: return "wrong-links";
    case Problem::Kind::wrong_parent: return "wrong-parent";
    case Problem::Kind::lost: return "lost";
    case Problem::Kind::not_collected: return "not-collected";
    case Problem::Kind::stray_record: return "stray-record";
    case Problem::Kind::missing_times: return "missing-times";
    case Problem::Kind::wrong_xattrs: return "wrong-xattrs";
    case Problem::Kind::orphan_chunks: return "orphan-chunks";
    case Problem::Kind::unreadable: return "unreadable";
  }
  return "unreadable";
}

}  // namespace ff::meta
