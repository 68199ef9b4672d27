#include "core/geometry.h"

#include <gtest/gtest.h>

#include <string>

#include "core/errors.h"

namespace sluice {
namespace {

std::vector<PartitionSpec> two_partitions() {
  return {{.name = "embedding", .parameters = {{"wte.weight", {7, 19}}, {"wpe.weight", {3, 5}}}},
          {.name = "head", .parameters = {{"B.bias", {129}}, {"a.scale", {}}}}};
}

template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Geometry, starts_every_parameter_at_a_multiple_of_128_in_order) {
  const Geometry geometry(two_partitions(), 1000);
  ASSERT_EQ(geometry.parameters().size(), 4u);
  EXPECT_EQ(geometry.parameters()[0].elements, 133);
  EXPECT_EQ(geometry.parameters()[0].offset, 0);
  EXPECT_EQ(geometry.parameters()[1].elements, 15);
  EXPECT_EQ(geometry.parameters()[1].offset, 256);
  EXPECT_EQ(geometry.parameters()[2].partition, 1);
  EXPECT_EQ(geometry.parameters()[2].offset, 0);
  EXPECT_EQ(geometry.parameters()[3].offset, 256);
  EXPECT_EQ(geometry.parameters()[3].elements, 1);  // no sides: a scalar
  EXPECT_EQ(geometry.partitions()[0].elements, 384);
  EXPECT_EQ(geometry.partitions()[1].elements, 384);
  EXPECT_EQ(geometry.parameter_elements(), 133 + 15 + 129 + 1);
  EXPECT_EQ(geometry.padded_elements(), 768);
  EXPECT_EQ(geometry.parameters_of(1)[0].name, "B.bias");
}

TEST(Geometry, cuts_a_shorter_last_chunk_where_the_length_does_not_divide) {
  const Geometry geometry(two_partitions(), 200);
  ASSERT_EQ(geometry.chunks().size(), 4u);
  EXPECT_EQ(geometry.chunks()[1].first, 200);
  EXPECT_EQ(geometry.chunks()[1].elements, 184);
  EXPECT_EQ(geometry.partitions()[1].first_chunk, 2);
  EXPECT_EQ(geometry.chunks()[2].partition, 1);
  EXPECT_EQ(geometry.chunks()[2].first, 0);  // a chunk never spans two partitions
}

TEST(Geometry, covers_every_element_once_for_any_chunk_length) {
  const auto specs = two_partitions();
  for (int64_t chunk_elements = kMinChunkElements; chunk_elements < 500; ++chunk_elements) {
    const Geometry geometry(specs, chunk_elements);
    for (int partition = 0; partition < 2; ++partition) {
      int64_t next = 0;
      for (const int number : geometry.partitions()[static_cast<size_t>(partition)].chunks()) {
        const Chunk& chunk = geometry.chunks()[static_cast<size_t>(number)];
        ASSERT_EQ(chunk.first, next);
        ASSERT_GT(chunk.elements, 0);
        ASSERT_LE(chunk.elements, chunk_elements);
        next += chunk.elements;
      }
      ASSERT_EQ(next, geometry.partitions()[static_cast<size_t>(partition)].elements);
    }
  }
}

TEST(Geometry, of_a_partition_with_one_small_parameter_is_one_chunk) {
  const std::vector<PartitionSpec> specs = {{.name = "p", .parameters = {{"only", {1}}}}};
  const Geometry geometry(specs, 1 << 20);
  ASSERT_EQ(geometry.chunks().size(), 1u);
  EXPECT_EQ(geometry.chunks()[0].elements, 128);
  EXPECT_EQ(geometry.find_parameter("only"), 0);
}

TEST(Geometry, orders_names_by_their_bytes) {
  const Geometry geometry(two_partitions(), 1000);
  std::vector<std::string> names;
  for (const int index : geometry.canonical()) names.push_back(geometry.parameters()[static_cast<size_t>(index)].name);
  EXPECT_EQ(names, (std::vector<std::string>{"B.bias", "a.scale", "wpe.weight", "wte.weight"}));
}

TEST(Geometry, finds_parameters_by_name_and_says_when_there_is_none) {
  const Geometry geometry(two_partitions(), 1000);
  EXPECT_EQ(geometry.find_parameter("wpe.weight"), 1);
  EXPECT_EQ(geometry.find_parameter("a.scale"), 3);
  EXPECT_EQ(geometry.find_parameter("wpe"), -1);
  EXPECT_EQ(geometry.find_parameter("zzz"), -1);
}

TEST(Geometry, refuses_what_it_cannot_lay_out_and_names_it) {
  using Specs = std::vector<PartitionSpec>;
  EXPECT_EQ(refusal([] { Geometry(two_partitions(), 127); }), "chunk_elements is 127; it must be 128 at the least");
  EXPECT_EQ(refusal([] { Geometry(Specs{{.name = "h.0", .parameters = {}}}, 128); }),
            "partition 'h.0' has no parameters");
  EXPECT_EQ(refusal([] {
              Geometry(Specs{{.name = "h.0", .parameters = {{"w", {3, 0}}}}}, 128);
            }),
            "parameter 'w' has no elements");
  EXPECT_EQ(
      refusal([] {
        Geometry(Specs{{.name = "a", .parameters = {{"w", {1}}}}, {.name = "b", .parameters = {{"w", {2}}}}}, 128);
      }),
      "two parameters are named 'w'");
  EXPECT_EQ(refusal([] {
              Geometry(Specs{{.name = "a", .parameters = {{"w", {-2, 3}}}}}, 128);
            }),
            "parameter 'w' has an impossible shape [-2, 3]");
  EXPECT_EQ(refusal([] {
              Geometry(Specs{{.name = "a", .parameters = {{"w", {1 << 30, 1 << 30, 1 << 30}}}}}, 128);
            }),
            "parameter 'w' has an impossible shape [1073741824, 1073741824, 1073741824]");
}

TEST(Geometry, has_parameters_of_2_to_the_48_elements_at_most) {
  constexpr int64_t kSide = int64_t{1} << 24;
  EXPECT_EQ((ParameterSpec{"w", {kSide, kSide}}.elements()), kSide * kSide);
  EXPECT_EQ(refusal([] {
              ParameterSpec{"w", {kSide, kSide + 1}}.elements();
            }),
            "parameter 'w' has an impossible shape [16777216, 16777217]");
}

TEST(RecordLayout, pads_each_plane_to_4096_bytes_and_counts_the_payload) {
  const RecordLayout layout = record_layout(Precision::kBf16, Group::kState, 1536);
  EXPECT_EQ(layout.plane_count, 3);
  EXPECT_EQ(layout.plane_offset[0], 0);
  EXPECT_EQ(layout.plane_bytes[0], 3072);
  EXPECT_EQ(layout.plane_offset[1], 4096);
  EXPECT_EQ(layout.plane_bytes[1], 6144);
  EXPECT_EQ(layout.plane_offset[2], 4096 + 8192);
  EXPECT_EQ(layout.bytes, 4096 + 8192 + 8192);
  EXPECT_EQ(record_bytes(Precision::kBf16, Group::kState, 1536), layout.bytes);
}

TEST(RecordLayout, has_no_padding_where_planes_fill_their_pages) {
  const RecordLayout layout = record_layout(Precision::kFp32, Group::kState, 1024);
  EXPECT_EQ(layout.bytes, 1024 * 8);
  EXPECT_EQ(record_bytes(Precision::kFp32, Group::kState, 1024), layout.bytes);
  EXPECT_EQ(record_layout(Precision::kFp32, Group::kWeights, 1024).bytes, 4096);
}

}  // namespace
}  // namespace sluice
