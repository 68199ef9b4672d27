// Orders of verbs that do not compile: what a token lets follow, and who can make one.
#include "engine/step_verbs.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace sluice {
namespace {

constexpr When kWhen = When::kAlways;

template <typename Of>
concept CanBeWritten = requires(Verbs verbs, const Of& token) {
  verbs.swap_out(token, kWhen);
}
|| requires(Verbs verbs, const Of& token) { verbs.swap_out(token); };
template <typename Of>
concept CanBeUploaded = requires(Verbs verbs, const Of& token) {
  verbs.upload(token, int64_t{}, kWhen);
}
|| requires(Verbs verbs, const Of& token, const StateOnDevice& to) { verbs.upload(token, to, kWhen); }
|| requires(Verbs verbs, const Of& token, const TensorMove& to) { verbs.upload(token, to); };
template <typename State, typename Weights, typename Gradient>
concept CanBeUpdated = requires(Verbs verbs, State state, Weights weights, const Gradient& gradient) {
  verbs.update({std::move(state), std::move(weights)}, gradient, kWhen);
};
template <typename Of>
concept CanBeForged = requires {
  Of{{}, 0, 0};
}
|| requires { Of{{}, 0}; }
|| requires { Of{{}, {}, 0}; }
|| std::is_default_constructible_v<Of>;

template <typename Of>
constexpr bool only_verbs_make() {
  return !CanBeForged<Of> && !std::is_copy_constructible_v<Of> && std::is_move_constructible_v<Of>;
}

TEST(StepVerbs, write_what_is_sealed_or_updated_and_nothing_else) {
  static_assert(CanBeWritten<StateInHost> && CanBeWritten<WeightsInHost>);
  static_assert(CanBeWritten<SealedInHost> && CanBeWritten<SealedTensorInHost>);
  static_assert(!CanBeWritten<UnverifiedState> && !CanBeWritten<UnverifiedWeights>);
  static_assert(!CanBeWritten<UnsealedInHost<Group::kState>> && !CanBeWritten<UnsealedInHost<Group::kWeights>>);
  static_assert(!CanBeWritten<ClosedInHost> && !CanBeWritten<TensorInHost> && !CanBeWritten<StateOnDevice>);
}

TEST(StepVerbs, take_to_the_device_what_is_verified_and_nothing_else) {
  static_assert(CanBeUploaded<StateInHost> && CanBeUploaded<WeightsInHost> && CanBeUploaded<TensorInHost>);
  static_assert(!CanBeUploaded<UnverifiedState> && !CanBeUploaded<UnverifiedWeights>);
  static_assert(!CanBeUploaded<UnverifiedTensorInHost> && !CanBeUploaded<InStore<Group::kWeights>>);
}

TEST(StepVerbs, update_what_has_come_with_a_gradient_that_is_closed) {
  static_assert(CanBeUpdated<UnverifiedState, UnverifiedWeights, ClosedInHost>);
  static_assert(!CanBeUpdated<InStore<Group::kState>, InStore<Group::kWeights>, ClosedInHost>);
  static_assert(!CanBeUpdated<UnverifiedState, UnverifiedWeights, ClosedInScratch>);
  static_assert(!CanBeUpdated<UnverifiedState, UnverifiedWeights, OpenOnDevice>);
}

TEST(StepVerbs, alone_make_tokens) {
  static_assert(only_verbs_make<InStore<Group::kState>>() && only_verbs_make<InStore<Group::kWeights>>());
  static_assert(only_verbs_make<StateInHost>() && only_verbs_make<WeightsInHost>());
  static_assert(only_verbs_make<UnverifiedState>() && only_verbs_make<UnverifiedWeights>());
  static_assert(only_verbs_make<UnsealedInHost<Group::kState>>() && only_verbs_make<UnsealedInHost<Group::kWeights>>());
  static_assert(only_verbs_make<ClosedInHost>() && only_verbs_make<SealedInHost>() &&
                only_verbs_make<ClosedInScratch>());
  static_assert(only_verbs_make<ClosedOnDevice>() && only_verbs_make<StateOnDevice>() &&
                only_verbs_make<ChunkWeightsOnDevice>());
  static_assert(only_verbs_make<TensorInHost>() && only_verbs_make<UnverifiedTensorInHost>() &&
                only_verbs_make<SealedTensorInHost>());
}

}  // namespace
}  // namespace sluice
