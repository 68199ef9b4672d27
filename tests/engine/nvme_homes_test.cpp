// Gradients and activations at home on NVMe: when the planner sends them there, what that saves, and that nothing is
// trained on that is not what was written.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "tests/engine/engine_fixture.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kElements = 30'000, kChunk = 4096;

ModelSpec layers(int visits) {
  return toy_model({.visits = visits, .elements = kElements, .tensor_elements = 12'000}, Precision::kBf16);
}

PlanOptions plan_options() {
  return {.device_bytes = 2 * kMiB,
          .host_bytes = 64 * kMiB,
          .workspace_bytes = 4096,
          .micro_batches = 2,
          .chunk_elements = kChunk};
}

// A device that holds little more than it must.
int64_t small_device(const ModelSpec& model, const PlanOptions& options) {
  return Planner(model, options).smallest_device(options.host_bytes).value() + 64 * kKiB;
}

int64_t host_arena_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const UseRow& row : plan.uses) bytes += row.tier == Tier::kHost && row.use != "tables" ? row.bytes : 0;
  return bytes;
}

int chunks_at(const Plan& plan, Home home) {
  return static_cast<int>(
      std::ranges::count_if(plan.chunks, [home](const ChunkHomes& homes) { return homes.gradient == home; }));
}

int tensors_at(const Plan& plan, Home home) {
  return static_cast<int>(
      std::ranges::count_if(plan.tensors, [home](const TensorHome& tensor) { return tensor.home == home; }));
}

