// trainstone export: the model in a checkpoint as a file of llm.c.

#include "commands.hpp"

#include "core/atomic_file.hpp"
#include "train/checkpoint/export.hpp"
#include "train/checkpoint/stored_checkpoint.hpp"

#include <fmt/format.h>

namespace trainstone {

int export_checkpoint(ExportOptions const& options) {
  require_writable(options.file);
  StoredCheckpoint const checkpoint(options.checkpoint);
  export_model(checkpoint, options.file);
  fmt::print("model after step {} written to {}\n", checkpoint.manifest().progress.step, options.file);
  return 0;
}

} // namespace trainstone
