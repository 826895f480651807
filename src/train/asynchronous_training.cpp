#include "train/asynchronous_training.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/shared_segment.hpp"
#include "core/clock.hpp"
#include "parallel/engine/parameter_hash.hpp"
#include "train/loss_total.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <span>
#include <thread>

namespace trainstone {

namespace {

std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

constexpr double nanoseconds = 1e9;       ///< per second
constexpr double planned_ticks = 1 << 20; ///< of a push without faults

/// Long enough not to keep a core from workers, and short beside messages.
constexpr std::chrono::microseconds between_looks(20);

/// A whole number that one rank of a communicator sends to another one, again and again.
class Word {
public:
  Word(ExecutionSpace const& exec, Communicator& ranks, Rank from)
      : m_value(1),
        m_execution(exec, ranks, schedule_of(ranks, from), Operation::sum, vector(), Vector<std::int64_t>(),
                    {.purpose = Purpose::control, .on_host = true}) {}
  Word(Word const&) = delete;
  Word& operator=(Word const&) = delete;

  /// Both ends call this; returns the sender's value.
  std::int64_t exchange(std::int64_t mine = 0) {
    m_value[0] = mine;
    m_execution.run();
    return m_value[0];
  }
  /// The receiver's end, without waiting.
  void start() { m_execution.start(); }
  bool has_come() { return m_execution.progress(); }
  std::int64_t value() const { return m_value[0]; }

private:
  static Schedule schedule_of(Communicator const& ranks, Rank from) {
    return make_schedule(even_problem(Collective::broadcast, 1, ranks.topology(), from), Algorithm::linear,
                         ranks.rank());
  }
  Vector<std::int64_t> vector() { return Vector<std::int64_t>(m_value.data(), 1); }

  std::vector<std::int64_t> m_value;
  Execution m_execution;
};

enum class Answer : std::int64_t {
  pause,
  go_on,
  refresh, ///< take newer parameters: another answer follows
};

/// A worker and the first server.
struct Channel {
  Channel(ExecutionSpace const& exec, Communicator ranks)
      : communicator(std::move(ranks)), push(exec, communicator, 0), answer(exec, communicator, 1) {}

  Communicator communicator;
  Word push;   ///< the worker begins to push: ns that it has computed
  Word answer; ///< the server has answered
};

/// Collective; null on ranks that are not in.
std::optional<Communicator> part_of(Communicator const& world, bool is_in) {
  Communicator part = world.split(is_in ? 0 : 1);
  return is_in ? std::optional(std::move(part)) : std::nullopt;
}

} // namespace

ServerPolicy server_policy(ResolvedRun const& run, std::int64_t steps, std::int64_t pause_every) {
  ParallelConfig const& parallel = run.config.parallel;
  Index const workers = run.mesh.data();
  ServerPolicy policy{.workers = run.mesh.data(), .pushes = steps * workers, .pause_every = pause_every * workers};
  if (parallel.server_mode == ServerMode::bounded) policy.threshold = parallel.staleness;
  return policy;
}

PlannedOrder planned_order(ResolvedRun const& run, ServerPolicy const& policy, ServerClocks const& start) {
  auto const ticks = [&](Rank worker, Index clock) {
    return std::max<ServerTicks>(1,
                                 std::llround(planned_ticks * straggler_factor(run.config.faults, worker, clock + 1)));
  };
  return planned_order(policy, ticks, start);
}

class AsynchronousTraining::Worker {
public:
  Worker(ExecutionSpace const& exec, Communicator ranks, Trainer& trainer, Index clock)
      : m_channel(exec, std::move(ranks)), m_trainer(&trainer), m_clock(clock) {
    trainer.before_push([this] { m_channel.push.exchange(std::llround(seconds_since(m_begin) * nanoseconds)); });
  }

