// Moving bytes moves no bits: every placement trains like the reference that keeps everything in memory.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tests/engine/engine_fixture.h"

namespace sluice::testing {
namespace {

ReferenceOptions reference_options(Precision precision) {
  ReferenceOptions options{.precision = precision,
                           .gradient_dtype = weights_dtype(precision),
                           .micro_batches = 2,
                           .steps = 4,
                           .max_norm = 0.05};
  // Some of the steps are skipped.
  if (precision == Precision::kFp16) {
    options.loss_scale = {.kind = LossScaleOptions::Kind::kDynamic, .first = 0x1p18, .window = 3, .hysteresis = 1};
  }
  return options;
}

// Pages of a file that are in the page cache. Mapping it brings none in.
int64_t cached_pages(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY);
  struct stat status {};
  fstat(file, &status);
  const size_t pages = static_cast<size_t>((status.st_size + 4095) / 4096);
  void* map = mmap(nullptr, pages * 4096, PROT_READ, MAP_SHARED, file, 0);
  std::vector<unsigned char> resident(pages);
  EXPECT_EQ(mincore(map, pages * 4096, resident.data()), 0);
  munmap(map, pages * 4096);
  close(file);
  int64_t cached = 0;
  for (unsigned char page : resident) cached += page & 1;
  return cached;
}

struct PlacementCase {
  HomeKind weights, state, gradient, activations;
  ToyShape shape;
  Precision precision;
};

std::vector<PlacementCase> all_placements() {
  using enum HomeKind;
  std::vector<PlacementCase> cases;
  for (Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    for (HomeKind weights : {kHost, kNvme, kHostAndDevice, kNvmeAndDevice}) {
      for (HomeKind state : {kHost, kNvme}) {
        for (HomeKind gradient : {kDevice, kHost, kNvme}) {
          for (HomeKind activations : {kDevice, kHost, kNvme}) {
            const auto shape = static_cast<ToyShape>(cases.size() % 4);
            cases.push_back({weights, state, gradient, activations, shape, precision});
          }
        }
      }
    }
    for (HomeKind weights : {kHostAndDevice, kNvmeAndDevice}) {
      for (HomeKind activations : {kDevice, kHost, kNvme}) {
        const auto shape = static_cast<ToyShape>(cases.size() % 4);
        cases.push_back({weights, kDevice, kDevice, activations, shape, precision});
      }
    }
  }
  return cases;
}

std::vector<bool> graphs_kept(const Plan& plan) {
  std::vector<bool> kept;
  for (int visit = 0; visit < static_cast<int>(plan.graphs.size()); ++visit) kept.push_back(plan.keeps_graph(visit));
  return kept;
}
// Only where weights and inputs stay on the device; the first visit has no inputs, the last is a sink.
std::vector<bool> graphs_wanted(const PlacementCase& which) {
  if (which.weights != HomeKind::kHostAndDevice && which.weights != HomeKind::kNvmeAndDevice) {
    return std::vector<bool>(6, false);
  }
  const bool inputs_stay = which.activations == HomeKind::kDevice;
  return {true, inputs_stay, inputs_stay, false, inputs_stay, false};
}

class EveryPlacement : public ::testing::TestWithParam<PlacementCase> {};

TEST_P(EveryPlacement, trains_to_the_bits_of_the_reference) {
  const PlacementCase& which = GetParam();
  const ReferenceOptions reference = reference_options(which.precision);
  const ModelSpec model = toy_model({.visits = 6, .shape = which.shape}, which.precision);
  TempFolder folder;
  EngineOptions options = engine_options(folder, reference);
  options.plan.placement = {.weights = {{which.weights, 1}},
                            .state = {{which.state, 1}},
                            .gradient = {{which.gradient, 1}},
                            .activations = {{which.activations, 1}}};
  options.plan.graph_bytes = {300, 256, 1000, 0, 77, 5000};
  Engine engine(model, options, toy_source());
  EXPECT_EQ(train_engine(engine, model, reference), train_reference(model, reference));
  EXPECT_EQ(graphs_kept(engine.plan()), graphs_wanted(which));

  const StepLanes& lanes = engine.last_lanes();
  const int64_t state = engine.geometry().padded_elements() * bytes_per_element(which.precision, Group::kState);
  const int64_t weights = engine.geometry().padded_elements() * bytes_per_element(which.precision, Group::kWeights);
  // With a commit every step, state is written every step wherever its home is, and read where that is NVMe.
  EXPECT_EQ(lanes.state_read_bytes, which.state == HomeKind::kNvme ? state : 0);
  EXPECT_EQ(lanes.state_write_bytes, engine.plan().commit_interval == 1 ? state : 0);
  const bool kept = which.weights == HomeKind::kHostAndDevice || which.weights == HomeKind::kNvmeAndDevice;
  const bool weights_on_nvme =
      which.weights == HomeKind::kNvme ||
      (which.weights == HomeKind::kNvmeAndDevice && which.state != HomeKind::kDevice);  // else with their state
  if (!weights_on_nvme) {
    EXPECT_EQ(lanes.weights_read_bytes, 0);
  }
  if (weights_on_nvme && kept) {
    EXPECT_EQ(lanes.weights_read_bytes, weights);
  }
  if (weights_on_nvme && !kept) {
    EXPECT_GT(lanes.weights_read_bytes, weights);
  }
  // A gradient goes to its home once and to its update once.
  const int64_t gradient = engine.geometry().padded_elements() * bytes_of(weights_dtype(which.precision));
  const bool gradient_on_nvme = which.gradient == HomeKind::kNvme;
  EXPECT_EQ(lanes.gradient_write_bytes, gradient_on_nvme ? gradient : 0);
  EXPECT_EQ(lanes.gradient_read_bytes, gradient_on_nvme ? gradient : 0);
  EXPECT_EQ(lanes.activations_write_bytes > 0, which.activations == HomeKind::kNvme);
  EXPECT_EQ(lanes.activations_read_bytes > 0, which.activations == HomeKind::kNvme);
  EXPECT_EQ(cached_pages(folder.path() / "sluice-0.swap"), 0);
}

std::string placement_name(const ::testing::TestParamInfo<PlacementCase>& info) {
  const auto word = [](HomeKind kind) {
    std::string name(name_of(kind));
    for (char& c : name) c = c == '+' ? '_' : c;
    return name;
  };
  return fmt::format("{}_weights_{}_state_{}_gradient_{}_activations_{}_shape_{}", name_of(info.param.precision),
                     word(info.param.weights), word(info.param.state), word(info.param.gradient),
                     word(info.param.activations), static_cast<int>(info.param.shape));
}
INSTANTIATE_TEST_SUITE_P(, EveryPlacement, ::testing::ValuesIn(all_placements()), placement_name);

// One thing varied at a time, all against one reference.
class Variation : public ::testing::Test {
 protected:
  void expect_same(const std::function<void(EngineOptions&)>& change) {
    TempFolder folder;
    EngineOptions options = engine_options(folder, reference_);
    change(options);
    Engine engine(model_, options, toy_source());
    EXPECT_EQ(train_engine(engine, model_, reference_), expected_);
  }

