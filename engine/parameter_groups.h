// Hyper-parameters of their own for some parameters (no weight decay on biases and norms, say). They are the update's
// business alone: partitions, chunks and the store know nothing of them, so that they may change between runs.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "cpu_adam/adam.h"

namespace sluice {

struct ParameterGroup {
  std::vector<std::string> parameters;  // names
  AdamOptions adam;                     // of the run's kind; its learning rate is the step's, times this:
  double learning_rate_factor = 1;
};

// What an update depends on beside its group.
struct UpdateMoment {
  double learning_rate = 0;
  int64_t t = 1;     // the number of this applied step
  double scale = 1;  // clip / loss_scale
};

// Elements of a partition from the end of the run before to `end` have the hyper-parameters of `group`. Padding goes
// with the parameter before it.
struct GroupRun {
  int64_t end = 0;
  int group = 0;
};

// Group 0 is of the parameters that no group names; group i + 1 is groups[i]. Immutable after construction.
class ParameterGroups {
 public:
  // Throws ConfigError: a name that no parameter has (naming the nearest), or that two groups have; another kind of
  // optimizer.
  ParameterGroups(const Geometry& geometry, const AdamOptions& others, std::span<const ParameterGroup> groups);

  int count() const { return static_cast<int>(groups_.size()); }
  std::span<const GroupRun> runs_of(int partition) const;
  // The scalars of one update of every group, into `steps` (count() of them).
  void fill_steps(const UpdateMoment& moment, std::span<AdamStep> steps) const;

 private:
  struct Hyper {
    AdamOptions adam;
    double learning_rate_factor = 1;
  };
  std::vector<Hyper> groups_;
  std::vector<GroupRun> runs_;     // of all partitions
  std::vector<size_t> first_run_;  // per partition, and the end of all
};

}  // namespace sluice
