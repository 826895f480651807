// Published trainings: their figures agree with each other and with the model that the deck describes, and predictions
// follow from the stated machine alone.

#include "advice/published_runs.hpp"

#include "model/parameter_table.hpp"
#include "support/lines.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

using namespace trainstone;
using Catch::Approx;

namespace {

/// 10^9 of "1.7B", "1T".
double nominal(std::string_view name) {
  double const number = std::atof(std::string(name).c_str());
  return name.ends_with("T") ? 1000 * number : number;
}

ResolvedRun planned(PublishedRun const& run) {
  return planned_run({"", {"", run.keys(), ""}, run.ranks(), std::max<std::int64_t>(1, run.ranks() / 8)});
}

} // namespace

TEST_CASE("decks of published runs have the published sizes, meshes and batches", "[advice][published]") {
  std::size_t runs = 0;
  for (Publication const& publication : publications())
    for (PublishedRun const& published : publication.runs) {
      INFO(publication.title << ": " << published.name << " on " << published.ranks());
      ResolvedRun const run = planned(published);
      double const parameters = 1e-9 * static_cast<double>(ParameterTable(run.config.model, 1).model_parameters());
      CHECK(parameters == Approx(nominal(published.name)).epsilon(0.03)); // names are rounded
      CHECK(run.mesh.tensor == published.tensor);
      CHECK(run.mesh.pipeline == published.pipeline);
      CHECK(run.mesh.data() == published.data);
      CHECK(run.config.batch.micro * run.config.batch.accumulation * published.data == published.batch);
      CHECK(run.topology.nodes() * 8 == run.topology.ranks());
      ++runs;
    }
  CHECK(runs >= 6);
}

TEST_CASE("where a publication has time and rate, its formula of operations leads from one to the other",
          "[advice][published]") {
  std::size_t both = 0;
  for (Publication const& publication : publications())
    for (PublishedRun const& run : publication.runs) {
      INFO(publication.title << ": " << run.name << " on " << run.ranks());
      double const b = static_cast<double>(run.batch), s = 2048, v = 51200, l = static_cast<double>(run.layers),
                   h = static_cast<double>(run.channels), cards = static_cast<double>(run.ranks());
      // forward 24 b s l h^2 + 4 b s^2 l h, and logits 2 b s h v; backward twice as much; the blocks once more
      double const block = l * (24 * b * s * h * h + 4 * b * s * s * h), logits = 2 * b * s * h * v;
      bool const again = publication.rate == PublishedRate::teraflops_with_recomputation;
      double const flops = (again ? 4 : 3) * block + 3 * logits;
      CHECK(published_flops(run, publication.rate) == Approx(flops).epsilon(1e-12));
      if (!run.seconds || !run.rate) continue;
      ++both;
      double const unit = again ? 1e12 : publication.machine.peak;
      double const rounding = again ? 0.5 / *run.rate + 0.05 / *run.seconds : 0.0005 / *run.rate + 0.005 / *run.seconds;
      CHECK(flops / (*run.seconds * cards * unit) == Approx(*run.rate).epsilon(rounding));
    }
  CHECK(both == 7);
}

TEST_CASE("a predicted run takes what its operations and its bubble take, and more", "[advice][published]") {
  for (Publication const& publication : publications())
    for (PublishedRun const& run : publication.runs) {
      if (run.pipeline > 4) continue; // they take longer to play
      INFO(publication.title << ": " << run.name);
      PublishedMachine machine = publication.machine;
      double const step = predict_published(run, machine).step;
      double const rate = machine.peak * machine.attained * static_cast<double>(run.ranks());
      auto const m = static_cast<double>(run.batch / run.data / run.micro), p = static_cast<double>(run.pipeline),
                 chunks = static_cast<double>(run.chunks);
      double const ideal = published_flops(run, PublishedRate::model_utilization) / rate;
      CHECK(step > ideal * (1 + (p - 1) / (chunks * m)) * 0.95); // the ends of a pipeline are no blocks
      machine.attained = 1;
      CHECK(predict_published(run, machine).step < step);
    }
}

TEST_CASE("the table of published runs shows what was published, what is predicted, and the residual",
          "[advice][published]") {
  Publication one = publications().front();
  one.runs.resize(1);
  StepTime const step = predict_published(one.runs[0], one.machine);
  std::string const text = publication_text(one), words = test::without_widths(text);
  CHECK(test::longest_line(text) <= 132);
  // 96 x 512 x 2048 x 24 x 2304^2 (1 + 2048 / (6 x 2304) + 51200 / (16 x 24 x 2304)) / (32 x 137e12) = 3.53 s
  CHECK_THAT(words, Catch::Matchers::ContainsSubstring(fmt::format(
                        "1.7B 32 1 x 1 x 32 1 16 512 3.53* {:.2f} {:.1f} % 137 ", step.step,
                        100 * (step.step / (96.0 * 512 * 2048 * 24 * 2304 * 2304 *
                                            (1 + 2048 / (6 * 2304.0) + 51200 / (16 * 24 * 2304.0)) / (32 * 137e12)) -
                               1))));
}