  static void all_on_nvme(EngineOptions& o) {
    const HomeShares nvme = {{HomeKind::kNvme, 1}};
    o.plan.placement = {.weights = nvme, .state = nvme, .gradient = nvme, .activations = nvme};
  }

  ReferenceOptions reference_ = reference_options(Precision::kBf16);
  ModelSpec model_ = toy_model({.visits = 7, .shape = ToyShape::kBoth}, Precision::kBf16);
  RunRecord expected_ = train_reference(model_, reference_);
};

TEST_F(Variation, optimizers_with_one_moment_move_a_plane_less_and_have_the_bits_of_the_reference) {
  for (const AdamKind kind : {AdamKind::kAdagrad, AdamKind::kLion, AdamKind::kSgd}) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
      ReferenceOptions reference = reference_options(precision);
      reference.adam = {.kind = kind, .weight_decay = 0.1, .momentum = 0.9};
      const ModelSpec model = toy_model({.visits = 7, .shape = ToyShape::kBoth}, precision);
      const RunRecord expected = train_reference(model, reference);
      for (const HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
        TempFolder folder;
        EngineOptions options = engine_options(folder, reference);
        options.plan.placement.state = {{home, 1}};
        Engine engine(model, options, toy_source());
        EXPECT_EQ(train_engine(engine, model, reference), expected) << name_of(optimizer_of(kind));
        if (home != HomeKind::kNvme) continue;
        EXPECT_EQ(engine.last_lanes().state_read_bytes,
                  engine.geometry().padded_elements() * (precision == Precision::kBf16 ? 6 : 4));
      }
    }
  }
}

