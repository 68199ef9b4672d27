// libFuzzer's way into hostile stores of one drive and of two (-DSLUICE_FUZZ=ON with clang). What it finds and what
// reaches new code belongs into corpus/, which store_corpus_test replays in every build.
#include "tests/swap/hostile_store.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::HostileStore one(1), two(2);
  one.look(std::as_bytes(std::span(data, size)));
  two.look(std::as_bytes(std::span(data, size)));
  return 0;
}