  void train() {
    for (;;) {
      auto const answer = static_cast<Answer>(m_channel.answer.exchange());
      if (answer == Answer::pause) return;
      if (answer == Answer::refresh) {
        m_trainer->refresh();
        continue;
      }
      m_begin = std::chrono::steady_clock::now();
      m_trainer->step(++m_clock);
    }
  }

private:
  Channel m_channel;
  Trainer* m_trainer;
  Index m_clock;      ///< pushes
  SteadyTime m_begin; ///< of the step
};

/// All servers do the same. The first one decides what, and has the channels to the workers.
class AsynchronousTraining::Server {
public:
  Server(ExecutionSpace const& exec, Communicator ranks, std::vector<Communicator> channels, Trainer& trainer,
         ServerPolicy const& policy, ServerClocks const& start, std::optional<PlannedOrder> order)
      : m_servers(std::move(ranks)),
        m_trainer(&trainer),
        m_policy(policy),
        m_clocks(start),
        m_pushes(at(policy.workers)) {
    for (OfWorker& worker : m_pushes) worker.pulled = start.applied(); // all have what a checkpoint has
    if (m_servers.size() > 1) m_event.emplace(exec, m_servers, 0);
    for (Communicator& channel : channels) m_channels.push_back(std::make_unique<Channel>(exec, std::move(channel)));
    if (order) m_order = std::move(order->events);
  }

  ServerRecord train() {
    m_record = {};
    if (m_clocks.is_paused()) m_clocks.resume();
    m_begin = std::chrono::steady_clock::now();
    for (OfWorker& worker : m_pushes) worker.pushed = m_before;
    for (;;) {
      std::int64_t event = leads() ? next() : 0;
      if (m_event) event = m_event->exchange(event);
      if (event == pause) break;
      auto const [answers, worker] = act_of(event);
      answers ? answer(worker) : apply(worker);
    }
    for (Rank worker = 0; worker < m_policy.workers; ++worker) give(worker, Answer::pause);
    m_before = now();
    return std::move(m_record);
  }

private:
  static constexpr std::int64_t pause = -1;

  struct OfWorker {
    double pushed = 0, waited = 0; ///< s of training, when its last push was applied; until its last answer
    Index gap = 0;                 ///< at its last answer
    Index pulled = 0;              ///< pushes that were applied before it got its parameters
    bool has_pushed = false;       ///< since then
  };

  bool leads() const { return !m_channels.empty(); }
  /// s of training.
  double now() const { return m_before + seconds_since(m_begin); }

  std::int64_t next() {
    if (m_clocks.is_paused()) return pause;
    if (m_order.empty()) return next_of_arrivals();
    ServerEvent const& event = m_order.at(m_next++);
    bool const answers = event.kind == ServerEvent::Kind::answer;
    while (!answers && !look(event.worker)) std::this_thread::sleep_for(between_looks);
    return to_number(ServerAct{answers, event.worker});
  }

  /// Who may be answered is, and then of the pushes that have come the one of the worker that was looked at longest
  /// ago.
  std::int64_t next_of_arrivals() {
    for (Rank worker = 0; worker < m_policy.workers; ++worker)
      if (m_clocks.may_answer(worker)) return to_number(ServerAct{.answers = true, .worker = worker});
    for (;; std::this_thread::sleep_for(between_looks))
      for (Rank i = 0; i < m_policy.workers; ++i) {
        m_looked_at = (m_looked_at + 1) % m_policy.workers;
        if (!m_clocks.waits(m_looked_at) && look(m_looked_at))
          return to_number(ServerAct{.answers = false, .worker = m_looked_at});
      }
  }

  /// Whether the push of a worker has come that computes.
  bool look(Rank worker) { return m_channels[at(worker)]->push.has_come(); }

  void answer(Rank worker) {
    OfWorker& state = m_pushes[at(worker)];
    state.gap = m_clocks.answer(worker);
    state.waited = now() - state.pushed;
    give(worker, Answer::go_on);
    if (leads()) m_channels[at(worker)]->push.start();
    m_record.acts.push_back({.answers = true, .worker = worker});
  }

  /// The parameters, if the worker has old ones, and what it shall do. A worker that has pushed waits for parameters,
  /// any other one for a word.
  void give(Rank worker, Answer answer) {
    OfWorker& state = m_pushes[at(worker)];
    bool const is_old = state.pulled < m_clocks.applied();
    if (is_old && !std::exchange(state.has_pushed, false)) say(worker, Answer::refresh);
    if (is_old) m_trainer->answer(at(worker));
    state.pulled = m_clocks.applied();
    say(worker, answer);
  }

