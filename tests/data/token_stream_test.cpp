// Files of token ids: what is read is what was written, or an error that names the file.
#include "data/token_stream.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/topology.h"
#include "tests/data/data_support.h"
#include "tests/fakes/awkward_reads.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kHeaderOfTokens = 64;

class TokenStreamTest : public testing::Test {
 protected:
  // `count` ids of a vocabulary of so many, and the stream over them.
  TokenStream write_and_open(int64_t vocabulary_size, int64_t count) {
    ids_.resize(static_cast<size_t>(count));
    std::mt19937 random(3);
    for (int32_t& id : ids_) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary_size));
    TokenWriter writer(file_, vocabulary_size, 9);
    const std::span<const int32_t> all(ids_);
    writer.append(all.first(all.size() / 3));
    writer.append(all.subspan(all.size() / 3));
    writer.finish()->publish();
    return TokenStream::open(file_, 9).value();
  }
  void expect_equal(const TokenStream& stream, int64_t first, int64_t count) const {
    std::vector<int64_t> found(static_cast<size_t>(count));
    stream.read(first, found);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), ids_.begin() + first)) << first << " " << count;
  }
  template <class Error>
  std::string refusal(const TokenStream& stream, int64_t id) const {
    std::vector<int64_t> one(1);
    return message_of<Error>([&] { stream.read(id, one); });
  }
  // CRC32C of a block of ids as the file now holds it.
  std::string crc_of_block(int64_t block, int64_t ids_bytes) const {
    const int64_t begin = block * kTokenBlockBytes;
    const std::string bytes =
        read_whole(file_).substr(static_cast<size_t>(kHeaderOfTokens + begin),
                                 static_cast<size_t>(std::min(kTokenBlockBytes, ids_bytes - begin)));
    return fmt::format("{:08x}", crc32c(0, std::as_bytes(std::span(bytes))));
  }

  TempFolder folder_;
  std::filesystem::path file_ = folder_.path() / "tokens";
  std::vector<int32_t> ids_;
};

TEST_F(TokenStreamTest, what_was_written_is_read_within_blocks_and_over_their_ends_in_both_widths) {
  for (const int64_t vocabulary : {65536, 65537, 1 << 30}) {
    const int64_t block = kTokenBlockBytes / (vocabulary > 65536 ? 4 : 2);
    for (const int64_t total : {int64_t{1}, block, 3 * block, 3 * block + 5, (int64_t{1} << 20) + 1}) {
      const TokenStream stream = write_and_open(vocabulary, total);
      ASSERT_EQ(stream.size(), total);
      expect_equal(stream, 0, total);
      for (const int64_t first : {int64_t{0}, int64_t{1}, block - 1, block, 2 * block - 1, total - 1}) {
        for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{2}, block - 1, block, block + 1, 2 * block + 1}) {
          if (first + count <= total) expect_equal(stream, first, count);
        }
      }
      std::vector<int64_t> two(2);
      EXPECT_THROW(stream.read(total - 1, two), std::logic_error);
      EXPECT_THROW(stream.read(-1, two), std::logic_error);
    }
  }
}

TEST_F(TokenStreamTest, a_stream_may_be_empty) { EXPECT_EQ(write_and_open(256, 0).size(), 0); }

TEST_F(TokenStreamTest, an_id_that_its_width_does_not_hold_is_refused) {
  TokenWriter narrow(file_, 65536, 9);
  EXPECT_THROW(narrow.append(std::vector<int32_t>{65536}), std::logic_error);
  EXPECT_THROW(narrow.append(std::vector<int32_t>{-1}), std::logic_error);
}

TEST_F(TokenStreamTest, a_file_with_more_behind_it_is_not_whole) {
  write_and_open(256, 10);
  std::ofstream(file_, std::ios::binary | std::ios::app) << "more";
  EXPECT_FALSE(TokenStream::open(file_, 9));
}

// Under a sum that is right.
TEST_F(TokenStreamTest, a_file_of_another_kind_is_not_taken) {
  write_and_open(256, 10);
  std::string other = read_whole(file_);
  other[0] ^= 2;
  const uint32_t crc = crc32c(0, std::as_bytes(std::span(other).first(kHeaderOfTokens - 4)));
  std::memcpy(other.data() + kHeaderOfTokens - 4, &crc, sizeof crc);
  std::ofstream(file_, std::ios::binary) << other;
  EXPECT_FALSE(TokenStream::open(file_, 9));
}

TEST_F(TokenStreamTest, what_it_was_made_from_is_compared_where_that_is_known) {
  EXPECT_EQ(write_and_open(256, 10).fingerprint(), 9u);
  EXPECT_FALSE(TokenStream::open(file_, 8));
  EXPECT_TRUE(TokenStream::open(file_, std::nullopt));
  EXPECT_FALSE(TokenStream::open(folder_.path() / "nothing", std::nullopt));
}

