#include "train/checkpoint/manifest.hpp"

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "train/checkpoint/folder.hpp"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <set>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr char const* first_words = "trainstone checkpoint ";

std::string first_line(std::string_view content) {
  return fmt::format("{}{} {:016x}\n", first_words, checkpoint_version, XXH3_64bits(content.data(), content.size()));
}

Json json_of(CheckpointFile const& file) {
  Json parts = Json::array();
  for (CheckpointPart const& part : file.parts) {
    parts.push_back({part.group, part.range.begin, part.range.end});
    if (part.runs > 1) parts.back().insert(parts.back().end(), {part.runs, part.stride});
  }
  return {{"name", file.name}, {"bytes", file.digest.bytes}, {"xxh3", file.digest.hash}, {"parts", parts}};
}

/// A manifest may come from anybody: nothing of it is believed that was not looked at.
constexpr std::size_t most_bytes = std::size_t{1} << 30; // a part takes about 60: of 65,536 ranks and 270 groups
constexpr int most_depth = 8;                            // of lists and objects in each other
constexpr Index most_vectors = 16;                       // with largest_gpt their bytes are below 2^63
constexpr Index most_steps = Index{1} << 53;             // counts of steps
constexpr Index most_runs = 2 * largest_gpt.channels;    // of a part: rows of tensors whose columns are cut

/// An integer, in any part of the manifest. \throws InputError unless it is within the bounds
Index integer(Json const& json, Index least, Index most) {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  bool const whole = json.is_number_integer() && (!json.is_number_unsigned() || json.get<std::uint64_t>() <= largest);
  TRAINSTONE_REQUIRE_INPUT(whole && json.get<Index>() >= least && json.get<Index>() <= most,
                           "the manifest has {} in place of an integer from {} to {}",
                           json.is_number() ? json_line(json) : json.type_name(), least, most);
  return json.get<Index>();
}

std::uint64_t amount(Json const& json) {
  TRAINSTONE_REQUIRE_INPUT(json.is_number_unsigned(), "the manifest has {} in place of an amount",
                           json.is_number() ? json_line(json) : json.type_name());
  return json.get<std::uint64_t>();
}

CheckpointFile file_of(Json const& json) {
  constexpr Index most = std::numeric_limits<Index>::max();
  CheckpointFile file{json.at("name"), {amount(json.at("bytes")), amount(json.at("xxh3"))}, {}};
  for (Json const& part : json.at("parts")) {
    file.parts.push_back({integer(part.at(0), 0, most), {integer(part.at(1), 0, most), integer(part.at(2), 0, most)}});
    if (part.size() == 3) continue;
    file.parts.back().runs = integer(part.at(3), 2, most_runs);
    file.parts.back().stride = integer(part.at(4), 1, most);
  }
  return file;
}

using ModelMember = std::pair<char const*, std::int64_t GptConfig::*>;
constexpr std::array model_members{ModelMember{"layers", &GptConfig::layers}, ModelMember{"heads", &GptConfig::heads},
                                   ModelMember{"channels", &GptConfig::channels},
                                   ModelMember{"context", &GptConfig::context},
                                   ModelMember{"vocab", &GptConfig::vocab}};

Json json_of(TrainingProgress const& progress) {
  LossScaler::State const& scaler = progress.loss_scaler;
  Json acts = Json::array();
  for (ServerAct const& act : progress.acts) acts.push_back(to_number(act));
  return {{"step", progress.step},
          {"updates", progress.updates},
          {"loss_scale", scaler.scale},
          {"steps_since_overflow", scaler.good_steps},
          {"skipped_in_a_row", scaler.skipped_in_a_row},
          {"restarts", progress.restarts},
          {"finished", progress.finished},
          {"losses", progress.losses},
          {"norms", progress.early.norms},
          {"changes", progress.early.changes},
          {"changed_after", progress.early.changed_after},
          {"acts", std::move(acts)}};
}

/// The text has null in place of a norm that is not a number: the step was skipped, or none is computed.
std::vector<double> norms_of(Json const& json) {
  std::vector<double> norms;
  for (Json const& norm : json)
    norms.push_back(norm.is_null() ? std::numeric_limits<double>::quiet_NaN() : norm.get<double>());
  return norms;
}

