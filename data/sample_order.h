// Which sample comes when: a pure function of the position (samples consumed since the run began) and the seed, so that
// a resumed run continues where it stopped. No table: the permutation of an epoch is a keyed Feistel network over the
// indices, walked until it lands inside.
#pragma once
#include <cstdint>

#include "data/options.h"

namespace sluice {

// Permutes 0 .. count-1; another `round` gives another permutation. 0 <= index < count.
int64_t permuted_index(int64_t index, int64_t count, uint64_t seed, uint64_t round);

class SampleOrder {
 public:
  struct Options {
    int64_t samples = 0;     // in the text
    int64_t batch_size = 0;  // samples a step
    Shuffle shuffle = Shuffle::kYes;
    uint64_t seed = 0;
  };
  // Throws ConfigError where the text holds fewer samples than one batch.
  explicit SampleOrder(const Options& options);

  // The samples that do not fill a last batch are dropped (other ones each epoch, when shuffled).
  int64_t steps_per_epoch() const { return options_.samples / options_.batch_size; }
  int64_t samples_per_epoch() const { return steps_per_epoch() * options_.batch_size; }
  int64_t epoch_of(int64_t position) const { return position / samples_per_epoch(); }
  int64_t sample_at(int64_t position) const;

 private:
  Options options_;
};

}  // namespace sluice