TEST_F(Variation, moments_in_bf16_are_rounded_to_the_same_bits_wherever_they_live) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    ReferenceOptions reference = reference_options(precision);
    reference.moments = DType::kBf16;
    reference.adam.rounding_seed = 11;
    const ModelSpec model = toy_model({.visits = 7, .shape = ToyShape::kBoth}, precision);
    const RunRecord expected = train_reference(model, reference);
    for (const int64_t chunk : {128, 200, 100000}) {
      for (const HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
        for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kReplay}) {
          TempFolder folder;
          EngineOptions options = engine_options(folder, reference);
          options.plan.placement.state = {{home, 1}};
          options.plan.chunk_elements = chunk;
          options.plan.update = mode;
          Engine engine(model, options, toy_source());
          EXPECT_EQ(train_engine(engine, model, reference), expected) << chunk << " " << name_of(mode);
        }
      }
    }
  }
}

TEST_F(Variation, moments_in_bf16_depend_on_the_seed_and_go_on_when_the_run_does) {
  reference_.moments = DType::kBf16;
  const RunRecord expected = train_reference(model_, reference_);
  ReferenceOptions other = reference_;
  other.adam.rounding_seed = 1;
  EXPECT_NE(train_reference(model_, other).state_crc32c, expected.state_crc32c);
  TempFolder folder;
  EngineOptions options = engine_options(folder, reference_);
  {
    Engine engine(model_, options, toy_source());
    for (int64_t step = 1; step <= 2; ++step) engine.train_step(reference_.learning_rate, toy_compute(model_, step));
    engine.drain();
  }
  options.open = OpenMode::kResume;
  Engine resumed(model_, options, toy_source());
  EXPECT_EQ(train_engine(resumed, model_, reference_).state_crc32c, expected.state_crc32c);
}

TEST_F(Variation, a_store_with_moments_of_another_type_is_refused) {
  TempFolder folder;
  EngineOptions options = engine_options(folder, reference_);
  options.plan.moments = DType::kBf16;
  Engine(model_, options, toy_source()).drain();
  options.open = OpenMode::kResume;
  options.plan.moments = DType::kFp32;
  try {
    const Engine engine(model_, options, toy_source());
    FAIL() << "opened";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("state_dtype: the store has bf16, this run fp32"), std::string::npos)
        << error.what();
  }
}

TEST_F(Variation, a_store_of_another_optimizer_is_refused_by_name) {
  TempFolder folder;
  EngineOptions options = engine_options(folder, reference_);
  options.adam.kind = AdamKind::kLion;
  Engine(model_, options, toy_source()).drain();
  options.open = OpenMode::kResume;
  options.adam.kind = AdamKind::kSgd;
  try {
    const Engine engine(model_, options, toy_source());
    FAIL() << "opened";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer: the store has Lion, this run SGD"), std::string::npos)
        << error.what();
  }
}

TEST_F(Variation, chunk_sizes_that_do_not_divide_change_no_bit) {
  for (int64_t chunk : {128, 129, 200, 333, 1000, 100000}) {
    expect_same([chunk](EngineOptions& o) { o.plan.chunk_elements = chunk; });
    expect_same([chunk](EngineOptions& o) {
      o.plan.chunk_elements = chunk;
      all_on_nvme(o);
    });
  }
}

TEST_F(Variation, shares_of_homes_change_no_bit) {
  expect_same([](EngineOptions& o) {
    o.plan.placement = {.weights = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}},
                        .state = {{HomeKind::kNvme, 0.3}, {HomeKind::kHost, 0.7}},
                        .gradient = {{HomeKind::kHost, 0.3}, {HomeKind::kDevice, 0.3}, {HomeKind::kNvme, 0.4}},
                        .activations = {{HomeKind::kDevice, 0.25}, {HomeKind::kNvme, 0.5}, {HomeKind::kHost, 0.25}}};
  });
  for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const HomeShares& state :
         {HomeShares{{HomeKind::kDevice, 0.3}, {HomeKind::kHost, 0.3}, {HomeKind::kNvme, 0.4}},
          HomeShares{{HomeKind::kNvme, 0.5}, {HomeKind::kDevice, 0.5}}}) {
      expect_same([&](EngineOptions& o) {
        o.plan.placement.state = state;
        o.plan.update = update;
      });
      expect_same([&](EngineOptions& o) {
        o.plan.placement.state = state;
        o.plan.placement.weights = {{HomeKind::kHostAndDevice, 0.5}, {HomeKind::kNvmeAndDevice, 0.5}};
        if (update != UpdateMode::kReplay) o.plan.placement.gradient = {{HomeKind::kDevice, 1}};
        o.plan.update = update;
      });
    }
  }
}