std::vector<ServerAct> acts_of(Json const& json) {
  std::vector<ServerAct> acts;
  for (Json const& act : json) acts.push_back(act_of(integer(act, 0, std::numeric_limits<Rank>::max())));
  return acts;
}

TrainingProgress progress_of(Json const& json) {
  auto const count = [&](char const* name) { return integer(json.at(name), 0, most_steps); };
  return {.step = count("step"),
          .updates = count("updates"),
          .loss_scaler = {json.at("loss_scale"), count("steps_since_overflow"), count("skipped_in_a_row")},
          .losses = json.at("losses"),
          .restarts = count("restarts"),
          .finished = json.at("finished"),
          .early = {norms_of(json.at("norms")), json.at("changes"), count("changed_after")},
          .acts = acts_of(json.at("acts"))};
}

/// Each file has a name of its own, of a file in the checkpoint's folder.
void require_plain_names(CheckpointManifest const& manifest) {
  std::set<std::string> names{manifest_name};
  for (CheckpointFile const& file : manifest.files) {
    bool const plain = !file.name.empty() && file.name != "." && file.name != ".." &&
                       file.name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
    TRAINSTONE_REQUIRE_INPUT(plain, "no name of a file in the checkpoint's folder: \"{}\"", file.name);
    TRAINSTONE_REQUIRE_INPUT(names.insert(file.name).second, "{} is there twice", file.name);
  }
}

/// A part while a group is gone through: its run that comes next.
struct NextRun {
  CheckpointPart const* part;
  Index number = 0;

  Range range() const { return part->run(number); }
  bool operator>(NextRun const& other) const { return range().begin > other.range().begin; }
};

/// Of one part, before any run is computed: nothing can overflow.
void require_inside(CheckpointFile const& file, CheckpointPart const& part,
                    std::vector<CheckpointGroup> const& groups) {
  TRAINSTONE_REQUIRE_INPUT(part.group < std::ssize(groups), "{} has group {} of {}", file.name, part.group,
                           groups.size());
  CheckpointGroup const& group = groups[static_cast<std::size_t>(part.group)];
  auto const [begin, end] = part.range;
  bool const is_inside = begin < end && end <= group.size && (part.runs == 1 || part.stride >= end - begin) &&
                         (part.runs - 1) <= (group.size - end) / std::max<Index>(1, part.stride);
  TRAINSTONE_REQUIRE_INPUT(is_inside, "group {} of {} elements has {} runs [{}, {}), {} apart", group.name, group.size,
                           part.runs, begin, end, part.stride);
}

/// Parts cover every group exactly once: run by run, whatever part has it.
void require_every_element(CheckpointManifest const& manifest) {
  std::vector<std::vector<NextRun>> parts(manifest.groups.size());
  for (CheckpointFile const& file : manifest.files)
    for (CheckpointPart const& part : file.parts) {
      require_inside(file, part, manifest.groups);
      parts[static_cast<std::size_t>(part.group)].push_back({&part});
    }
  for (std::size_t g = 0; g < parts.size(); ++g) {
    std::priority_queue<NextRun, std::vector<NextRun>, std::greater<>> next(std::greater<>(), std::move(parts[g]));
    Index end = 0;
    while (!next.empty()) {
      NextRun run = next.top();
      next.pop();
      TRAINSTONE_REQUIRE_INPUT(run.range().begin == end, "group {} has elements [{}, {}) after {}",
                               manifest.groups[g].name, run.range().begin, run.range().end, end);
      end = run.range().end;
      if (++run.number < run.part->runs) next.push(run);
    }
    TRAINSTONE_REQUIRE_INPUT(end == manifest.groups[g].size, "group {} has {} of {} elements", manifest.groups[g].name,
                             end, manifest.groups[g].size);
  }
}

/// Of files whose parts cover the groups of a model once: sums are those of parts of the model.
void require_sizes(CheckpointManifest const& manifest) {
  for (CheckpointFile const& file : manifest.files) {
    Index elements = 0;
    for (CheckpointPart const& part : file.parts) elements += part.elements();
    auto const bytes = static_cast<std::uint64_t>(elements * manifest.vectors) * sizeof(float);
    TRAINSTONE_REQUIRE_INPUT(file.digest.bytes == bytes, "{} has {} bytes, its parts have {}", file.name,
                             file.digest.bytes, bytes);
  }
}

