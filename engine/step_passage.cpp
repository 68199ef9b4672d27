#include "engine/step_passage.h"

#include <utility>

namespace sluice {

Passage::Passage(const PlannedModel& planned, Verbs& verbs, UnitKind kind)
    : plan_(planned.plan),
      verbs_(verbs),
      staging_(plan_.host_staging.offset, plan_.host_staging.bytes),
      gradients_(plan_.host_gradients.offset, plan_.host_gradients.bytes),
      tensors_(planned, verbs, kind) {}

WeightsInHost Passage::weights_from_home(int chunk, When when) {
  if (plan_.chunks[chunk].weights == Home::kHost) return verbs_.at_home<Group::kWeights>(chunk);
  const int64_t to = staging_.take(plan_.record_bytes(chunk, Group::kWeights));
  return verbs_.verify(verbs_.swap_in(verbs_.in_store<Group::kWeights>(chunk), to, when), when);
}

void Passage::bring_records(int chunk) {
  constexpr When kWhen = When::kNotOnDevice;
  const int64_t state_at = staging_.take(plan_.record_bytes(chunk, Group::kState));
  verbs_.upload(verbs_.verify(verbs_.swap_in(verbs_.in_store<Group::kState>(chunk), state_at, kWhen), kWhen),
                verbs_.records_on_device(chunk).state, kWhen);
  const int64_t weights_at = staging_.take(plan_.record_bytes(chunk, Group::kWeights));
  verbs_.upload(verbs_.verify(verbs_.swap_in(verbs_.in_store<Group::kWeights>(chunk), weights_at, kWhen), kWhen),
                plan_.kept_offset[verbs_.chunk(chunk).partition], kWhen);
}

void Passage::copy_to_store(const RecordsOnDevice& records, When when) {
  const int64_t state_at = staging_.take(plan_.record_bytes(records.state.chunk, Group::kState));
  verbs_.swap_out(verbs_.seal(verbs_.download(records.state, state_at, when), when), when);
  const int64_t weights_at = staging_.take(plan_.record_bytes(records.weights.chunk, Group::kWeights));
  verbs_.swap_out(verbs_.seal(verbs_.download(records.weights, weights_at, when), when), when);
}

void Passage::bring(const TensorMove& tensor) {
  const TensorHome home = verbs_.home_of(tensor);
  if (home.home == Home::kHost) verbs_.upload(verbs_.tensor_at_home(tensor), tensor);
  if (home.home == Home::kNvme) tensors_.bring(tensor);
}

void Passage::take_home(const TensorMove& tensor) {
  const TensorHome home = verbs_.home_of(tensor);
  if (home.home == Home::kHost) verbs_.download(tensor, home.offset);
  if (home.home == Home::kNvme) tensors_.take_home(tensor);
}

bool Passage::read_ahead(const TensorMove& tensor) {
  return verbs_.home_of(tensor).home != Home::kNvme || tensors_.read_ahead(tensor);
}

void Passage::take_home(ClosedOnDevice gradient) {
  const Home home = plan_.chunks[gradient.chunk].gradient;
  if (home == Home::kHost || home == Home::kNvme) take_to_update(std::move(gradient), When::kAlways);
}

// Its home must have it too: where the prediction is wrong the update is done anew.
ClosedInHost Passage::take_to_update(ClosedOnDevice gradient, When when) {
  const int c = gradient.chunk;
  const Home home = plan_.chunks[c].gradient;
  if (home == Home::kHost) return verbs_.download(std::move(gradient));
  const int64_t buffer = gradients_.take(plan_.gradient_block_bytes(c));
  ClosedInHost in_host = verbs_.download(std::move(gradient), buffer, home == Home::kNvme ? When::kAlways : when);
  if (home == Home::kNvme) verbs_.swap_out(verbs_.seal(in_host));
  return in_host;
}

ClosedInHost Passage::gradient_from_home(int chunk, When when) {
  const Home home = plan_.chunks[chunk].gradient;
  if (home == Home::kHost) return verbs_.closed_at_home(chunk);
  const int64_t buffer = gradients_.take(plan_.gradient_block_bytes(chunk));
  if (home == Home::kNvme) return verbs_.swap_in(verbs_.closed_in_scratch(chunk), buffer, when);
  return verbs_.download(verbs_.closed_on_device(chunk), buffer, when);
}

}  // namespace sluice
