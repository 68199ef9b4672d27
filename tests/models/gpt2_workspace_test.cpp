// What a micro-batch needs of the device beside planned memory: the closed form against what is measured.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <ostream>
#include <vector>

#include "libtorch/process.h"
#include "models/gpt2.h"
#include "tests/models/compute_threads.h"

namespace sluice::testing {
namespace {

struct Shape {
  int64_t width, heads, vocabulary, inner, batch, sequence, tile_tokens;
  Precision precision;
  Gpt2Tiling tiling = {};
};

void expect_within(double share, int64_t estimated, int64_t measured) {
  EXPECT_NEAR(static_cast<double>(estimated), static_cast<double>(measured), share * static_cast<double>(measured));
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << fmt::format("width {} batch {} sequence {} {} tiles {} and {}", shape.width, shape.batch,
                            shape.sequence, name_of(shape.precision), shape.tiling.linear, shape.tiling.embedding);
}

// Of those that a sanitizer's build has time for.
std::vector<Shape> shapes() {
  const Shape all[] = {{384, 6, 4096, 0, 2, 256, 0, Precision::kBf16},
                       {384, 6, 4096, 0, 2, 256, 64, Precision::kFp32},
                       {768, 12, 50257, 0, 1, 128, 0, Precision::kBf16},
                       {256, 8, 32000, 0, 4, 64, 0, Precision::kBf16},
                       {512, 8, 8192, 512, 4, 128, 64, Precision::kBf16},
                       {384, 6, 4096, 0, 1, 64, 0, Precision::kBf16},
                       {128, 2, 1000, 0, 1, 1024, 0, Precision::kBf16},
                       {128, 2, 1000, 0, 16, 32, 0, Precision::kFp32},
                       {384, 6, 4096, 0, 1, 512, 0, Precision::kBf16},
                       {512, 16, 4096, 0, 2, 256, 0, Precision::kBf16},
                       {1024, 8, 2048, 0, 1, 128, 0, Precision::kBf16},
                       {384, 6, 4096, 0, 4, 256, 0, Precision::kFp16},
                       {768, 12, 50257, 0, 1, 256, 0, Precision::kFp16},
                       {512, 8, 8192, 512, 4, 128, 64, Precision::kFp16},
                       {1024, 8, 4096, 0, 4, 128, 32, Precision::kFp16},
                       {384, 6, 4096, 0, 4, 256, 0, Precision::kBf16, {3, 4}},
                       {384, 6, 4096, 0, 2, 256, 64, Precision::kFp32, {6, 8}},
                       {768, 12, 50257, 0, 1, 256, 0, Precision::kBf16, {12, 8}},
                       {768, 12, 50257, 0, 1, 64, 8, Precision::kFp32, {4, 16}},
                       {256, 8, 32000, 0, 8, 64, 0, Precision::kBf16, {8, 1}},
                       {512, 8, 8192, 512, 4, 128, 64, Precision::kBf16, {2, 4}},
                       {128, 2, 1000, 0, 16, 32, 0, Precision::kFp32, {2, 2}},
                       {256, 8, 32000, 0, 8, 64, 0, Precision::kBf16, {1, 16}},
                       {256, 32, 500, 0, 1, 16, 16, Precision::kFp32, {32, 16}},
                       {512, 8, 500, 64, 2, 256, 16, Precision::kFp32, {2, 4}},
                       {512, 8, 500, 64, 1, 512, 16, Precision::kBf16, {4, 4}},
                       {384, 6, 4096, 0, 4, 256, 0, Precision::kFp16, {3, 4}},
                       {384, 6, 4096, 0, 4, 256, 0, Precision::kBf16, {24, 8}},
                       {256, 4, 500, 0, 1, 16, 16, Precision::kFp32, {16, 16}},
                       {384, 6, 4096, 0, 4, 256, 0, Precision::kBf16, {18, 64}},
                       {384, 6, 4096, 0, 1, 512, 0, Precision::kBf16, {24, 64}},
                       {768, 12, 500, 0, 4, 64, 16, Precision::kBf16, {36, 8}},
                       {192, 3, 500, 0, 16, 64, 16, Precision::kBf16, {9, 8}},
                       {384, 6, 4096, 0, 4, 256, 0, Precision::kFp16, {24, 64}},
                       {256, 4, 500, 0, 4, 64, 16, Precision::kFp32, {16, 16}},
                       {256, 4, 500, 0, 2, 256, 16, Precision::kFp32, {16, 16}},
                       {768, 12, 500, 0, 4, 64, 16, Precision::kFp32, {36, 8}},
                       {384, 6, 500, 0, 4, 64, 16, Precision::kFp32, {12, 8}}};
  std::vector<Shape> taken;
  for (size_t i = 0; i < std::size(all); i += SLUICE_EVERY_NTH_COMBINATION) taken.push_back(all[i]);
  return taken;
}

class Workspaces : public ::testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(shapes, Workspaces, ::testing::ValuesIn(shapes()));

TEST_P(Workspaces, are_within_15_percent_of_the_closed_form) {
  set_process({.compute_threads = kComputeThreads});
  const Shape& shape = GetParam();
  Gpt2Config config;
  config.n_embd = shape.width, config.n_head = shape.heads, config.vocab_size = shape.vocabulary;
  config.n_inner = shape.inner, config.n_layer = 1, config.tiling = shape.tiling;
  Gpt2 model(config, {.precision = shape.precision,
                      .batch = shape.batch,
                      .sequence = shape.sequence,
                      .loss_tile_tokens = shape.tile_tokens});
  const ComputeMemory measured = model.measure_memory(), estimated = model.estimate_memory();
  expect_within(0.15, estimated.workspace_bytes, measured.workspace_bytes);
  ASSERT_EQ(estimated.graph_bytes.size(), measured.graph_bytes.size());
  for (size_t visit = 0; visit < measured.graph_bytes.size(); ++visit) {
    const bool block = shape.tiling.linear == 1 && model.spec().visits[visit].name.starts_with("h.");
    EXPECT_EQ(measured.graph_bytes[visit] > 0, block);
    expect_within(0.25, estimated.graph_bytes[visit], measured.graph_bytes[visit]);
  }
}

}  // namespace
}  // namespace sluice::testing