void require_sound(CheckpointManifest const& manifest) {
  TRAINSTONE_REQUIRE_INPUT(manifest.groups == groups_of(manifest.model), "its groups are not those of its model");
  require_plain_names(manifest);
  require_every_element(manifest);
  require_sizes(manifest);
}

Json parsed(std::string const& content) {
  return Json::parse(content, [](int depth, Json::parse_event_t, Json const&) {
    TRAINSTONE_REQUIRE_INPUT(depth <= most_depth, "the manifest has lists in each other, more than {}", most_depth);
    return true;
  });
}

CheckpointManifest manifest_of(Json const& json) {
  CheckpointManifest manifest;
  manifest.written_by = json.at("written_by");
  for (auto const& [name, member] : model_members)
    manifest.model.*member = integer(json.at("model").at(name), 1, largest_gpt.*member);
  manifest.progress = progress_of(json.at("progress"));
  for (auto const& [key, value] : json.at("identity").items()) manifest.identity.emplace_back(key, value);
  for (Json const& group : json.at("groups"))
    manifest.groups.push_back({group.at("name"), integer(group.at("size"), 1, std::numeric_limits<Index>::max())});
  manifest.vectors = integer(json.at("vectors"), 1, most_vectors);
  for (Json const& file : json.at("files")) manifest.files.push_back(file_of(file));
  return manifest;
}

/// The version that the first line names. \throws InputError if it is no such line
std::string version_in(std::string const& text) {
  TRAINSTONE_REQUIRE_INPUT(!text.empty(), "the manifest is empty");
  TRAINSTONE_REQUIRE_INPUT(text.starts_with(first_words), "the manifest does not begin with \"{}\"", first_words);
  std::string const rest = text.substr(std::string_view(first_words).size(), 20);
  return rest.substr(0, rest.find_first_of(" \n"));
}

} // namespace

std::vector<CheckpointGroup> groups_of(GptConfig const& model) {
  ParameterTable const table(model, 1);
  std::vector<CheckpointGroup> unpadded;
  for (ParameterGroup const& group : table.groups()) unpadded.push_back({group.name, group.whole_size});
  return unpadded;
}

std::string to_text(CheckpointManifest const& manifest) {
  Json json;
  json["written_by"] = manifest.written_by;
  for (auto const& [name, member] : model_members) json["model"][name] = manifest.model.*member;
  json["progress"] = json_of(manifest.progress);
  json["identity"] = Json::object();
  for (auto const& [key, value] : manifest.identity) json["identity"][key] = value;
  json["groups"] = Json::array();
  for (CheckpointGroup const& group : manifest.groups)
    json["groups"].push_back({{"name", group.name}, {"size", group.size}});
  json["vectors"] = manifest.vectors;
  json["files"] = Json::array();
  for (CheckpointFile const& file : manifest.files) json["files"].push_back(json_of(file));
  std::string const content = json_text(json);
  return first_line(content) + content;
}

void require_manifest_size(std::uintmax_t bytes) {
  TRAINSTONE_REQUIRE_INPUT(bytes <= most_bytes, "the manifest has {} bytes, more than {}", bytes, most_bytes);
}

CheckpointManifest read_manifest(std::string const& text) {
  require_manifest_size(text.size());
  std::string const version = version_in(text);
  TRAINSTONE_REQUIRE_INPUT(version == std::to_string(checkpoint_version),
                           "the checkpoint has version {}, this program reads version {}", version, checkpoint_version);
  std::string const content = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
  TRAINSTONE_REQUIRE_INPUT(text == first_line(content) + content, "the manifest is damaged: its hash is another one");
  try {
    CheckpointManifest manifest = manifest_of(parsed(content));
    require_sound(manifest);
    return manifest;
  } catch (Json::exception const& problem) { // written by something else
    throw InputError(fmt::format("the manifest is not readable: {}", problem.what()));
  }
}

std::string to_text(CheckpointFile const& file) { return json_line(json_of(file)); }

CheckpointFile read_checkpoint_file(std::string const& text) { return file_of(Json::parse(text)); }

} // namespace trainstone
