#include "engine/plan_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/few_pieces.h"
#include "engine/predict.h"
#include "engine/speculation.h"

namespace sluice {
namespace {

// Of a plan in many pieces, beside its like in few; and how many plans are made to find one.
constexpr double kAsFast = 1.1;
constexpr size_t kMostTried = 5;
constexpr int64_t kSeveralChunks = 4096;
constexpr double kWorthChanging = 0.99;  // a difference that small is none
constexpr double kWorthLosing = 0.95;    // ... and one that small not the steps that a crash then loses
constexpr double kEarlyShares[] = {0.25, 0.5, 0.625, 0.875, 1};  // of updates
constexpr double kLeastOnDevice = 1.0 / 32;                      // of gradients
constexpr int kGradientShares = 3;  // that are tried: the largest that fits, and halves of it
constexpr int kRareIntervals[] = {kCommitRarely, 20, 50, 100, 200, 500, 1000};
// Of the steps of a run whose updates may be early, so many are taken to be clipped: with more of them they wait.
constexpr double kClippedShare = static_cast<double>(Speculation::kTooManyWrong) / Speculation::kWindow;
constexpr double kFullLane = 0.95;  // of a step: a lane that is busy so long leaves little to gain

// To choose the homes that nobody has named.
constexpr std::pair<HomesBy, RingDepth> kWays[] = {{HomesBy::kOrder, RingDepth::kAsInOrder},
                                                   {HomesBy::kSpeeds, RingDepth::kAsInOrder},
                                                   {HomesBy::kSpeeds, RingDepth::kWanted}};

HomeShares shares_on_device(double share) {
  HomeShares shares = {{HomeKind::kDevice, share}};
  if (share < 1) shares.push_back({HomeKind::kHost, 1 - share});
  return shares;
}

// The rarest commits with which a crash loses a minute at the most, of steps that take so long without them.
int rarest_interval(double without_commits_ms) {
  int rarest = kCommitRarely;
  for (const int interval : kRareIntervals) {
    if (interval * without_commits_ms <= kMostLostMs) rarest = interval;
  }
  return rarest;
}

}  // namespace

// A guess: of the last plan of its kind, or the most that any needed of those with its commits and early updates, or
// with either, or of all.
int64_t PlanSearch::table_bytes_like(const Choice& choice) const {
  const Kind wanted = kind_of(choice);
  if (const auto found = table_bytes_.find(wanted); found != table_bytes_.end()) return found->second;
  std::pair<int, int64_t> best;  // how much alike, bytes
  for (const auto& [kind, bytes] : table_bytes_) {
    const int alike = 2 * (std::get<1>(kind) == std::get<1>(wanted)) + (std::get<0>(kind) == std::get<0>(wanted));
    best = std::max(best, {alike, bytes});
  }
  return best.second;
}

PlanSearch::Wish PlanSearch::wish_for(const Choice& choice) {
  Wish wish{.options = options_,
            .pricing = {.depth = choice.depth,
                        .state = choice.state,
                        .host_state = choice.host_state,
                        .table_bytes = table_bytes_like(choice)}};
  PlanOptions& options = wish.options;
  options.commit_interval = choice.commit_interval;
  options.speculated_share = choice.speculated_share;
  const auto take = [](const HomeShares& named, HomeShares& into) {
    if (!named.empty()) into = named;
  };
  take(choice.named.state, options.placement.state);
  take(choice.named.gradient, options.placement.gradient);
  take(choice.named.activations, options.placement.activations);
  if (choice.homes == HomesBy::kSpeeds) {
    // Which updates are early decides what a home costs: a gradient that an early update takes is not read back.
    const std::pair key(choice.commit_interval, choice.speculated_share);
    auto known = prices_.find(key);
    if (known == prices_.end())
      known = prices_.emplace(key, price_homes(model_, options, choice.commit_interval)).first;
    wish.pricing.prices = &known->second;
  }
  return wish;
}

// A plan for `auto` has to serve both of its kinds of steps, and while the clip engages memory serves best what is then
// read ahead of it.
double PlanSearch::mean_ms(double unclipped_ms, std::optional<double> clipped_ms) {
  return clipped_ms ? std::lerp(unclipped_ms, *clipped_ms, kClippedShare) : unclipped_ms;
}

std::optional<PlanSearch::Candidate> PlanSearch::attempt(const Choice& choice) {
  const Wish wish = wish_for(choice);
  auto attempted = Planner(model_, wish.options, known_).attempt(budgets(), wish.pricing);
  if (!attempted) return std::nullopt;
  Plan& plan = attempted->plan;
  plan.options.placement = options_.placement;  // as asked for
  plan.named = choice.named;
  table_bytes_[kind_of(choice)] = plan.table_bytes;
  if (plan.homes_by != choice.homes) return std::nullopt;
  const double step_ms = mean_ms(attempted->step_ms, attempted->clipped_ms);
  Choice made = choice;
  made.commit_interval = plan.commit_interval;
  made_.emplace_back(step_ms, made);
  return Candidate{choice, std::move(plan), step_ms, attempted->step_ms};
}

// What a step of this choice's plan would take in the mean, but for what its tables need more or less than those
// before: where that leaves it no memory, nothing is said. Infinity: there is no such plan.
std::optional<double> PlanSearch::glance_ms(const Choice& choice) {
  const Wish wish = wish_for(choice);
  const std::optional<Plan> plan = Planner(model_, wish.options, known_).glance(budgets(), wish.pricing);
  if (!plan) return std::nullopt;
  if (plan->homes_by != choice.homes) return std::numeric_limits<double>::infinity();
  const StepSpeeds& speeds = *options_.speeds;
  return mean_ms(predicted_step_ms(model_, *plan, speeds, unclipped_kind(*plan)),
                 defers_clipped_steps(*plan) ? clipped_step_ms(model_, *plan, speeds) : std::nullopt);
}

// How much longer a glance may say that a step is than it will be: where tables take much of the memory, as large a
// part; a quarter of it where those of a plan of its kind are known.
double PlanSearch::glance_slack(const Choice& choice) const {
  const int64_t bytes = table_bytes_like(choice);
  if (Planner::tables_are_small(bytes, options_.host_bytes)) return 1;
  const double part = static_cast<double>(bytes) / static_cast<double>(options_.host_bytes);
  return 1 + (table_bytes_.contains(kind_of(choice)) ? part / 4 : part);
}

bool PlanSearch::consider(std::span<const Choice> choices, Candidate& best) {
  bool any_fits = false;
  const auto promises = [&](const Choice& choice, double about_ms) {
    return about_ms < best.step_ms * glance_slack(choice);
  };
  std::vector<std::pair<double, Choice>> promising;
  for (const Choice& choice : choices) {
    const std::optional<double> about_ms = glance_ms(choice);
    any_fits |= about_ms && std::isfinite(*about_ms);
    if (promises(choice, about_ms.value_or(0))) promising.emplace_back(about_ms.value_or(0), choice);
  }
  std::ranges::stable_sort(promising, {}, &std::pair<double, Choice>::first);
  for (const auto& [about_ms, choice] : promising) {
    if (!promises(choice, about_ms)) continue;
    std::optional<Candidate> other = attempt(choice);
    any_fits |= other.has_value();
    if (other && other->step_ms < best.step_ms) best = std::move(*other);
  }
  return any_fits;
}

// Homes first, then the share of early updates, which may ask for other homes.
PlanSearch::Candidate PlanSearch::best_homes(Candidate start) {
  Candidate best = std::move(start);
  const auto consider_homes = [&](Choice choice) {
    choice.homes = HomesBy::kSpeeds;
    std::vector<Choice> choices;
    for (const RingDepth depth : {RingDepth::kAsInOrder, RingDepth::kWanted}) {
      choice.depth = depth;
      choices.push_back(choice);
    }
    consider(choices, best);
  };
  consider_homes(best.choice);
  if (!may_choose_shares() || !best.plan.any_speculated()) return best;
  consider_shares(best);
  if (best.choice.speculated_share) consider_homes(best.choice);
  return best;
}

std::vector<PlanSearch::Choice> PlanSearch::early_like(Choice choice) {
  std::vector<Choice> choices;
  for (const double share : kEarlyShares) {
    choice.speculated_share = share;
    choices.push_back(choice);
  }
  return choices;
}

void PlanSearch::consider_shares(Candidate& best) {
  std::vector<Choice> choices = early_like(best.choice);
  if (options_.update == UpdateMode::kAuto) {  // else early updates are asked for
    Choice none = best.choice;
    none.speculated_share = 0;
    choices.insert(choices.begin(), none);
  }
  consider(choices, best);
}

PlanSearch::Candidate PlanSearch::with_early_updates(Candidate chosen) {
  const bool may_be_early = options_.update == UpdateMode::kAuto && may_choose_shares();
  if (!may_be_early || chosen.plan.commit_interval != 1 || chosen.plan.any_speculated()) return chosen;
  Choice like = chosen.choice;
  like.commit_interval = 1;
  Candidate early = chosen;
  early.step_ms /= kWorthChanging;
  consider(early_like(like), early);
  if (!early.plan.any_speculated()) return chosen;
  early.plan.other_commits = chosen.plan.other_commits;
  return early;
}

void PlanSearch::consider_from(const Choice& start, Candidate& best) {
  std::optional<Candidate> there = attempt(start);
  if (!there) return;
  Candidate found = best_homes(std::move(*there));
  if (found.step_ms < best.step_ms) best = std::move(found);
}

bool PlanSearch::may_choose_gradients() const {
  return free_to_choose(options_.placement.gradient) && options_.update != UpdateMode::kReplay;
}

bool PlanSearch::may_move_gradients(const Plan& plan) const {
  const auto may_move = [](const ChunkHomes& homes) {
    return homes.gradient == Home::kHost || homes.gradient == Home::kNvme;
  };
  return may_choose_gradients() && std::ranges::any_of(plan.chunks, may_move);
}

PlanSearch::Candidate PlanSearch::best_on_device(Candidate start) {
  Candidate best = std::move(start);
  int tried = 0;
  for (double share = 1; share >= kLeastOnDevice && tried < kGradientShares; share /= 2) {
    std::vector<Choice> choices;
    for (const auto& [homes, depth] : kWays) {
      Choice choice = best.choice;
      choice.named.gradient = shares_on_device(share);
      choice.homes = homes;
      choice.depth = depth;
      choices.push_back(choice);
    }
    tried += consider(choices, best) ? 1 : 0;
  }
  return best;
}

// Prices know what lanes have to do, and not how long they wait for each other.
void PlanSearch::consider_whole(const Choice& start, Candidate& best) {
  std::vector<Choice> choices, starts = {best.choice, start};
  if (may_choose_gradients()) {  // what is elsewhere may leave the device to them
    starts.push_back(start);
    starts.back().named.gradient = shares_on_device(1);
  }
  const auto add = [&](HomeShares Placement::*group, HomeKind home) {
    if (!free_to_choose(options_.placement.*group)) return;
    for (const Choice& from : starts) {
      for (const auto& [homes, depth] : kWays) {
        Choice choice = from;
        choice.named.*group = {{home, 1}};
        choice.homes = homes;
        choice.depth = depth;
        if (std::ranges::find(choices, choice) == choices.end()) choices.push_back(choice);
      }
    }
  };
  add(&Placement::activations, HomeKind::kHost);
  add(&Placement::activations, HomeKind::kDevice);
  add(&Placement::state, HomeKind::kNvme);
  if (Planner(model_, options_, known_).may_update_on_device()) add(&Placement::state, HomeKind::kDevice);
  const Choice before = best.choice;
  consider(choices, best);
  if (best.choice == before) return;
  best = best_homes(std::move(best));
  if (may_move_gradients(best.plan)) best = best_on_device(std::move(best));
}

void PlanSearch::consider_behind_read_ahead(Candidate& best) {
  const auto count = [&](Home home) { return std::ranges::count(best.plan.chunks, home, &ChunkHomes::state); };
  if (!free_to_choose(options_.placement.state) || count(Home::kHost) == 0 || count(Home::kNvme) == 0) return;
  Choice behind = best.choice;
  behind.host_state = HostStateOrder::kBehindReadAhead;
  consider({{behind}}, best);
}

// Homes are chosen for early updates where there are any: with none the way leads to others. Where early updates take
// memory of their own, they must be worth it.
PlanSearch::Candidate PlanSearch::best_like(Candidate start) {
  start.choice.commit_interval = start.plan.commit_interval;
  const bool may_defer =
      options_.update == UpdateMode::kAuto && !options_.speculated_share && start.plan.any_speculated();
  Choice deferred = start.choice;
  deferred.speculated_share = 0;
  Candidate best = best_by_steps(std::move(start));
  std::optional<Candidate> other = may_defer ? attempt(deferred) : std::nullopt;
  if (other) {
    other = best_by_steps(std::move(*other));
    if (other->step_ms * (best.plan.other_slots.empty() ? 1 : kWorthChanging) < best.step_ms) best = std::move(*other);
  }
  // Rare commits' homes may have left host memory to early updates that the first ones had none for.
  const bool may_be_early = options_.update == UpdateMode::kAuto && may_choose_shares();
  if (!may_be_early || best.plan.commit_interval == 1 || best.plan.any_speculated()) return best;
  Candidate early = best;
  consider_shares(early);
  return early.step_ms < kWorthChanging * best.step_ms ? early : best;
}

PlanSearch::Candidate PlanSearch::best_by_steps(Candidate start) {
  Candidate best = best_homes(start);
  if (Planner(model_, options_, known_).may_update_on_device()) {
    Choice elsewhere = start.choice;
    elsewhere.state = StateToDevice::kWhereForced;
    consider_from(elsewhere, best);
  }
  if (may_move_gradients(best.plan)) {
    best = best_on_device(std::move(best));
    // On NVMe they are more for the drive to move: worth a look where lanes wait for each other.
    const Busiest busiest = predict(model_, best.plan, *options_.speeds).busiest();
    if (busiest.ms < kFullLane * busiest.step_ms) {
      Choice on_nvme = start.choice;
      on_nvme.named.gradient = {{HomeKind::kNvme, 1}};
      consider_from(on_nvme, best);
    }
  }
  consider_whole(start.choice, best);
  consider_behind_read_ahead(best);
  return best.step_ms < start.step_ms * kWorthChanging ? best : start;
}

// The other interval that `auto` may take. With a commit in every step early updates take no memory; with rare ones
// what is at home off the drive is seldom written. State that is to be on the drive is written in every step anyway.
std::optional<int> PlanSearch::other_interval(const Plan& plan) const {
  if (options_.commit_interval != 0) return std::nullopt;
  if (plan.commit_interval > 1) return 1;
  const bool early_asked_for = options_.update == UpdateMode::kSpeculative || options_.update == UpdateMode::kReplay;
  const HomeShares& state = options_.placement.state;
  const bool stays_on_nvme =
      !state.empty() && std::ranges::all_of(state, [](const HomeShare& each) { return each.home == HomeKind::kNvme; });
  return early_asked_for || stays_on_nvme ? std::nullopt : std::optional(kCommitRarely);
}

// What a step of this plan is predicted to take where none commits.
double PlanSearch::without_commits_ms(const Candidate& rare) const {
  Plan twice = rare.plan;
  twice.commit_interval *= 2;
  const double twice_ms = predicted_step_ms(model_, twice, *options_.speeds, unclipped_kind(twice));
  return 2 * twice_ms - rare.unclipped_ms;
}

// A commit is done when the step after it is: nothing but rarer ones hides what it takes beyond that step.
PlanSearch::Candidate PlanSearch::best_of_interval(Candidate start) {
  if (options_.commit_interval != 0 || start.plan.commit_interval != kCommitRarely) return best_like(std::move(start));
  Choice choice = start.choice;
  choice.commit_interval = rarest_interval(without_commits_ms(start));
  std::optional<Candidate> there = attempt(choice);
  Candidate best = best_like(there ? std::move(*there) : std::move(start));
  const double enough_ms = (1 + kCommitsMayTake) * without_commits_ms(best);
  choice = best.choice;
  for (const int interval : kRareIntervals) {
    if (interval >= best.plan.commit_interval) break;
    choice.commit_interval = interval;
    std::optional<Candidate> more_often = attempt(choice);
    if (more_often && more_often->step_ms <= enough_ms) return std::move(*more_often);
  }
  return best;
}

// A step's time grows with the share of steps that commit.
PlanSearch::Candidate PlanSearch::with_rarer_commits(Candidate start) {
  Choice choice = start.choice;
  choice.commit_interval = start.plan.commit_interval;
  if (options_.commit_interval != 0 || choice.commit_interval == 1) return start;
  const double without_ms = without_commits_ms(start);
  const double commit_ms = (start.unclipped_ms - without_ms) * choice.commit_interval;
  const int rarest = rarest_interval(without_ms);
  for (const int interval : kRareIntervals) {
    if (commit_ms <= kCommitsMayTake * without_ms * choice.commit_interval || interval > rarest) break;
    choice.commit_interval = std::max(choice.commit_interval, interval);
  }
  if (choice.commit_interval != start.plan.commit_interval) consider({{choice}}, start);
  return start;
}

PlanSearch::Candidates PlanSearch::candidates() {
  Candidates found{attempt(first()), std::nullopt};
  if (!found.first || !options_.speeds) return found;
  found.first = best_of_interval(std::move(*found.first));
  const std::optional<int> interval = other_interval(found.first->plan);
  if (!interval) return found;
  Choice choice = first();
  choice.commit_interval = *interval;
  found.other = attempt(choice);
  if (found.other) found.other = best_of_interval(std::move(*found.other));
  return found;
}

bool PlanSearch::other_is_worth_it(const Candidates& found) {
  if (!found.first || !found.other) return found.other.has_value();
  const double worth = found.other->plan.commit_interval > 1 ? kWorthLosing : kWorthChanging;
  return found.other->step_ms < found.first->step_ms * worth;
}

std::optional<PlanSearch::Candidate> PlanSearch::attempt_like(const PlanSearch& few, const Candidate& best) {
  const auto is_as_fast = [](const std::optional<Candidate>& candidate, double few_ms) {
    return candidate && candidate->step_ms <= few_ms * kAsFast;
  };
  std::optional<Candidate> found = attempt(best.choice);
  const int64_t chunk_elements = Planner(model_, options_, known_).chunk_elements(options_.host_bytes);
  const bool takes_long = model_.elements() / chunk_elements > kSeveralChunks;  // a second for each plan
  if (takes_long || is_as_fast(found, best.step_ms)) return found;
  std::vector<std::pair<double, Choice>> others = few.made_;
  std::ranges::stable_sort(others, {}, &std::pair<double, Choice>::first);
  std::vector<Choice> tried = {best.choice};
  for (auto& [few_ms, choice] : others) {
    if ((choice.commit_interval == 1) != (best.choice.commit_interval == 1)) continue;
    choice.commit_interval = best.choice.commit_interval;
    if (std::ranges::find(tried, choice) != tried.end()) continue;
    if (tried.size() == kMostTried || (found && few_ms >= found->step_ms)) break;
    tried.push_back(choice);
    std::optional<Candidate> other = attempt(choice);
    if (other && (!found || other->step_ms < found->step_ms)) found = std::move(other);
    if (is_as_fast(found, few_ms)) break;
  }
  if (!found || is_as_fast(found, best.step_ms)) return found;  // else few pieces were no guide: all is looked at again
  Choice start = first();
  start.commit_interval = found->plan.commit_interval;
  consider_whole(start, *found);
  return found;
}

PlanSearch::Candidates PlanSearch::candidates_like(const PlanSearch& few_search, const Candidates& few) {
  Candidates found;
  if (few.first) found.first = attempt_like(few_search, *few.first);
  // Budgets hold a model or do not, whatever is looked for: what fits by chance is no plan.
  const auto is_tight = [&](const Candidate& candidate) {
    return !Planner::tables_are_small(candidate.plan.table_bytes, options_.host_bytes);
  };
  if (found.first && is_tight(*found.first) && !attempt(first())) return {};
  if (!found.first) {
    found.first = attempt(first());
  } else {
    Choice plain = first();
    plain.commit_interval = found.first->plan.commit_interval;
    if (found.first->choice != plain) consider({{plain}}, *found.first);
  }
  if (few.other && other_is_worth_it(few)) found.other = attempt_like(few_search, *few.other);
  for (std::optional<Candidate>* each : {&found.first, &found.other}) {
    if (*each) *each = with_rarer_commits(std::move(**each));  // in many pieces commits may take longer
  }
  return found;
}

std::optional<PlanSearch::Candidate> PlanSearch::best() {
  const FewPieces few = options_.speeds ? in_few_pieces(model_, options_) : FewPieces{};
  Candidates found, best_of_few;
  if (few.fewer) {
    PlanSearch among_few(few.model, few.options);
    best_of_few = among_few.candidates();
    found = candidates_like(among_few, best_of_few);
  } else {
    found = candidates();
  }
  const bool takes_other = other_is_worth_it(found);
  const std::optional<Candidate>& left = takes_other ? found.first : found.other ? found.other : best_of_few.other;
  std::optional<Candidate>& taken = takes_other ? found.other : found.first;
  if (taken && left) taken->plan.other_commits = {left->plan.commit_interval, left->unclipped_ms};
  return std::move(taken);
}

}  // namespace sluice
