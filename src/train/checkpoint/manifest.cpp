#include "train/checkpoint/manifest.hpp"

#include "core/error.hpp"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <array>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr char const* first_words = "trainstone checkpoint ";

std::string first_line(std::string_view content) {
  return fmt::format("{}{} {:016x}\n", first_words, checkpoint_version, XXH3_64bits(content.data(), content.size()));
}

Json json_of(CheckpointFile const& file) {
  Json parts = Json::array();
  for (CheckpointPart const& part : file.parts) parts.push_back({part.group, part.range.begin, part.range.end});
  return {{"name", file.name}, {"bytes", file.digest.bytes}, {"xxh3", file.digest.hash}, {"parts", parts}};
}

CheckpointFile file_of(Json const& json) {
  CheckpointFile file{json.at("name"), {json.at("bytes"), json.at("xxh3")}, {}};
  for (Json const& part : json.at("parts")) file.parts.push_back({part.at(0), {part.at(1), part.at(2)}});
  return file;
}

using ModelMember = std::pair<char const*, std::int64_t GptConfig::*>;
constexpr std::array model_members{ModelMember{"layers", &GptConfig::layers}, ModelMember{"heads", &GptConfig::heads},
                                   ModelMember{"channels", &GptConfig::channels},
                                   ModelMember{"context", &GptConfig::context},
                                   ModelMember{"vocab", &GptConfig::vocab}};

Json json_of(TrainingProgress const& progress) {
  LossScaler::State const& scaler = progress.loss_scaler;
  return {{"step", progress.step},
          {"updates", progress.updates},
          {"loss_scale", scaler.scale},
          {"steps_since_overflow", scaler.good_steps},
          {"skipped_in_a_row", scaler.skipped_in_a_row},
          {"restarts", progress.restarts},
          {"finished", progress.finished},
          {"losses", progress.losses}};
}

TrainingProgress progress_of(Json const& json) {
  return {.step = json.at("step"),
          .updates = json.at("updates"),
          .loss_scaler = {json.at("loss_scale"), json.at("steps_since_overflow"), json.at("skipped_in_a_row")},
          .losses = json.at("losses"),
          .restarts = json.at("restarts"),
          .finished = json.at("finished")};
}

/// Sizes fit to parts, and parts cover every group exactly once.
void require_complete(CheckpointManifest const& manifest) {
  std::vector<std::vector<Range>> ranges(manifest.groups.size());
  for (CheckpointFile const& file : manifest.files) {
    Index elements = 0;
    for (CheckpointPart const& part : file.parts) {
      TRAINSTONE_REQUIRE_INPUT(part.group >= 0 && part.group < std::ssize(ranges), "{} has group {} of {}", file.name,
                               part.group, ranges.size());
      ranges[static_cast<std::size_t>(part.group)].push_back(part.range);
      elements += part.range.size();
    }
    auto const bytes = static_cast<std::uint64_t>(elements * manifest.vectors) * sizeof(float);
    TRAINSTONE_REQUIRE_INPUT(file.digest.bytes == bytes, "{} has {} bytes, its parts have {}", file.name,
                             file.digest.bytes, bytes);
  }
  for (std::size_t g = 0; g < ranges.size(); ++g) {
    std::ranges::sort(ranges[g], {}, &Range::begin);
    Index end = 0;
    for (Range const& range : ranges[g]) {
      TRAINSTONE_REQUIRE_INPUT(range.begin == end && range.end > range.begin, "group {} has elements [{}, {}) after {}",
                               manifest.groups[g].name, range.begin, range.end, end);
      end = range.end;
    }
    TRAINSTONE_REQUIRE_INPUT(end == manifest.groups[g].size, "group {} has {} of {} elements", manifest.groups[g].name,
                             end, manifest.groups[g].size);
  }
}

CheckpointManifest manifest_of(Json const& json) {
  CheckpointManifest manifest;
  manifest.written_by = json.at("written_by");
  for (auto const& [name, member] : model_members) manifest.model.*member = json.at("model").at(name);
  manifest.progress = progress_of(json.at("progress"));
  for (auto const& [key, value] : json.at("identity").items()) manifest.identity.emplace_back(key, value);
  for (Json const& group : json.at("groups")) manifest.groups.push_back({group.at("name"), group.at("size")});
  manifest.vectors = json.at("vectors");
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

std::vector<CheckpointGroup> groups_of(std::vector<ParameterGroup> const& groups) {
  std::vector<CheckpointGroup> unpadded;
  for (ParameterGroup const& group : groups) unpadded.push_back({group.name, group.size});
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
  std::string const content = json.dump(1) + "\n";
  return first_line(content) + content;
}

CheckpointManifest read_manifest(std::string const& text) {
  std::string const version = version_in(text);
  TRAINSTONE_REQUIRE_INPUT(version == std::to_string(checkpoint_version),
                           "the checkpoint has version {}, this program reads version {}", version, checkpoint_version);
  std::string const content = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
  TRAINSTONE_REQUIRE_INPUT(text == first_line(content) + content, "the manifest is damaged: its hash is another one");
  try {
    CheckpointManifest manifest = manifest_of(Json::parse(content));
    require_complete(manifest);
    return manifest;
  } catch (Json::exception const& problem) { // written by something else
    throw InputError(fmt::format("the manifest is not readable: {}", problem.what()));
  }
}

std::string to_text(CheckpointFile const& file) { return json_of(file).dump(); }

CheckpointFile read_checkpoint_file(std::string const& text) { return file_of(Json::parse(text)); }

} // namespace trainstone
