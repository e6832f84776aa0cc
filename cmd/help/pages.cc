// The manual pages that are written by hand: ff(7) and the guides beside it. The
// binary contains them for `ff generate docs`.
#include "cmd/help/emit.h"
#include "platform/base/embed.h"

// FF_MAN_FOLDER: the directory of the sources.
FF_EMBED(ff_man_ff, FF_MAN_FOLDER "/ff.7");
FF_EMBED(ff_man_cluster, FF_MAN_FOLDER "/ff-cluster.7");
FF_EMBED(ff_man_operations, FF_MAN_FOLDER "/ff-operations.7");
FF_EMBED(ff_man_storage, FF_MAN_FOLDER "/ff-storage.7");
FF_EMBED(ff_man_training, FF_MAN_FOLDER "/ff-training.7");

namespace ff::cmd {

std::vector<EmittedFile> handwritten_pages() {
  return {{"man/ff.7", ff_man_ff},
          {"man/ff-cluster.7", ff_man_cluster},
          {"man/ff-operations.7", ff_man_operations},
          {"man/ff-storage.7", ff_man_storage},
          {"man/ff-training.7", ff_man_training}};
}

}  // namespace ff::cmd