TEST_F(TokenStreamTest, a_bit_that_changes_under_an_open_stream_is_an_error_that_names_file_and_block) {
  constexpr int64_t kIds = 2 * kTokenBlockBytes / 2 + 700, kBytes = 2 * kIds;
  const TokenStream stream = write_and_open(65536, kIds);
  for (const int64_t id : {int64_t{0}, int64_t{2047}, int64_t{2048}, int64_t{3000}, int64_t{4096}, kIds - 1}) {
    const int64_t block = 2 * id / kTokenBlockBytes;
    const std::string expected = crc_of_block(block, kBytes);
    const auto at = static_cast<size_t>(kHeaderOfTokens + 2 * id + 1);
    flip_bit(file_, at);
    EXPECT_THAT(refusal<CorruptionError>(stream, id),
                AllOf(HasSubstr(file_.string() + ": bytes read are not the bytes written"),
                      HasSubstr(fmt::format("block {}, {} bytes at offset {}", block, block == 2 ? 1400 : 4096,
                                            kHeaderOfTokens + block * kTokenBlockBytes)),
                      HasSubstr(expected + " expected"), HasSubstr(crc_of_block(block, kBytes) + " found"),
                      HasSubstr("--resume")));
    EXPECT_NO_THROW(expect_equal(stream, block == 0 ? 2048 : 0, 2048)) << "other blocks are as they were";
    std::vector<int64_t> all(kIds);
    EXPECT_THROW(stream.read(0, all), CorruptionError);
    EXPECT_FALSE(TokenStream::open(file_, 9)) << "not whole";
    flip_bit(file_, at);
    expect_equal(stream, 0, kIds);
  }
}

// Whole in itself, and not what was opened.
TEST_F(TokenStreamTest, another_file_of_ids_in_its_place_is_not_taken_for_it) {
  write_and_open(65535, 5000);
  const std::string other_bytes = read_whole(file_);
  const TokenStream stream = write_and_open(65536, 5000);
  std::ofstream(file_, std::ios::binary) << other_bytes;
  EXPECT_TRUE(TokenStream::open(file_, 9));
  EXPECT_THAT(refusal<CorruptionError>(stream, 1), HasSubstr(file_.string()));
}

// As no fault of a drive would change them together.
TEST_F(TokenStreamTest, the_blocks_sums_are_under_a_sum_themselves) {
  write_and_open(65536, 2);
  std::string content = read_whole(file_);
  content.at(kHeaderOfTokens) ^= 1;
  const uint32_t crc = crc32c(0, std::as_bytes(std::span(content).subspan(kHeaderOfTokens, 4)));
  std::memcpy(content.data() + kHeaderOfTokens + 4, &crc, sizeof crc);
  std::ofstream(file_, std::ios::binary) << content;
  EXPECT_FALSE(TokenStream::open(file_, 9));
}

TEST_F(TokenStreamTest, a_file_cut_short_under_an_open_stream_is_an_error_that_says_so) {
  const TokenStream stream = write_and_open(65536, 5000);
  const auto whole_bytes = std::filesystem::file_size(file_);
  std::filesystem::resize_file(file_, whole_bytes - 4);
  expect_equal(stream, 0, 5000);  // of the sums alone
  std::filesystem::resize_file(file_, kHeaderOfTokens + kTokenBlockBytes + 100);
  EXPECT_THAT(refusal<IoError>(stream, 2048),
              AllOf(HasSubstr("read of " + file_.string()), HasSubstr(fmt::format("at offset {}", 64 + 4096 + 100)),
                    HasSubstr("shorter since it was opened"), HasSubstr("--resume")));
  expect_equal(stream, 0, 2048);
  EXPECT_FALSE(TokenStream::open(file_, 9)) << "not whole";
  std::filesystem::resize_file(file_, 0);
  EXPECT_THAT(refusal<IoError>(stream, 0), HasSubstr("shorter since it was opened"));
}

TEST_F(TokenStreamTest, reads_that_are_interrupted_or_short_are_gone_on_with) {
  if (!AwkwardReads::reason().empty()) GTEST_SKIP() << AwkwardReads::reason();
  write_and_open(70000, 3000);
  const AwkwardReads awkward(AwkwardReads::Kind::kInterruptedAndShort);
  const auto stream = TokenStream::open(file_, 9);
  ASSERT_TRUE(stream);
  expect_equal(*stream, 0, 3000);
}

TEST_F(TokenStreamTest, a_drive_that_fails_is_an_error_with_the_files_name_and_advice) {
  if (!AwkwardReads::reason().empty()) GTEST_SKIP() << AwkwardReads::reason();
  const TokenStream stream = write_and_open(65536, 5000);
  const AwkwardReads failing(AwkwardReads::Kind::kFailing);
  const auto is_said = AllOf(HasSubstr("read of " + file_.string()), HasSubstr("Input/output error"),
                             HasSubstr("dmesg"), HasSubstr("--resume"));
  EXPECT_THAT(refusal<IoError>(stream, 4000), is_said);
  EXPECT_THAT(message_of<IoError>([&] { static_cast<void>(TokenStream::open(file_, 9)); }), is_said);
}

TEST_F(TokenStreamTest, threads_may_read_at_once) {
  const TokenStream stream = write_and_open(65536, 100000);
  std::vector<std::jthread> readers;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 500; ++i) expect_equal(stream, random() % 90000, random() % 10000);
    });
  }
}

TEST_F(TokenStreamTest, opening_a_long_stream_checks_it_without_making_it_resident) {
  TokenWriter writer(file_, 256, 1);
  const std::vector<int32_t> ids(size_t{1} << 20, 77);
  for (int i = 0; i < 48; ++i) writer.append(ids);
  writer.finish()->publish();
  const int64_t before_bytes = resident_bytes();
  ASSERT_TRUE(TokenStream::open(file_, 1));
  EXPECT_LT(resident_bytes() - before_bytes, int64_t{4} << 20);
  flip_bit(file_, (size_t{96} << 20) + 63);
  EXPECT_FALSE(TokenStream::open(file_, 1)) << "the last id is checked";
}

TEST_F(TokenStreamTest, a_writer_that_does_not_finish_leaves_nothing_behind) {
  {
    TokenWriter writer(file_, 256, 1);
    const std::vector<int32_t> ids(1000, 1);
    writer.append(ids);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace sluice
