// libFuzzer's way into a hostile store (-DSLUICE_FUZZ=ON with clang). What it finds and what reaches new code belongs
// into corpus/, which store_corpus_test replays in every build.
#include "tests/swap/hostile_store.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::HostileStore store;
  store.look(std::as_bytes(std::span(data, size)));
  return 0;
}
