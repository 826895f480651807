#include "deck/key_builders.hpp"
#include "deck/key_sections.hpp"

namespace trainstone::Impl {

std::vector<Key> data_keys() {
  auto const data = &RunConfig::data;
  auto const length = &RunConfig::length;
  return {
      choice("data.source", data, &DataConfig::source,
             {{"synthetic", DataSource::synthetic}, {"text", DataSource::text}, {"tokens", DataSource::tokens}},
             "synthetic (learnable, without files), text (the bytes of any files) or tokens (llm.c shards)"),
      key("data.files", data, &DataConfig::files, "training files, read in this order; relative to the deck's folder"),
      number("data.sequence", data, &DataConfig::sequence, "tokens", up_to(billion),
             "length of a sample; 0 = model.context"),
      number("data.seed", data, &DataConfig::seed, "", {}, "seed of initial values, data order and synthetic data"),
      key("data.xxhash", data, &DataConfig::xxhash,
          "XXH3 of the bytes of data.files, 16 hexadecimal digits; other files are refused"),
      key("data.validation_files", data, &DataConfig::validation_files,
          "held-out files of the same source; relative to the deck's folder"),
      number("data.validation_fraction", data, &DataConfig::validation_fraction, "", up_to(0.5),
             "held-out share of the samples, taken from the end; instead of data.validation_files"),
      number("data.validate_every", data, &DataConfig::validate_every, "steps", up_to(trillion),
             "how often the held-out loss is measured; 0 = after the last step only"),
      number("data.validation_batches", data, &DataConfig::validation_batches, "global batches", up_to(trillion),
             "batches of one validation; 0 = all held-out samples that fill batches"),
      number("data.validation_micro", data, &DataConfig::validation_micro, "samples", up_to(million),
             "samples of held-out data that a rank evaluates at a time; a divisor of batch.micro x batch.accumulation; "
             "0 = batch.micro; not with stages, tensor ranks, servers that workers do not wait for, and naive"),
      number("data.steps", length, &RunLength::steps, "steps", up_to(trillion),
             "length of the training: this or data.epochs; the schedule depends on it"),
      number("data.epochs", length, &RunLength::epochs, "epochs", up_to(million),
             "length of the training: this or data.steps"),
      number("data.stop_loss", length, &RunLength::stop_loss, "nats", {},
             "the training ends when the held-out loss is at most this, but measures at least one step; 0 = never"),
  };
}

} // namespace trainstone::Impl