TEST(NvmeHomes, the_smallest_host_budget_does_not_grow_with_the_number_of_layers_but_for_tables) {
  constexpr int64_t kLayerElements = 200'000, kPage = 4096;
  for (const HomeKind home : {HomeKind::kNvme, HomeKind::kAuto}) {
    std::vector<int64_t> arenas, tables;
    for (const int visits : {4, 16, 64}) {
      const ModelSpec model =
          toy_model({.visits = visits, .elements = kLayerElements, .tensor_elements = 12'000}, Precision::kBf16);
      PlanOptions options = plan_options();
      options.chunk_elements = 65'536;
      options.device_bytes = small_device(model, options);
      options.placement.gradient = options.placement.activations = {{home, 1}};
      options.host_bytes = Planner(model, options).smallest_host(options.device_bytes).value();
      const Plan plan = make_plan(model, options);
      arenas.push_back(host_arena_bytes(plan));
      tables.push_back(plan.table_bytes);
    }
    EXPECT_LE(std::abs(arenas[1] - arenas[0]), kPage);
    EXPECT_LE(std::abs(arenas[2] - arenas[1]), kPage);
    const int64_t gradients = 48 * kLayerElements * 2;  // of the layers that there are more
    EXPECT_LT(tables[2] - tables[1], gradients / 8);
  }
}

TEST(NvmeHomes, are_for_what_neither_host_memory_nor_the_device_holds) {
  const ModelSpec model = layers(16);
  PlanOptions options = plan_options();
  options.update = UpdateMode::kDeferred;  // where there is room for them, programs of early updates take it
  options.device_bytes = small_device(model, options);
  EXPECT_EQ(make_plan(model, options).scratch_bytes.size(), 0u);
  options.host_bytes = Planner(model, options).smallest_host(options.device_bytes).value();
  const int64_t smallest = options.host_bytes;
  const Plan least = make_plan(model, options);
  EXPECT_GT(chunks_at(least, Home::kNvme), 0);
  EXPECT_GT(tensors_at(least, Home::kNvme), 0);
  // Between the two, gradients come back before activations leave, those first that the next forward needs first.
  options.host_bytes = smallest + 600 * kKiB;
  const Plan between = make_plan(model, options);
  EXPECT_GT(chunks_at(between, Home::kHost), chunks_at(least, Home::kHost));
  int last_in_host = -1, first_on_nvme = static_cast<int>(between.chunks.size());
  for (int i = 0; i < static_cast<int>(between.update_order.size()); ++i) {
    const int c = between.update_order[i];
    if (between.geometry.chunks()[c].elements != kChunk) continue;  // smaller ones fill what is left
    const Home home = between.chunks[c].gradient;
    if (home == Home::kHost) last_in_host = i;
    if (home == Home::kNvme) first_on_nvme = std::min(first_on_nvme, i);
  }
  EXPECT_LT(last_in_host, first_on_nvme);
}

TEST(NvmeHomes, chosen_by_the_planner_train_to_the_bits_of_the_reference) {
  const ModelSpec model = layers(6);
  const ReferenceOptions reference{.micro_batches = 2, .steps = 3, .max_norm = 0.05};
  const RunRecord expected = train_reference(model, reference);
  PlanOptions plan = plan_options();
  plan.device_bytes = small_device(model, plan);
  const int64_t smallest = Planner(model, plan).smallest_host(plan.device_bytes).value();
  for (const int64_t more : {int64_t{0}, 100 * kKiB, 300 * kKiB}) {
    TempFolder folder;
    EngineOptions options = engine_options(folder, reference);
    options.plan.device_bytes = plan.device_bytes;
    options.plan.host_bytes = smallest + more;
    options.plan.chunk_elements = kChunk;
    Engine engine(model, options, toy_source());
    EXPECT_EQ(train_engine(engine, model, reference), expected) << more;
    if (more == 0) {
      EXPECT_GT(engine.last_lanes().bytes(Lane::kWrite, Group::kGradient), 0);
    }
  }
}

TEST(NvmeHomes, are_in_the_table_of_the_plan_and_in_what_a_step_writes) {
  const ModelSpec model = layers(5);
  PlanOptions options = plan_options();
  options.commit_interval = 1;
  options.update = UpdateMode::kDeferred;  // which reads every gradient
  const Plan without = make_plan(model, options);
  options.placement.gradient = options.placement.activations = {{HomeKind::kNvme, 1}};
  const Plan plan = make_plan(model, options);
  int64_t scratch = 0, rows = 0;
  for (const int64_t bytes : plan.scratch_bytes) scratch += bytes;
  for (const UseRow& row : plan.uses) {
    if (row.tier == Tier::kNvme && (row.use == "closed gradients" || row.use == "activation checkpoints"))
      rows += row.bytes;
  }
  EXPECT_EQ(rows, scratch);
  EXPECT_EQ(plan.disk_bytes, without.disk_bytes + scratch);
  EXPECT_GT(plan.written_bytes_per_step, without.written_bytes_per_step + static_cast<double>(scratch) / 2);
  int64_t gradient_bytes = 0, written = RecordStore::commit_bytes(ssize(plan.chunks), options.progress_bytes);
  for (const MoveRow& row : plan.moves) {
    if (row.what == "gradient" && row.link.starts_with("nvme")) gradient_bytes += row.bytes;
    if (row.link == "nvme write") written += row.bytes;
  }
  EXPECT_EQ(gradient_bytes, 2 * plan.gradient_bytes(plan.geometry.padded_elements()));  // written and read
  EXPECT_EQ(static_cast<double>(written), plan.written_bytes_per_step);                 // padding is a row of its own
}

// Transfers of tensors and of their gradients in a unit.
struct TensorMoves {
  int writes = 0, reads = 0;
  friend bool operator==(const TensorMoves&, const TensorMoves&) = default;
};
TensorMoves tensor_moves(const ModelSpec& model, const Plan& plan, UnitKind kind) {
  TensorMoves moves;
  const UnitProgram unit = build_unit(model, plan, kind);
  for (const Hop& hop : unit.program.hops()) {
    if (hop.group != Group::kActivations) continue;
    moves.writes += hop.verb == Verb::kSwapOut ? 1 : 0;
    moves.reads += hop.verb == Verb::kSwapIn ? 1 : 0;
  }
  return moves;
}

TEST(NvmeHomes, see_a_tensor_once_each_way_and_its_gradient_never_where_the_ring_holds_what_a_visit_passes) {
  const ModelSpec model = layers(8);
  PlanOptions options = plan_options();
  options.placement.activations = {{HomeKind::kNvme, 1}};
  const int tensors = 7 * options.micro_batches, read_once = options.micro_batches;  // by the last visit
  const TensorMoves least{tensors - read_once, tensors - read_once};
  const Plan roomy = make_plan(model, options);
  EXPECT_EQ(tensor_moves(model, roomy, UnitKind::kTrain), least);
  EXPECT_EQ(tensor_moves(model, roomy, UnitKind::kEvaluate), (TensorMoves{0, 0}));

  options.host_bytes = Planner(model, options).smallest_host(options.device_bytes).value();
  const Plan crowded = make_plan(model, options);
  EXPECT_EQ(tensor_moves(model, crowded, UnitKind::kTrain).writes, 2 * tensors);  // the gradients too
  EXPECT_GT(tensor_moves(model, crowded, UnitKind::kTrain).reads, 2 * tensors);
}

// A tensor takes whole blocks of the ring: two of them, of which its second has four bytes.
TEST(NvmeHomes, have_their_gradients_pass_the_drive_too_until_the_ring_holds_every_block_that_a_visit_passes) {
  const ModelSpec model = toy_model({.visits = 8, .tensor_elements = 2050}, Precision::kBf16);
  PlanOptions options = plan_options();
  options.placement = {.weights = {{HomeKind::kHost, 1}},
                       .state = {{HomeKind::kHost, 1}},
                       .gradient = {{HomeKind::kHost, 1}},
                       .activations = {{HomeKind::kNvme, 1}}};
  const int64_t smallest = Planner(model, options).smallest_host(options.device_bytes).value();
  const int64_t passes = 2 * 8192 * options.micro_batches;  // of a visit: a tensor that it takes, and one that it gives
  const int tensors = 7 * options.micro_batches, read_once = options.micro_batches;
  int less = 0, enough = 0;
  for (int64_t more = 0; more < 128 * kKiB; more += 4 * kKiB) {
    options.host_bytes = smallest + more;
    const Plan plan = make_plan(model, options);
    EXPECT_EQ(plan.host_boundary.bytes % kPlaneAlignmentBytes, 0);
    const bool holds_a_visit = plan.host_boundary.bytes >= passes;
    ++(holds_a_visit ? enough : less);
    const TensorMoves moves = tensor_moves(model, plan, UnitKind::kTrain);
    EXPECT_EQ(moves.writes, holds_a_visit ? tensors - read_once : 2 * tensors) << plan.host_boundary.bytes;
  }
  EXPECT_GT(less, 1);
  EXPECT_GT(enough, 1);
}

// Tensors with several readers and givers among them.
TEST(NvmeHomes, train_to_the_bits_of_the_reference_through_rings_of_any_depth) {
  int depths = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const ModelSpec model = random_model(seed, Precision::kBf16);
    const ReferenceOptions reference{.micro_batches = 1 + static_cast<int>(seed % 3), .steps = 2};
    const RunRecord expected = train_reference(model, reference);
    TempFolder names;
    EngineOptions options = engine_options(names, reference);
    options.plan.placement.activations = {{HomeKind::kNvme, 1}};
    const int64_t smallest = Planner(model, options.plan).smallest_host(options.plan.device_bytes).value();
    int64_t last_depth = 0;
    for (int64_t more = 0; more <= 512 * kKiB; more += 64 * kKiB) {
      options.plan.host_bytes = smallest + more;
      const int64_t depth = make_plan(model, options.plan).host_boundary.bytes;
      if (depth == last_depth) continue;
      last_depth = depth;
      ++depths;
      TempFolder folder;
      EngineOptions here = options;
      here.store.folder = folder.path();
      Engine engine(model, here, toy_source());
      EXPECT_EQ(train_engine(engine, model, reference), expected) << "seed " << seed << " ring " << depth;
    }
  }
  EXPECT_GT(depths, 12);
}

TEST(NvmeHomes, wait_for_no_commit) {
  const ModelSpec model = layers(5);
  for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kSpeculative}) {
    PlanOptions options = plan_options();
    options.update = mode;
    options.placement.gradient = options.placement.activations = {{HomeKind::kNvme, 1}};
    const Plan plan = make_plan(model, options);
    for (const UnitKind kind : unit_kinds(plan)) {
      const UnitProgram unit = build_unit(model, plan, kind);
      int swaps = 0;
      for (int hop = 0; hop < static_cast<int>(unit.program.hops().size()); ++hop) {
        const Hop& what = unit.program.hops()[hop];
        if ((what.verb != Verb::kSwapIn && what.verb != Verb::kSwapOut) || what.scratch_extent < 0) continue;
        ++swaps;
        for (const int32_t before : unit.program.predecessors(hop))
          EXPECT_NE(unit.program.hops()[before].verb, Verb::kCommit);
      }
      EXPECT_GT(swaps, 0);
    }
  }
}

