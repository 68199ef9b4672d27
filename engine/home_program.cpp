#include "engine/home_program.h"

#include <lpsolve/lp_lib.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/errors.h"

namespace sluice {
namespace {

// How much a resource's time counts that is not the longest: enough to choose among equals.
constexpr double kAmongEquals = 1e-4;

double dot(const LaneTimes& weights, const LaneTimes& work_ms) {
  return std::inner_product(weights.begin(), weights.end(), work_ms.begin(), 0.0);
}

// One linear program: minimise the longest of these sums of the lanes' work. Times and bytes are in units of what they
// are about, so that all coefficients are of one size.
class Solver {
 public:
  Solver(const HomeProgram& program, std::vector<LaneTimes> sums)
      : program_(program), sums_(std::move(sums)), columns_(1) {
    LaneTimes all_ms = program.rest_ms;  // with everything at its last home
    for (const HomeClass& each : program.classes) {
      first_column_.push_back(columns_ + 1);
      columns_ += static_cast<int>(each.homes.size());
      for (size_t lane = 0; lane < all_ms.size(); ++lane) all_ms[lane] += each.homes.back().work_ms[lane];
    }
    for (const LaneTimes& sum : sums_) unit_ms_ = std::max(unit_ms_, dot(sum, all_ms));
    lp_.reset(make_lp(0, columns_));
    SLUICE_CHECK(lp_ != nullptr, "no memory for a small linear program");
    set_verbose(lp_.get(), NEUTRAL);
    set_add_rowmode(lp_.get(), TRUE);
    aim();
    for (const LaneTimes& sum : sums_) bound_time(sum);
    bound_bytes(&ClassAtHome::device_bytes, program.device_bytes);
    bound_bytes(&ClassAtHome::host_bytes, program.host_bytes);
    share_out();
    set_add_rowmode(lp_.get(), FALSE);
  }

  // Shares by class, or nothing.
  std::optional<std::vector<std::vector<double>>> solve() {
    const int outcome = ::solve(lp_.get());
    if (outcome != OPTIMAL && outcome != SUBOPTIMAL) return std::nullopt;
    std::vector<double> values(columns_);
    get_variables(lp_.get(), values.data());
    std::vector<std::vector<double>> shares;
    auto at = values.begin() + 1;
    for (const HomeClass& each : program_.classes) {
      shares.emplace_back(at, at + static_cast<std::ptrdiff_t>(each.homes.size()));
      at += static_cast<std::ptrdiff_t>(each.homes.size());
    }
    return shares;
  }

 private:
  struct Delete {
    void operator()(lprec* lp) const { delete_lp(lp); }
  };
  // Coefficients by column, from 1: the time, then every class's homes.
  using Row = std::vector<double>;

  template <typename Of>  // of a class at a home
  Row row_of(Of of) const {
    Row row(columns_ + 1, 0);
    int column = 2;
    for (const HomeClass& each : program_.classes) {
      for (const ClassAtHome& home : each.homes) row[column++] = of(home);
    }
    return row;
  }
  void aim() {
    Row row = row_of([&](const ClassAtHome& home) {
      double all = 0;
      for (const LaneTimes& sum : sums_) all += kAmongEquals * dot(sum, home.work_ms) / unit_ms_;
      return all;
    });
    row[1] = 1;
    set_obj_fn(lp_.get(), row.data());
    set_minim(lp_.get());
  }
  void bound_time(const LaneTimes& sum) {
    Row row = row_of([&](const ClassAtHome& home) { return dot(sum, home.work_ms) / unit_ms_; });
    row[1] = -1;
    add_constraint(lp_.get(), row.data(), LE, -dot(sum, program_.rest_ms) / unit_ms_);
  }
  void bound_bytes(double ClassAtHome::*bytes, double there_are) {
    const double unit = std::max(there_are, 1.0);
    Row row = row_of([&](const ClassAtHome& home) { return home.*bytes / unit; });
    add_constraint(lp_.get(), row.data(), LE, there_are / unit);
  }
  void share_out() {
    std::vector<int> columns;
    Row ones;
    for (size_t c = 0; c < program_.classes.size(); ++c) {
      const HomeClass& each = program_.classes[c];
      columns.clear();
      if (each.beside) columns.push_back(first_column_[*each.beside]);
      for (size_t home = 0; home < each.homes.size(); ++home) {
        columns.push_back(first_column_[c] + static_cast<int>(home));
      }
      ones.assign(columns.size(), 1);
      add_constraintex(lp_.get(), static_cast<int>(columns.size()), ones.data(), columns.data(), EQ, 1);
    }
  }

  const HomeProgram& program_;
  std::vector<LaneTimes> sums_;
  int columns_;
  std::vector<int> first_column_;  // of each class
  double unit_ms_ = 1e-9;
  std::unique_ptr<lprec, Delete> lp_;
};

}  // namespace

double burden_ms(const GroupTimes& times) {
  return times[static_cast<size_t>(longest(times))] + kAmongEquals * std::accumulate(times.begin(), times.end(), 0.0);
}

std::optional<HomeSolution> solve(const HomeProgram& program) {
  std::vector<LaneTimes> sums;
  for (const GroupForms& forms : group_forms(program.machine)) {
    sums.insert(sums.end(), forms.sums.begin(), forms.sums.end());
  }
  auto shares = Solver(program, std::move(sums)).solve();
  if (!shares) return std::nullopt;
  return HomeSolution{std::move(*shares)};
}

const std::optional<HomeSolution>& HomeSolver::solve(const HomeProgram& program) {
  const std::pair bytes(program.device_bytes, program.host_bytes);
  const auto [first, last] = solved_.equal_range(bytes);
  const auto known = std::find_if(first, last, [&](const auto& each) { return each.second.program == program; });
  if (known != last) return known->second.solution;
  return solved_.emplace(bytes, Solved{program, sluice::solve(program)})->second.solution;
}

}  // namespace sluice
