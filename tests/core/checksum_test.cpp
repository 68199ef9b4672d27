#include "core/checksum.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <set>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Castagnoli, bit by bit, reflected.
uint32_t bitwise_crc32c(uint32_t so_far, std::span<const std::byte> bytes) {
  uint32_t crc = ~so_far;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST(Crc32c, gives_the_standards_check_values) {
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xE3069283);
  EXPECT_EQ(crc32c(0, std::span<const std::byte>()), 0u);
  // RFC 3720, B.4: 32 bytes of zeros, of ones, ascending.
  std::vector<std::byte> block(32);
  EXPECT_EQ(crc32c(0, block), 0x8A9136AA);
  std::fill(block.begin(), block.end(), std::byte{0xFF});
  EXPECT_EQ(crc32c(0, block), 0x62A8AB43);
  for (size_t i = 0; i < block.size(); ++i) block[i] = std::byte(i);
  EXPECT_EQ(crc32c(0, block), 0x46DD794E);
}

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937_64 random(5);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = std::byte(random());
  return bytes;
}

// By the definition, as it grows byte by byte: crcs[n] is that of the first n bytes.
std::vector<uint32_t> crcs_of_all_lengths(std::span<const std::byte> bytes) {
  std::vector<uint32_t> crcs = {0};
  for (const std::byte& byte : bytes) crcs.push_back(bitwise_crc32c(crcs.back(), {&byte, 1}));
  return crcs;
}

TEST(Crc32c, agrees_with_the_definition_at_every_short_length_and_offset) {
  const std::vector<std::byte> data = random_bytes(1024 + 64);
  for (size_t offset = 0; offset < 64; ++offset) {
    const auto part = std::span<const std::byte>(data).subspan(offset, 1024);
    const std::vector<uint32_t> expected = crcs_of_all_lengths(part);
    for (size_t length = 0; length <= part.size(); ++length) {
      ASSERT_EQ(crc32c(0, part.first(length)), expected[length]) << offset << " " << length;
    }
  }
}

TEST(Crc32c, agrees_with_the_definition_on_long_spans_at_every_offset) {
  const std::vector<std::byte> data = random_bytes(20'000);
  for (size_t offset = 0; offset < 64; ++offset) {
    const auto part = std::span<const std::byte>(data).subspan(offset);
    const std::vector<uint32_t> expected = crcs_of_all_lengths(part);
    for (size_t length = 1025; length <= part.size(); length += 509) {
      ASSERT_EQ(crc32c(0, part.first(length)), expected[length]) << offset << " " << length;
    }
  }
}

TEST(Crc32c, continues_where_it_stopped) {
  const auto all = bytes_of("a record is read in pieces");
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    EXPECT_EQ(crc32c(crc32c(0, all.first(cut)), all.subspan(cut)), crc32c(0, all));
  }
}

// ISA-L counts in an int. Only the last page of the mapping is not the system's page of zeros.
TEST(Crc32c, of_more_than_a_call_of_isa_l_takes_is_that_of_the_parts_one_after_the_other) {
  constexpr size_t kMany = size_t{1} << 30, kBytes = kMany + 4096;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) GTEST_SKIP() << "a limit (ulimit -v) does not allow 1 GiB of addresses";
  const std::span<std::byte> all(static_cast<std::byte*>(mapped), kBytes);
  all[kBytes - 1] = std::byte{7};
  EXPECT_EQ(crc32c(9, all), crc32c(crc32c(9, all.first(kMany)), all.subspan(kMany)));
  munmap(mapped, kBytes);
}

TEST(PlaneSeed, differs_between_all_places_of_a_store) {
  std::set<uint32_t> seeds;
  size_t places = 0;
  for (uint32_t chunk = 0; chunk < 3000; ++chunk) {
    for (const Group group : {Group::kWeights, Group::kState, Group::kGradient}) {
      for (int plane = 0; plane < 3; ++plane, ++places) seeds.insert(plane_seed(chunk, group, plane));
    }
  }
  EXPECT_EQ(seeds.size(), places);
}

TEST(PlaneSeed, depends_on_every_bit_of_the_chunks_number) {
  std::set<uint32_t> seeds = {plane_seed(1, Group::kState, 0)};
  for (int bit = 0; bit < 32; ++bit) seeds.insert(plane_seed(1u ^ 1u << bit, Group::kState, 0));
  EXPECT_EQ(seeds.size(), 33u);
}

// A store's checksums begin with them.
TEST(PlaneSeed, is_the_same_in_every_version) {
  EXPECT_EQ(plane_seed(0, Group::kWeights, 0), 0x572a7c8au);
  EXPECT_EQ(plane_seed(3, Group::kState, 2), 0x910f5fd0u);
  EXPECT_EQ(plane_seed(70000, Group::kState, 1), 0x9769be61u);
}

TEST(PlaneSeed, makes_equal_content_differ_between_places) {
  const auto content = bytes_of("the same bytes");
  EXPECT_NE(crc32c(plane_seed(1, Group::kState, 0), content), crc32c(plane_seed(2, Group::kState, 0), content));
  EXPECT_NE(crc32c(plane_seed(1, Group::kState, 1), content), crc32c(plane_seed(1, Group::kState, 2), content));
  EXPECT_NE(crc32c(plane_seed(1, Group::kState, 0), content), crc32c(plane_seed(1, Group::kWeights, 0), content));
}

TEST(Crc32c, of_two_parts_is_joined_from_theirs) {
  const std::vector<std::byte> data = random_bytes(5000);
  const std::span<const std::byte> all(data);
  for (const size_t first : {0, 1, 7, 8, 255, 256, 4095, 4096, 4999, 5000}) {
    EXPECT_EQ(crc32c_joined(crc32c(0, all.first(first)), crc32c(0, all.subspan(first)),
                            static_cast<int64_t>(data.size() - first)),
              crc32c(0, all))
        << first;
  }
}

// Lengths that nobody adds up byte by byte: zeros after zeros are twice the zeros.
TEST(Crc32c, joins_parts_longer_than_memory) {
  constexpr int64_t kMany = int64_t{1} << 40;
  const uint32_t one = crc32c(0, std::vector<std::byte>(1));
  uint32_t zeros = one;
  for (int64_t length = 1; length < kMany; length *= 2) zeros = crc32c_joined(zeros, zeros, length);
  EXPECT_EQ(crc32c_joined(zeros, one, 1), crc32c_joined(one, zeros, kMany));
}

}  // namespace
}  // namespace sluice
