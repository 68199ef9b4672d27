// Which of the plans that options leave open: homes, share of early updates, commit interval. Where speeds are known it
// is the one whose steps are predicted to be the shortest (where `auto` follows the clip, in the mean of those that it
// leaves alone and those that it does not), and the planner's defaults unless others are clearly shorter; else those
// defaults. Internal to engine/.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/home_prices.h"
#include "engine/plan.h"
#include "engine/planner.h"

namespace sluice {

class PlanSearch {
 public:
  // Both must outlive it. Options are valid.
  PlanSearch(const ModelSpec& model, const PlanOptions& options)
      : model_(model), options_(options), known_(Planner::know(model)) {}

  struct Choice {
    int commit_interval = 0;
    std::optional<double> speculated_share;
    HomesBy homes = HomesBy::kOrder;
    RingDepth depth = RingDepth::kAsInOrder;
    StateToDevice state = StateToDevice::kWhereItFits;
    HostStateOrder host_state = HostStateOrder::kNeededFirst;
    Placement named;  // of groups that are empty: as the options have it
    bool operator==(const Choice&) const = default;
  };
  struct Candidate {
    Choice choice;
    Plan plan;
    double step_ms = 0;       // mean_ms; 0: no speeds are known
    double unclipped_ms = 0;  // of a step that is not clipped
  };
  // Nothing where the budgets cannot hold it.
  std::optional<Candidate> best();
  // The plan of this choice alone.
  std::optional<Candidate> attempt(const Choice& choice);
  // Of a chosen plan in which `auto` updates nothing early, with a commit in every step: its like with early updates,
  // which take no memory then, where a step is a hundredth longer with them at the most. Where the drive binds both are
  // as long, and a drive that is faster than it was measured to be has more to do in a backward with them. Speeds are
  // known.
  Candidate with_early_updates(Candidate chosen);

 private:
  Choice first() const {
    return {.commit_interval = options_.commit_interval, .speculated_share = options_.speculated_share};
  }
  // What a choice asks of the planner.
  struct Wish {
    PlanOptions options;
    Pricing pricing;
  };
  Wish wish_for(const Choice& choice);
  // What the programs of plans depend on, and so the size of their tables; homes change little of it.
  using Kind = std::tuple<int, std::optional<double>, StateToDevice, bool, bool, bool>;
  static Kind kind_of(const Choice& choice) {
    const Placement& named = choice.named;
    return {choice.commit_interval,  choice.speculated_share, choice.state,
            !named.gradient.empty(), !named.state.empty(),    !named.activations.empty()};
  }
  int64_t table_bytes_like(const Choice& choice) const;
  Budgets budgets() const { return {options_.device_bytes, options_.host_bytes}; }
  static double mean_ms(double unclipped_ms, std::optional<double> clipped_ms);
  std::optional<double> glance_ms(const Choice& choice);
  double glance_slack(const Choice& choice) const;
  // Takes the plan of these choices whose step is the shortest in place of `best` where it is shorter. Only plans that
  // promise to be are made in full. False: none of them has one.
  bool consider(std::span<const Choice> choices, Candidate& best);
  // The best plan for the commit interval that comes first, and for the other one where `auto` may take it.
  struct Candidates {
    std::optional<Candidate> first, other;
  };
  Candidates candidates();
  // Those of the choices that were made among few pieces, as they will run.
  Candidates candidates_like(const PlanSearch& few, const Candidates& found);
  // That of the best among few pieces, or, where several thousand at the most make it much slower or have no room for
  // it, the first of the others that is as fast as it was there.
  std::optional<Candidate> attempt_like(const PlanSearch& few, const Candidate& best);
  static bool other_is_worth_it(const Candidates& found);
  // Among the plans that commit as often as `start`.
  Candidate best_like(Candidate start);
  // From there by one change after the other, each where it gains.
  Candidate best_by_steps(Candidate start);
  // Of them, those that may put state on the device as `start` may, or may not.
  Candidate best_homes(Candidate start);
  bool may_choose_shares() const { return !options_.speculated_share && options_.update != UpdateMode::kReplay; }
  static std::vector<Choice> early_like(Choice choice);  // with each share of early updates
  void consider_shares(Candidate& best);                 // of early updates, none among them for `auto`
  // Takes the best of the homes from there in place of `best` where it is shorter.
  void consider_from(const Choice& start, Candidate& best);
  bool may_choose_gradients() const;  // nobody has named their home, and they are kept
  // Whether gradients may leave host memory to the update ring. How deep that is, and so how much a backward reads
  // ahead, is nothing that prices know: plans with gradients elsewhere are compared.
  bool may_move_gradients(const Plan& plan) const;
  // With a share of them on the device; `start` where that is no shorter.
  Candidate best_on_device(Candidate start);
  // From the choices of `start`, with gradients on the device too, and of `best`: with one home for all state, or for
  // all activations, where they may be anywhere. Takes the best of them in place of `best` where it is shorter.
  void consider_whole(const Choice& start, Candidate& best);
  // With host memory for other state, where there is a choice.
  void consider_behind_read_ahead(Candidate& best);
  std::optional<int> other_interval(const Plan& plan) const;
  double without_commits_ms(const Candidate& rare) const;
  // The best plan that commits as often as `start`, and where `auto` may choose and that is rarely, as rarely as it takes
  // for commits to be a small part of the time, where a crash then loses little.
  Candidate best_of_interval(Candidate start);
  // The same with as many more steps from commit to commit as that takes; `start` where it is no shorter.
  Candidate with_rarer_commits(Candidate start);

  const ModelSpec& model_;
  const PlanOptions& options_;
  const std::shared_ptr<Planner::Known> known_;
  std::map<std::pair<int, std::optional<double>>, HomePrices> prices_;  // by commit interval and share of early updates
  std::map<Kind, int64_t> table_bytes_;                                 // of the last plan of each kind
  std::vector<std::pair<double, Choice>> made_;                         // in full, and their steps, ms
};

}  // namespace sluice
