// Which homes leave the busiest resource the least to do: a small linear program. Pure; any thread.
//
// A class is bytes that are alike: they have the same choice of homes, and there the same work and the same need of
// memory per byte. Its unknowns are how much of it is where. What is minimised is the time of the resource that takes
// the longest alone (GroupForms: a maximum over sums of the lanes' work), within the bytes of both tiers; of equals,
// the choice with the least work of all resources together.
#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/hop_costs.h"

namespace sluice {

// What is minimised: the longest of the resources' times, and among equals all of them.
double burden_ms(const GroupTimes& times);

// All of a class in one home.
struct ClassAtHome {
  double device_bytes = 0, host_bytes = 0;
  LaneTimes work_ms{};
  bool operator==(const ClassAtHome&) const = default;
};
struct HomeClass {
  using Homes = std::vector<ClassAtHome>;
  Homes homes;
  // Whatever share of that class is at its first home, as much of this one is there with it: in no home of its own, its
  // memory and its work counted with the other's.
  std::optional<size_t> beside;
  bool operator==(const HomeClass&) const = default;
};

struct HomeProgram {
  std::vector<HomeClass> classes;
  double device_bytes = 0, host_bytes = 0;  // for all of them
  LaneTimes rest_ms{};                      // work that is there whatever the homes
  MachineSpeeds machine;
  bool operator==(const HomeProgram&) const = default;
};

struct HomeSolution {
  // [class][home], of its own: of a class they sum to 1, or to what is left beside another.
  std::vector<std::vector<double>> shares;
};

// Nothing: the bytes do not suffice whatever the homes.
std::optional<HomeSolution> solve(const HomeProgram& program);

// The same, of programs that it has solved before at once: plans of one search ask for the same again and again. For
// one thread.
class HomeSolver {
 public:
  // Valid as long as the solver.
  const std::optional<HomeSolution>& solve(const HomeProgram& program);

 private:
  struct Solved {
    HomeProgram program;
    std::optional<HomeSolution> solution;
  };
  std::multimap<std::pair<double, double>, Solved> solved_;  // by the bytes of both tiers
};

}  // namespace sluice
