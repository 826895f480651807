#include "train/data/training_data.hpp"

#include "train/data/sample_order.hpp"

namespace trainstone {

namespace {

/// \param[out] found  the files' hash, if they are scanned
std::unique_ptr<FileTokens> open_files(RunConfig const& config, std::vector<std::string> const& files, ScanTokens scan,
                                       std::uint64_t& found) {
  bool const text = config.data.source == DataSource::text;
  auto tokens = std::make_unique<FileTokens>(files, text ? TokenFormat::text : TokenFormat::shard);
  if (scan == ScanTokens::yes) found = tokens->scan(config.model.vocab).xxhash;
  return tokens;
}

std::unique_ptr<TokenSource> open_training(RunConfig const& config, ScanTokens scan, std::uint64_t& found) {
  if (config.data.source == DataSource::synthetic)
    return std::make_unique<SyntheticTokens>(static_cast<std::uint64_t>(config.data.seed), config.model.vocab,
                                             synthetic_tokens);
  auto tokens = open_files(config, config.data.files, scan, found);
  if (scan == ScanTokens::yes) require_xxhash(config.data.xxhash, found);
  return tokens;
}

} // namespace

TrainingData::TrainingData(RunConfig const& config, ScanTokens scan)
    : m_batch(config.batch),
      m_seed(static_cast<std::uint64_t>(config.data.seed)),
      m_training(open_training(config, scan, m_xxhash)),
      m_held_out_batch(held_out_batch(config)) {
  Index const sequence = config.data.sequence;
  if (!config.data.validation_files.empty()) {
    std::uint64_t unused = 0;
    m_validation = open_files(config, config.data.validation_files, scan, unused);
    m_split = split_by_source(*m_training, *m_validation, sequence);
  } else {
    m_split = split_by_fraction(*m_training, sequence, config.data.validation_fraction);
  }
  if (m_split.held_out.count > 0)
    m_validation_batches = validation_batches(m_split.held_out, m_batch, config.data.validation_batches);
  m_steps = config.length.steps > 0 ? config.length.steps
                                    : steps_of_epochs(config.length.epochs, m_split.training.count, m_batch.global);
}

FileReads TrainingData::reads() const {
  FileReads all = m_training->reads();
  if (m_validation) all += m_validation->reads();
  return all;
}

TrainingBatches TrainingData::batches() const {
  TrainingBatches sources;
  sources.training = [this](std::int64_t step, Index micro_batch, auto inputs, auto targets) {
    read_training_batch(m_split.training, m_seed, m_batch, step, micro_batch, inputs, targets);
  };
  sources.validation = [this](std::int64_t batch, Index micro_batch, auto inputs, auto targets) {
    read_validation_batch(m_split.held_out, m_held_out_batch, batch, micro_batch, inputs, targets);
  };
  sources.validation_batches = m_validation_batches;
  return sources;
}

} // namespace trainstone
