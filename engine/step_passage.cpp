#include "engine/step_passage.h"

#include <utility>

namespace sluice {

Passage::Passage(const Plan& plan, Verbs& verbs)
    : plan_(plan),
      verbs_(verbs),
      gradients_(plan.host_gradients.offset, plan.host_gradients.bytes),
      tensors_(plan.host_boundary.offset, plan.host_boundary.bytes) {}

void Passage::bring(const TensorMove& tensor) {
  const TensorHome home = verbs_.home_of(tensor);
  if (home.home == Home::kHost) verbs_.upload(TensorInHost{{}, tensor, home.offset});
  if (home.home != Home::kNvme) return;
  verbs_.upload(verbs_.verify(verbs_.swap_in(tensor, tensors_.take(verbs_.tensor_buffer_bytes(tensor)))));
}

void Passage::take_home(const TensorMove& tensor) {
  const TensorHome home = verbs_.home_of(tensor);
  if (home.home == Home::kHost) verbs_.download(tensor, home.offset);
  if (home.home != Home::kNvme) return;
  verbs_.swap_out(verbs_.seal(verbs_.download(tensor, tensors_.take(verbs_.tensor_buffer_bytes(tensor)))));
}

void Passage::take_home(int visit, ClosedOnDevice gradient) {
  const int c = gradient.chunk;
  const Home home = plan_.chunks[c].gradient;
  if (home == Home::kHost) verbs_.download(visit, std::move(gradient));
  if (home != Home::kNvme) return;
  const int64_t buffer = gradients_.take(verbs_.gradient_buffer_bytes(c));
  verbs_.swap_out(verbs_.seal(verbs_.download(std::move(gradient), buffer, When::kAlways)));
}

}  // namespace sluice
