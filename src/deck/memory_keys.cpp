// The keys of what lies where in memory and in files.

#include "deck/key_builders.hpp"
#include "deck/key_sections.hpp"

namespace trainstone::Impl {

std::vector<Key> memory_keys() {
  return {
      choices("memory.recompute", &RunConfig::model_options, &GptOptions::recompute,
              {{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}},
              "what blocks compute again before their backward instead of keeping it; one value for all blocks, or "
              "a value each; selective: the probabilities of materialized attention; full: all but a block's "
              "output and, if masks are stored, the mask of its last dropout"),
      number("memory.loss_chunks", &RunConfig::model_options, &GptOptions::loss_chunks, "",
             {.minimum = 1, .maximum = million},
             "equal parts of a micro-batch's rows, for which the head computes logits and their gradients one "
             "after the other; changes the order in which the token table's gradient is added up"),
      choice("memory.offload_optimizer", &RunConfig::parallel, &ParallelConfig::offload_optimizer,
             {{"none", Residence::kernels}, {"host", Residence::host}, {"file", Residence::file}},
             "where moments and master parameters lie between updates: with the kernels; in other memory of the "
             "host, which then updates; or in a file of every rank, of which an update reads and writes all"),
      choice("memory.offload_param", &RunConfig::parallel, &ParallelConfig::offload_parameters,
             {{"none", Residence::kernels}, {"host", Residence::host}, {"file", Residence::file}},
             "where a rank's shares of parameters lie that a gather brings together, of zero stage 3 and hsdp: with "
             "the kernels; in other memory of the host; or in a file of every rank, read for every gather"),
      quantity("memory.offload_chunk", &RunConfig::parallel, &ParallelConfig::offload_chunk_bytes, Dimension::size,
               positive(), "of all moved vectors, that an update moves at a time; rounded up to 4 KiB of each vector"),
      key("memory.folder", &RunConfig::parallel, &ParallelConfig::offload_folder,
          "folder for files of offloaded state, on every node; they have no names; \"\" = $TMPDIR or /tmp"),
      choice("memory.direct_io", &RunConfig::parallel, &ParallelConfig::direct_io,
             {{"auto", DirectIo::automatic}, {"on", DirectIo::on}, {"off", DirectIo::off}},
             "whether files of offloaded state pass by the system's cache of files; auto: if the file system can"),
      choice("memory.io_engine", &RunConfig::parallel, &ParallelConfig::io_engine,
             {{"auto", IoEngine::automatic}, {"io_uring", IoEngine::io_uring}, {"psync", IoEngine::psync}},
             "what a thread reads and writes files of offloaded state with; io_uring: pieces of 1 MiB, up to 16 of a "
             "request at a time; psync: pread and pwrite; auto: io_uring, or psync where the build has no liburing or "
             "the system refuses; the run says which")};
}

} // namespace trainstone::Impl