TEST_F(Variation, backends_queue_depths_and_update_threads_change_no_bit) {
  for (IoBackend backend : {IoBackend::kUring, IoBackend::kThreads}) {
    for (int depth : {1, 2, 64}) {
      for (int threads : {1, 2}) {
        expect_same([&](EngineOptions& o) {
          o.store.queue.backend = backend;
          o.plan.io_depth = depth;
          o.update_threads = threads;
          if (depth != 2) all_on_nvme(o);
        });
      }
    }
  }
}

TEST_F(Variation, drives_and_their_weights_change_no_bit) {
  for (const std::vector<uint32_t>& weights : {std::vector<uint32_t>{1, 1}, {5, 1, 3}}) {
    TempFolder further;
    expect_same([&](EngineOptions& o) {
      for (size_t drive = 1; drive < weights.size(); ++drive)
        o.store.more_folders.push_back(further.path() / std::to_string(drive));
      o.store.drive_weights = weights;
      all_on_nvme(o);
    });
  }
}

TEST_F(Variation, a_probe_of_the_drive_changes_no_bit_and_is_logged) {
  auto text = std::make_shared<std::string>();
  expect_same([&](EngineOptions& o) {
    o.probe_io = ProbeIo::kYes;
    o.log = [text](LogLevel, const std::string& line) { *text += line + "\n"; };
    o.plan.placement.weights = o.plan.placement.state = {{HomeKind::kNvme, 1}};
  });
  EXPECT_NE(text->find("I/O, the best of"), std::string::npos) << *text;
}

TEST_F(Variation, commit_intervals_change_no_bit) {
  for (int interval : {1, 2, 3, 10}) {
    for (HomeKind state : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
      expect_same([&](EngineOptions& o) {
        o.plan.commit_interval = interval;
        o.plan.placement.state = {{state, 1}};
        if (state == HomeKind::kDevice) return;
        o.plan.placement.weights = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}};
      });
    }
  }
}

TEST_F(Variation, the_smallest_legal_budgets_finish_and_change_no_bit) {
  const EngineOptions generous = [this] {
    TempFolder folder;
    return engine_options(folder, reference_);
  }();
  const Planner planner(model_, generous.plan);
  const auto device = planner.smallest_device(generous.plan.host_bytes);
  const auto host = planner.smallest_host(generous.plan.device_bytes);
  ASSERT_TRUE(device && host);
  EXPECT_LT(*device, generous.plan.device_bytes);
  EXPECT_LT(*host, generous.plan.host_bytes);
  expect_same([&](EngineOptions& o) { o.plan.device_bytes = *device; });
  expect_same([&](EngineOptions& o) { o.plan.host_bytes = *host; });
  const auto host_beside = planner.smallest_host(*device);
  ASSERT_TRUE(host_beside);
  expect_same([&](EngineOptions& o) {
    o.plan.device_bytes = *device;
    o.plan.host_bytes = *host_beside;
  });
  expect_same([&](EngineOptions& o) {
    all_on_nvme(o);
    const Planner forced(model_, o.plan);
    const int64_t least = forced.smallest_host(o.plan.device_bytes).value();
    o.plan.device_bytes = forced.smallest_device(least).value();
    o.plan.host_bytes = least;
  });
  const HomeShares on_device = {{HomeKind::kDevice, 1}};
  expect_same([&](EngineOptions& o) {
    o.plan.placement = {.state = on_device, .activations = {{HomeKind::kNvme, 1}}};
    const Planner forced(model_, o.plan);
    const int64_t least = forced.smallest_device(o.plan.host_bytes).value();
    o.plan.host_bytes = forced.smallest_host(least).value();
    o.plan.device_bytes = least;
    EXPECT_FALSE(find_plan(model_,
                           [&] {
                             PlanOptions less = o.plan;
                             --less.device_bytes;
                             return less;
                           }())
                     .has_value());
  });
  EXPECT_THROW(expect_same([&](EngineOptions& o) { o.plan.device_bytes = *device - 1; }), ConfigError);
  EXPECT_THROW(expect_same([&](EngineOptions& o) { o.plan.host_bytes = *host - 1; }), ConfigError);
}

