// fsck_report.cc: the names of problem kinds in reports.
#include "storage/meta/fsck_report.h"

namespace ff::meta {

std::string_view name_of(FsckProblem::Kind kind) {
  switch (kind) {
    case FsckProblem::Kind::dangling_name: return "dangling-name";
    case FsckProblem::Kind::name_nowhere: return "name-nowhere";
    case FsckProblem::Kind::second_name: return "second-name";
    case FsckProblem::Kind::wrong_kind: return "wrong-kind";
    case FsckProblem::Kind::wrong_links: return "wrong-links";
    case FsckProblem::Kind::wrong_parent: return "wrong-parent";
    case FsckProblem::Kind::lost: return "lost";
    case FsckProblem::Kind::not_collected: return "not-collected";
    case FsckProblem::Kind::stray_record: return "stray-record";
    case FsckProblem::Kind::missing_times: return "missing-times";
    case FsckProblem::Kind::wrong_xattrs: return "wrong-xattrs";
    case FsckProblem::Kind::orphan_chunks: return "orphan-chunks";
    case FsckProblem::Kind::unreadable: return "unreadable";
  }
  return "unreadable";
}

}  // namespace ff::meta