// Weights and state in host memory: whatever is read comes from scratch.
class WrongScratch : public ::testing::Test {
 protected:
  std::string error_of(const Placement& placement) const {
    TempFolder folder;
    const auto faults = std::make_shared<Faults>();
    EngineOptions options = engine_options(folder, reference_);
    options.plan.placement = placement;
    options.plan.placement.weights = options.plan.placement.state = {{HomeKind::kHost, 1}};
    options.store.make_queue = faulty_queue_factory(faults);
    Engine engine(model_, options, toy_source());
    for (int64_t number = 1; number <= 2; ++number) engine.train_step(1e-2, toy_compute(model_, number));
    faults->list = {{.nth = faults->reads + 2, .wrong_byte = 5}};
    return message_or<CorruptionError>("trained on", [&] {
      for (int64_t number = 3; number <= 4; ++number) engine.train_step(1e-2, toy_compute(model_, number));
    });
  }
  ReferenceOptions reference_{.micro_batches = 2};
  ModelSpec model_ = toy_model({.visits = 4}, Precision::kBf16);
};

TEST_F(WrongScratch, bytes_of_a_gradient_are_named_and_never_trained_on) {
  EXPECT_THAT(error_of({.gradient = {{HomeKind::kNvme, 1}}}),
              AllOf(HasSubstr("chunk 2, gradient"), HasSubstr("block "), HasSubstr("CRC32C"), HasSubstr("sluice-0")));
}

TEST_F(WrongScratch, bytes_of_an_activation_are_named_and_never_trained_on) {
  EXPECT_THAT(error_of({.activations = {{HomeKind::kNvme, 1}}}),
              AllOf(HasSubstr("tensor "), HasSubstr("of micro-batch 0"), HasSubstr("CRC32C")));
}

}  // namespace
}  // namespace sluice::testing
