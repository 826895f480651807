#include "train/checkpoint/checkpoint.hpp"

#include "comm/execution/control.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "model/parameter_runs.hpp"
#include "train/checkpoint/folder.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

/// So many elements are on the host at a time.
constexpr Index chunk = Index{1} << 18;

/// Calls work(part) on the parts of a range, of so many elements each.
void in_chunks(Range const& range, std::function<void(Range const& part)> const& work) {
  for (Index begin = range.begin; begin < range.end; begin += chunk) work({begin, std::min(begin + chunk, range.end)});
}

/// This rank's file, if it has anything to write; else one without a name.
CheckpointFile write_file(ExecutionSpace const& exec, ShardedEngine const& engine, Index vectors,
                          fs::path const& folder) {
  CheckpointFile file;
  std::vector<WrittenPart> const parts = written_parts(engine.plan().layout, engine.table());
  if (parts.empty()) return file;
  file.name = checkpoint_file_name(engine.plan().layout.rank);
  DurableOutput output(folder / file.name);
  std::vector<float> values(static_cast<std::size_t>(chunk));
  for (WrittenPart const& written : parts) {
    CheckpointPart const& part = file.parts.emplace_back(written.part);
    for (Index vector = 0; vector < vectors; ++vector) {
      auto const write = [&](Range const&, Vector<float> const& piece) {
        reach_delay_point("trainstone::checkpoint::write");
        std::span<float> const out = std::span(values).first(piece.size());
        copy_to_host<float>(exec, piece, out, "trainstone::checkpoint::write: it goes to a file");
        if (!std::ranges::all_of(out, [](float value) { return std::isfinite(value); }))
          throw Error(fmt::format("{}: values that are not finite are not kept in a checkpoint",
                                  engine.plan().layout.groups[static_cast<std::size_t>(written.group)].name));
        output.write(std::as_bytes(out));
      };
      // parameters or master copy first, then the moments
      in_chunks({written.in_share, written.in_share + part.elements()},
                [&](Range const& some) { engine.read_state(vector, written.group, some, write); });
    }
  }
  file.digest = output.finish();
  return file;
}

/// A part of a group, with zeros for padding.
void fill_share(ExecutionSpace const& exec, StoredCheckpoint const& checkpoint, ParameterTable const& table,
                Index vector, Index group, Range range, StoredVector out) {
  Index const number = table.groups()[static_cast<std::size_t>(group)].number;
  std::vector<float> values(static_cast<std::size_t>(std::min(chunk, range.size())));
  in_chunks(range, [&](Range const& some) {
    std::span<float> const part = std::span(values).first(static_cast<std::size_t>(some.size()));
    std::ranges::fill(part, 0.0f);
    for (GroupRun const& run : group_runs(table, group, some)) {
      auto const place = static_cast<std::size_t>(run.in_group - some.begin);
      auto const count = static_cast<std::size_t>(run.in_whole.size());
      checkpoint.read(vector, number, run.in_whole, part.subspan(place, count));
    }
    copy_from_host<float>(exec, part, out.part(some.begin - range.begin, some.size()).as<float>(),
                          "trainstone::checkpoint::read: the host buffer is reused");
  });
}

} // namespace

Range written_range(StateLayout const& layout, Index group) {
  if (!layout.counts(group)) return {};
  Range range = layout.share(group);
  Index const end = layout.groups[static_cast<std::size_t>(group)].end();
  range.begin = std::min(range.begin, end);
  range.end = std::min(range.end, end);
  return Partition::even(range, layout.mesh.replica).range(layout.mesh.index(Axis::replica, layout.rank));
}

namespace {

/// Whether a run goes on with a part: as long as the part's runs, next here and as far away as they are from each
/// other.
bool continues(WrittenPart const& written, Index in_share, Range const& run) {
  CheckpointPart const& part = written.part;
  Index const stride = run.begin - part.run(part.runs - 1).begin;
  return in_share == written.in_share + part.elements() && run.size() == part.range.size() && stride > run.size() &&
         (part.runs == 1 || stride == part.stride);
}

} // namespace

