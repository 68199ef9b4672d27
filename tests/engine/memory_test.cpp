// Memory is planned and taken at the start: nothing is allocated in a step, and the ledger never exceeds a budget.
#include <cstring>

#include "tests/engine/engine_fixture.h"
#include "tests/fakes/counting_new.h"
#include "tests/fakes/io_backends.h"

namespace sluice::testing {
namespace {

// Arithmetic in place on what the turn lends: allocates nothing itself.
void quiet_turn(Use& use) {
  if (use.pass() != Pass::kBackward) {
    for (const TensorView& out : use.outputs()) std::memset(out.address, 0, static_cast<size_t>(out.elements * 2));
    return;
  }
  for (size_t i = 0; i < use.weights().size(); ++i) {
    const WeightView& w = use.weights()[i];
    use.contribute(static_cast<int>(i), w.address, w.dtype);
  }
  for (const TensorView& in : use.input_gradients()) {
    std::memset(in.address, 0, static_cast<size_t>(in.elements * 2));
  }
}

TEST(Memory, nothing_is_allocated_in_a_step) {
  const ReferenceOptions reference{.micro_batches = 2, .max_norm = 1};
  const ModelSpec model = toy_model({.visits = 6, .shape = ToyShape::kBoth}, Precision::kBf16);
  for (HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
    for (const IoBackend backend : backends_here()) {
      TempFolder folder;
      EngineOptions options = engine_options(folder, reference);
      put_records(options.plan, home);
      options.plan.placement.gradient = options.plan.placement.activations = {{home, 1}};
      options.plan.commit_interval = 2;
      options.store.queue.backend = backend;
      Engine engine(model, options, toy_source());
      const Compute compute = quiet_turn;
      for (int i = 0; i < 4; ++i) engine.train_step(1e-3, compute);
      const int64_t before = heap_allocations();
      for (int i = 0; i < 6; ++i) engine.train_step(1e-3, compute);
      EXPECT_EQ(heap_allocations(), before) << name_of(home);
    }
  }
}

TEST(Memory, tables_stay_within_what_was_charged_for_them) {
  const ReferenceOptions reference{.micro_batches = 2};
  for (int visits : {3, 40}) {
    for (int64_t chunk : {512, 4096}) {
      const ModelSpec model = toy_model({.visits = visits, .elements = 4000}, Precision::kBf16);
      TempFolder folder;
      EngineOptions options = engine_options(folder, reference);
      options.plan.device_bytes = options.plan.host_bytes = 64 * kMiB;
      options.plan.chunk_elements = chunk;
      if (visits == 40) options.plan.placement.gradient = options.plan.placement.activations = {{HomeKind::kNvme, 1}};
      const int64_t before = heap_live_bytes();
      Engine engine(model, options, toy_source());
      const Compute compute = quiet_turn;
      for (int i = 0; i < 2; ++i) engine.train_step(1e-3, compute);
      EXPECT_LE(heap_live_bytes() - before, engine.plan().table_bytes) << visits << " visits, chunks of " << chunk;
    }
  }
}

TEST(Memory, the_ledger_stays_within_the_budgets_and_says_who_holds_what) {
  const ReferenceOptions reference{.micro_batches = 2};
  const ModelSpec model = toy_model({.visits = 6, .shape = ToyShape::kBoth}, Precision::kBf16);
  TempFolder folder;
  Engine engine(model, engine_options(folder, reference), toy_source());
  for (Tier tier : {Tier::kDevice, Tier::kHost}) {
    int64_t sum = 0;
    for (const Ledger::Row& row : engine.ledger().rows()) sum += row.tier == tier ? row.now_bytes : 0;
    EXPECT_EQ(sum, engine.ledger().now(tier));
    EXPECT_GT(sum, 0);
    EXPECT_LE(engine.ledger().peak(tier), engine.ledger().budget(tier));
  }
  EXPECT_LE(engine.plan().host_arena_bytes + engine.plan().table_bytes, engine.plan().options.host_bytes);
  EXPECT_LE(engine.plan().device_arena_bytes, engine.plan().options.device_bytes);
}

TEST(Memory, a_turn_sees_device_memory_alone) {
  const ReferenceOptions reference{.micro_batches = 2};
  const ModelSpec model = toy_model({.visits = 6, .shape = ToyShape::kBoth}, Precision::kBf16);
  TempFolder folder;
  Engine engine(model, engine_options(folder, reference), toy_source());
  const std::byte* end = engine.workspace().data();  // the planned part lies in front of the workspace
  const std::byte* begin = end - engine.plan().workspace_offset;
  int64_t seen = 0;
  engine.train_step(1e-3, [&](Use& use) {
    for (const auto list : {use.inputs(), use.outputs(), use.output_gradients(), use.input_gradients()}) {
      for (const TensorView& t : list) {
        EXPECT_TRUE(t.address >= begin && t.address + t.elements * 2 <= end);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(t.address) % 256, 0u);
        ++seen;
      }
    }
    for (const WeightView& w : use.weights()) EXPECT_TRUE(w.address >= begin && w.address < end);
    quiet_turn(use);
  });
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace sluice::testing