  void say(Rank worker, Answer answer) {
    if (leads()) m_channels[at(worker)]->answer.exchange(static_cast<std::int64_t>(answer));
  }

  void apply(Rank worker) {
    OfWorker& state = m_pushes[at(worker)];
    Index const clock = m_clocks.clock(worker);
    double const computed =
        leads() ? static_cast<double>(m_channels[at(worker)]->push.value()) / nanoseconds : 0; // others need it not
    StepReport const step = m_trainer->apply_push(at(worker), m_clocks.applied() + 1);
    Index const staleness = m_clocks.apply(worker);
    state.pushed = now();
    state.has_pushed = true;
    m_record.acts.push_back({.answers = false, .worker = worker});
    m_record.pushes.push_back({worker, clock, staleness, state.gap, step.loss, step.norm, step.learning_rate,
                               state.pushed, computed, state.waited});
  }

  Communicator m_servers;
  std::optional<Word> m_event;
  std::vector<std::unique_ptr<Channel>> m_channels; ///< of the first server
  Trainer* m_trainer;
  ServerPolicy m_policy;
  ServerClocks m_clocks;
  std::vector<OfWorker> m_pushes;
  std::vector<ServerEvent> m_order; ///< planned; empty: pushes are taken as they come
  std::size_t m_next = 0;
  Rank m_looked_at = 0;
  SteadyTime m_begin;
  double m_before = 0; ///< s of training until the last pause
  ServerRecord m_record;
};

AsynchronousTraining::AsynchronousTraining(ExecutionSpace const& exec, Communicator& world, MemoryLedger& ledger,
                                           ResolvedRun const& all, ResolvedRun const& one_worker, RunPlan const& plan,
                                           TrainingBatches batches, std::int64_t steps, ServerPolicy const& policy,
                                           ServerClocks const& start)
    : m_exec(exec),
      m_world(&world),
      m_policy(policy),
      m_batches(batches),
      m_plan(&plan),
      m_applied(start.applied()),
      m_tokens(all.config.batch.global * all.shape().sequence) {
  Rank const workers = all.mesh.data(), me = world.rank();
  bool const serves = all.mesh.serves(me);
  std::vector<Communicator> channels;
  for (Rank worker = 0; worker < workers; ++worker) {
    if (auto group = part_of(world, me == worker || serves)) m_groups.push_back(std::move(*group));
    if (auto channel = part_of(world, me == worker || me == workers)) channels.push_back(std::move(*channel));
  }
  std::optional<Communicator> servers = part_of(world, serves);
  m_trainer = std::make_unique<Trainer>(exec, m_groups.front(), ledger, one_worker.config, plan, std::move(batches),
                                        steps, FellowWorkers{workers, worker_of(all, me), me});
  if (!serves) {
    m_worker = std::make_unique<Worker>(exec, std::move(channels.front()), trainer(), start.clock(me));
    return;
  }
  for (std::size_t other = 1; other < m_groups.size(); ++other) trainer().add_worker(m_groups[other]);
  std::optional<PlannedOrder> order;
  if (all.config.parallel.server_order == ServerOrder::planned) order = planned_order(all, policy, start);
  m_server = std::make_unique<Server>(exec, std::move(*servers), std::move(channels), trainer(), policy, start,
                                      std::move(order));
}

AsynchronousTraining::~AsynchronousTraining() = default;

namespace {

/// Of a push, in the order of its members.
constexpr std::size_t numbers_of_push = 10;

std::array<double, numbers_of_push> numbers(AppliedPush const& push) {
  return {static_cast<double>(push.worker),
          static_cast<double>(push.clock),
          static_cast<double>(push.staleness),
          static_cast<double>(push.gap),
          push.loss,
          push.norm,
          push.learning_rate,
          push.seconds,
          push.computed,
          push.waited};
}

AppliedPush push_of(std::span<double const> numbers) {
  auto const whole = [&](std::size_t i) { return static_cast<Index>(numbers[i]); };
  return {static_cast<Rank>(whole(0)),
          whole(1),
          whole(2),
          whole(3),
          numbers[4],
          numbers[5],
          numbers[6],
          numbers[7],
          numbers[8],
          numbers[9]};
}

/// All ranks get the record of the first server, and the requests of all. Collective.
Pause of_all(ExecutionSpace const& exec, Communicator& world, ServerRecord record, bool is_first,
             Requests const& mine) {
  if (!is_first) record = {};
  std::array<std::int64_t, 2> counts{std::ssize(record.acts), std::ssize(record.pushes)};
  control_all_reduce(exec, world, Operation::sum, counts);
  auto const acts = static_cast<std::size_t>(counts[0]), pushes = static_cast<std::size_t>(counts[1]);
  std::vector<double> values;
  for (ServerAct const& act : record.acts) values.push_back(static_cast<double>(to_number(act)));
  for (AppliedPush const& push : record.pushes) std::ranges::copy(numbers(push), std::back_inserter(values));
  std::size_t const noted = acts + numbers_of_push * pushes;
  values.resize(noted + at(world.size()), 0);
  values[noted + at(world.rank())] = to_number(mine);
  control_all_reduce(exec, world, Operation::sum, values);
  record = {};
  Pause pause;
  for (std::size_t i = noted; i < values.size(); ++i) pause.requests |= requests_of(values[i]);
  for (std::size_t i = 0; i < acts; ++i) record.acts.push_back(act_of(static_cast<std::int64_t>(values[i])));
  for (std::size_t i = 0; i < pushes; ++i)
    record.pushes.push_back(push_of(std::span(values).subspan(acts + numbers_of_push * i, numbers_of_push)));
  pause.record = std::move(record);
  return pause;
}

} // namespace

Pause AsynchronousTraining::train(std::function<Requests()> const& ask) {
  ServerRecord record;
  try {
    if (m_server)
      record = m_server->train();
    else
      m_worker->train();
  } catch (CollectiveError const& error) { // of one worker and the servers: the other workers do not know
    throw Error(error.what(), error.code());
  }
  bool const is_first = m_world->rank() == m_policy.workers;
  Pause pause = of_all(m_exec, *m_world, std::move(record), is_first, ask ? ask() : Requests());
  m_applied += std::ssize(pause.record.pushes);
  return pause;
}

Communicator const* AsynchronousTraining::meet_whole_state() {
  if (m_worker && m_world->rank() > 0) return nullptr;
  trainer().engine().meet(0);
  return &m_groups.front();
}

std::vector<std::uint64_t> AsynchronousTraining::parameter_hashes() {
  ShardedEngine& engine = trainer().engine();
  std::uint64_t hash = 0;
  for (std::size_t group = 0; group < m_groups.size(); ++group) {
    engine.meet(group);
    hash = parameter_hash(m_exec, engine);
  }
  std::vector<std::uint64_t> hashes = all_gather_values(*m_world, hash);
  hashes.resize(at(m_policy.workers));
  return hashes;
}

double AsynchronousTraining::validate() {
  auto const own = static_cast<std::size_t>(m_plan->parallel.layout.micro_batches());
  auto const first = static_cast<std::size_t>(m_world->rank()) * own;
  double loss_sum = 0;
  for (std::int64_t number = 0; number < m_batches.validation_batches; ++number) {
    std::vector<double> losses(static_cast<std::size_t>(m_policy.workers) * own, 0.0);
    std::ranges::copy(trainer().held_out_losses(number),
                      losses.begin() + static_cast<std::ptrdiff_t>(m_worker ? first : 0));
    control_all_reduce(m_exec, *m_world, Operation::sum, losses);
    double const total = total_of_losses(std::move(losses));
    if (!std::isfinite(total)) throw CollectiveError(fmt::format("held-out loss {}", total));
    loss_sum += total;
  }
  return loss_sum / static_cast<double>(m_batches.validation_batches * m_tokens);
}

} // namespace trainstone