std::vector<WrittenPart> written_parts(StateLayout const& layout, ParameterTable const& table) {
  std::vector<WrittenPart> parts;
  for (Index g = 0; g < std::ssize(layout.groups); ++g) {
    auto const counts = [&](ParameterTensor const& tensor) { return layout.counts(g, tensor); };
    std::size_t const of_group = parts.size();
    for (GroupRun const& run : group_runs(table, g, written_range(layout, g), counts)) {
      Index const in_share = run.in_group - layout.share(g).begin;
      if (parts.size() > of_group && continues(parts.back(), in_share, run.in_whole)) {
        CheckpointPart& part = parts.back().part;
        part.stride = run.in_whole.begin - part.run(part.runs - 1).begin;
        ++part.runs;
      } else {
        parts.push_back({{layout.groups[static_cast<std::size_t>(g)].number, run.in_whole}, g, in_share});
      }
    }
  }
  return parts;
}

WrittenCheckpoint write_checkpoint(ExecutionSpace const& exec, Communicator const& communicator, ShardedEngine& engine,
                                   CheckpointManifest about, fs::path const& folder) {
  auto const start = std::chrono::steady_clock::now();
  bool const first = communicator.rank() == 0;
  engine.finish();
  about.groups = groups_of(about.model);
  about.vectors = state_vectors(engine.plan().layout);

  std::optional<UnfinishedCheckpoint> unfinished;
  collectively(communicator, [&] {
    if (first) unfinished.emplace(folder, about.progress.step);
  });
  fs::path const path = all_gather_texts(communicator, unfinished ? unfinished->path().string() : "").front();
  CheckpointFile mine;
  collectively(communicator, [&] { mine = write_file(exec, engine, about.vectors, path); });
  WrittenCheckpoint written;
  for (std::string const& text : all_gather_texts(communicator, to_text(mine))) {
    CheckpointFile file = read_checkpoint_file(text);
    written.bytes += file.digest.bytes;
    if (!file.name.empty()) about.files.push_back(std::move(file));
  }
  collectively(communicator, [&] {
    if (!first) return;
    for (CheckpointFile const& file : about.files)
      if (std::error_code missing; fs::file_size(path / file.name, missing) != file.digest.bytes || missing)
        throw Error(
            fmt::format("checkpoint.dir {}: rank 0 does not see all of {} of another node; it must be a folder that "
                        "all nodes share",
                        folder.string(), file.name));
    std::string const text = to_text(about);
    read_manifest(text); // what could not be read again is not written
    reach_delay_point("trainstone::checkpoint::write");
    DurableOutput manifest(path / manifest_name);
    manifest.write(std::as_bytes(std::span(text)));
    manifest.finish();
    reach_delay_point("trainstone::checkpoint::write");
    written.name = unfinished->finish();
  });
  written.name = all_gather_texts(communicator, written.name).front();
  written.seconds = seconds_since(start);
  return written;
}

StoredCheckpoint verify_checkpoint(Communicator const& communicator, fs::path const& path,
                                   TrainingIdentity const& identity, GptConfig const& model, Index vectors) {
  std::optional<StoredCheckpoint> checkpoint;
  std::string text; // rank 0's: no rank goes on from another one
  collectively(communicator, [&] {
    if (communicator.rank() == 0) text = read_manifest_text(path);
  });
  text = all_gather_texts(communicator, text).front();
  collectively(communicator, [&] {
    CheckpointManifest const& manifest = checkpoint.emplace(path, text).manifest();
    checkpoint->require_identity(identity);
    std::vector<CheckpointGroup> const groups = groups_of(model);
    if (manifest.groups != groups || manifest.vectors != vectors)
      checkpoint->refuse(fmt::format("it holds another model: {} groups of {} vectors each, this training has {} of {}",
                                     manifest.groups.size(), manifest.vectors, groups.size(), vectors));
  });
  collectively(communicator, [&] {
    auto const ranks = static_cast<std::size_t>(communicator.size());
    for (auto i = static_cast<std::size_t>(communicator.rank()); i < checkpoint->manifest().files.size(); i += ranks)
      checkpoint->require_whole(i);
  });
  return std::move(*checkpoint);
}

void read_checkpoint(ExecutionSpace const& exec, ShardedEngine& engine, StoredCheckpoint const& checkpoint) {
  engine.set_state([&](Index vector, Index group, Range part, Vector<float> values) {
    fill_share(exec, checkpoint, engine.table(), vector, group, part, values);
  });
}

} // namespace trainstone