// Layers in tiles: tensors given by several visits and taken by several, partitions that several contribute to.
class Tiles : public ::testing::TestWithParam<Precision> {
 protected:
  static constexpr int kLayers = 5, kTiles = 3;
  RunRecord train(const std::function<void(EngineOptions&)>& change) {
    const TempFolder folder;
    EngineOptions options = engine_options(folder, reference_);
    change(options);
    Engine engine(model_, options, toy_source());
    const RunRecord record = train_engine(engine, model_, reference_);
    slots_ = engine.plan().open_slots;
    return record;
  }
  int64_t smallest_device() {
    TempFolder folder;
    return Planner(model_, engine_options(folder, reference_).plan).smallest_device(8 * kMiB).value();
  }
  int64_t sums_at_home(Home home) const {
    return std::count_if(slots_.begin(), slots_.end(), [home](const OpenSlot& slot) { return slot.home == home; });
  }

  ReferenceOptions reference_ = reference_options(GetParam());
  ModelSpec model_ = tiled_model(kLayers, kTiles, GetParam());
  RunRecord expected_ = train_reference(model_, reference_);
  std::vector<OpenSlot> slots_;
};
INSTANTIATE_TEST_SUITE_P(, Tiles, ::testing::Values(Precision::kBf16, Precision::kFp32),
                         [](const auto& precision) { return std::string(name_of(precision.param)); });

TEST_P(Tiles, train_to_the_bits_of_the_reference_from_every_home) {
  using enum HomeKind;
  for (const HomeKind weights : {kNvme, kHostAndDevice}) {
    for (const HomeKind gradient : {kDevice, kHost}) {
      for (const HomeShares& activations : {HomeShares{{kDevice, 1}}, {{kHost, 1}}, {{kHost, 0.5}, {kDevice, 0.5}}}) {
        EXPECT_EQ(train([&](EngineOptions& o) {
                    o.plan.placement = {{{weights, 1}}, {{kNvme, 1}}, {{gradient, 1}}, activations};
                  }),
                  expected_);
        EXPECT_EQ(sums_at_home(Home::kHost), 0);
      }
    }
  }
}

TEST_P(Tiles, train_to_the_bits_of_the_reference_when_sums_rest_in_host_memory_between_visits) {
  const int64_t least = smallest_device();
  for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    EXPECT_EQ(train([&](EngineOptions& o) {
                o.plan.device_bytes = least;
                o.plan.update = update;
              }),
              expected_);
    EXPECT_GT(sums_at_home(Home::kHost), 0);
  }
}

// The borrowed partitions' sums live through the whole backward, the others' through their layer's alone.
TEST_P(Tiles, of_more_layers_need_no_more_sums) {
  const auto slots = [&](int layers) {
    TempFolder folder;
    return make_plan(tiled_model(layers, kTiles, GetParam()), engine_options(folder, reference_).plan)
        .open_slots.size();
  };
  EXPECT_EQ(slots(5), slots(25));
  // Borrowed partitions; the layers' shared ones; tensors, one being read while the next is summed.
  EXPECT_EQ(slots(5), static_cast<size_t>(kTiles + 1 + 2 * reference_.micro_batches));
}

TEST_P(Tiles, of_more_layers_or_micro_batches_train_on_the_smallest_device_of_few) {
  const auto least = [&](int layers, int micro_batches) {
    TempFolder folder;
    ReferenceOptions reference = reference_;
    reference.micro_batches = micro_batches;
    const ModelSpec model = tiled_model(layers, kTiles, GetParam());
    return Planner(model, engine_options(folder, reference).plan).smallest_device(8 * kMiB).value();
  };
  EXPECT_EQ(least(30, 1), least(3, 1));
  EXPECT_EQ(least(3, 8), least(3, 1));
}

TEST(RandomModels, train_to_the_bits_of_the_reference) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const ModelSpec model = random_model(seed, Precision::kBf16);
    ReferenceOptions reference = reference_options(Precision::kBf16);
    reference.micro_batches = 1 + static_cast<int>(seed % 4);
    reference.steps = 3;
    TempFolder folder;
    EngineOptions options = engine_options(folder, reference);
    options.plan.device_bytes = options.plan.host_bytes = 64 * kMiB;
    options.plan.commit_interval = 1 + static_cast<int>(seed % 3);
    if (seed % 2 == 0) {
      const Planner planner(model, options.plan);
      options.plan.host_bytes = planner.smallest_host(options.plan.device_bytes).value();
      options.plan.device_bytes = planner.smallest_device(options.plan.host_bytes).value();
    }
    Engine engine(model, options, toy_source());
    EXPECT_EQ(train_engine(engine, model, reference), train_reference(model, reference)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sluice::testing
