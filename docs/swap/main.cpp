// Keeps eight layers (fp32 weights and Adam's two moments) on NVMe: stores and commits them, opens the store again, and
// reads each layer ahead of its use. Usage: store_and_prefetch FOLDER
#include <cstdio>
#include <cstring>

#include "core/arena.h"
#include "swap/record_checksums.h"
#include "swap/record_store.h"

int main(int argc, char** argv) {
  using namespace sluice;
  constexpr int64_t kLayers = 8, kElements = 1024 * 1024;
  std::vector<PartitionSpec> layers;
  for (int i = 0; i < kLayers; ++i) layers.push_back({"layer", {{"weight" + std::to_string(i), {1024, 1024}}}});
  const Geometry geometry(layers, kElements);  // one chunk a layer; each has a record of weights and one of moments
  const StoreIdentity identity{
      .model = "eight layers", .precision = Precision::kFp32, .chunk_elements = kElements, .chunk_count = kLayers};
  const Arena arena(2 * record_layout(Precision::kFp32, Group::kState, kElements).bytes);  // two slots of huge pages
  const auto slot = [&](uint32_t i) { return arena.at(i % 2 * arena.bytes() / 2); };
  const StoreOptions options{.folder = argc > 1 ? argv[1] : "layers", .queue = {.memory = {arena.span()}}};
  auto store = RecordStore::create(geometry, identity, options);
  for (uint32_t i = 0; i < kLayers; ++i)
    for (const Group group : {Group::kWeights, Group::kState}) {
      std::memset(slot(0), static_cast<int>(i), static_cast<size_t>(arena.bytes() / 2));
      sum_record(*store, {i, group}, slot(0));
      write_now(*store, {i, group}, slot(0));
    }
  commit_now(*store, {.step = 1});  // from here on a crash at any instant leaves step 1
  store.reset();
  store = RecordStore::open(geometry, identity, options);  // null where nothing was ever committed
  store->read({0, Group::kState}, slot(0), 0);
  for (uint32_t i = 0; i < kLayers; ++i) {
    StoreCompletion done;
    store->poll({&done, 1}, Wait::kUntilOne);
    if (done.error) std::rethrow_exception(done.error);  // each completion carries its own result
    if (i + 1 < kLayers) store->read({i + 1, Group::kState}, slot(i + 1), i + 1);  // moves while layer i is used
    verify_record(*store, {i, Group::kState}, slot(i), "layer " + std::to_string(i));
    std::printf("layer %u: moments of %d\n", i, std::to_integer<int>(*slot(i)));
  }
}
