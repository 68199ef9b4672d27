// Ids that another tokenizer made, in NumPy's files.
#include "data/id_file.h"

#include <gmock/gmock.h>

#include <limits>
#include <numeric>
#include <set>

#include "core/errors.h"
#include "data/dataset.h"
#include "data/token_source.h"
#include "tests/data/data_support.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class IdFileTest : public testing::Test {
 protected:
  template <class Id>
  void write(const char* type, const std::vector<Id>& ids) {
    folder_.write("ids.npy", numpy_file(type, ids));
  }
  std::vector<int32_t> read(int64_t vocabulary = 100'000) const {
    std::vector<int32_t> all;
    const IdFile file = IdFile::open(path_, vocabulary);
    file.read([&](std::span<const int32_t> ids) { all.insert(all.end(), ids.begin(), ids.end()); });
    EXPECT_EQ(file.count(), std::ssize(all));
    return all;
  }
  std::string refusal(int64_t vocabulary = 100'000) const {
    return message_of<ConfigError>([&] { IdFile::open(path_, vocabulary); });
  }

  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "ids.npy";
};

TEST_F(IdFileTest, ids_of_every_type_are_the_same_ids) {
  const std::vector<int32_t> ids{0, 255, 7, 1, 200};
  const auto as = [&]<class Id>(Id) { return std::vector<Id>(ids.begin(), ids.end()); };
  std::set<uint32_t> fingerprints;
  const auto check = [&](const char* type, auto typed) {
    write(type, typed);
    EXPECT_EQ(read(), ids) << type;
    fingerprints.insert(IdFile::open(path_, 256).fingerprint());
  };
  check("|u1", as(uint8_t()));
  check("<u2", as(uint16_t()));
  check("<i2", as(int16_t()));
  check("<u4", as(uint32_t()));
  check("<i4", as(int32_t()));
  check("<u8", as(uint64_t()));
  check("<i8", as(int64_t()));
  EXPECT_EQ(fingerprints.size(), 1u);
}

TEST_F(IdFileTest, a_header_of_the_second_version_is_read_too) {
  std::string file = numpy_file<uint16_t>("<u2", {3, 1, 2});
  file[6] = 2;
  file.insert(10, 2, '\0');  // four bytes of length
  folder_.write("ids.npy", file);
  EXPECT_EQ(read(), (std::vector<int32_t>{3, 1, 2}));
}

TEST_F(IdFileTest, more_ids_than_a_block_holds_come_in_order) {
  std::vector<uint32_t> ids(200'001);
  std::iota(ids.begin(), ids.end(), 0u);
  write("<u4", ids);
  EXPECT_EQ(read(200'001), std::vector<int32_t>(ids.begin(), ids.end()));
}

TEST_F(IdFileTest, an_id_that_the_vocabulary_has_not_is_refused_with_its_place) {
  write<uint16_t>("<u2", {1, 2, 99, 100, 3});
  EXPECT_THAT(refusal(100), AllOf(HasSubstr(path_.string()), HasSubstr("the id 100 in place 3 is none of 0 to 99"),
                                  HasSubstr("data.vocab_size")));
  write<int64_t>("<i8", {1, -100});
  EXPECT_THAT(refusal(), HasSubstr("the id -100 in place 1"));
  write<int16_t>("<i2", {-1});
  EXPECT_THAT(refusal(), HasSubstr("the id -1 in place 0"));
  write<uint64_t>("<u8", {std::numeric_limits<uint64_t>::max()});
  EXPECT_THAT(refusal(), HasSubstr("the id 18446744073709551615 in place 0"));
}

TEST_F(IdFileTest, an_id_beyond_the_first_block_is_refused_with_its_place_in_the_file) {
  std::vector<uint32_t> ids(200'001);
  ids[150'000] = 100'000;
  write("<u4", ids);
  EXPECT_THAT(refusal(), HasSubstr("the id 100000 in place 150000 is none of 0 to 99999"));
}

// Also those of a block that is not the last.
TEST_F(IdFileTest, every_id_counts_in_the_fingerprint) {
  std::vector<uint16_t> ids(200'001);
  std::set<uint32_t> fingerprints;
  for (const size_t changed : {size_t{0}, size_t{70'000}, size_t{200'000}}) {
    ++ids[changed];
    write("<u2", ids);
    fingerprints.insert(IdFile::open(path_, 100).fingerprint());
  }
  EXPECT_EQ(fingerprints.size(), 3u);
}

TEST_F(IdFileTest, reading_tells_how_far_it_is) {
  write("<u2", std::vector<uint16_t>(200'001));
  std::vector<int64_t> done;
  const IdFile file = IdFile::open(path_, 100, [&](int64_t bytes, int64_t total) {
    EXPECT_EQ(total, 400'002);
    done.push_back(bytes);
  });
  EXPECT_EQ(file.bytes(), 400'002);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.size(), 4u);
  EXPECT_EQ(done.back(), 400'002);
}

TEST_F(IdFileTest, a_header_beyond_all_headers_is_refused_before_it_is_read) {
  std::string file = numpy_file<uint16_t>("<u2", {3, 1, 2});
  file[6] = 2;
  file.insert(10, 2, '\x7F');  // its length: 2 GB
  folder_.write("ids.npy", file);
  EXPECT_THAT(refusal(), HasSubstr("has a damaged header"));
}

TEST_F(IdFileTest, a_folder_of_text_is_no_file_of_ids_before_it_is_opened_either) {
  const DataOptions ids{.path = folder_.path(), .tokenizer = TokenizerKind::kIds}, text{.path = folder_.path()};
  EXPECT_THAT(message_of<ConfigError>([&] { check_is_there(ids); }), HasSubstr("is no file of token ids"));
  EXPECT_NO_THROW(check_is_there(text));
}

TEST_F(IdFileTest, what_is_no_such_file_is_refused_with_how_to_write_one) {
  const auto both_refuse = [&](const std::string& what) {
    for (const std::string& message : {refusal(), message_of<ConfigError>([&] { IdFile::check_is_there(path_); })}) {
      EXPECT_THAT(message, AllOf(HasSubstr(path_.string()), HasSubstr(what), HasSubstr("numpy.save(")));
    }
  };
  both_refuse("is not there");
  std::filesystem::create_directory(path_);
  both_refuse("is no file of token ids");
  std::filesystem::remove(path_);
  folder_.write("ids.npy", "some text");
  both_refuse("is no NumPy file");
  folder_.write("ids.npy", std::string("\x93NUMPY\1\0\xFF\xFF", 10) + std::string(70, ' '));
  both_refuse("holds no little-endian integers");
  write<float>("<f4", {1, 2});
  both_refuse("holds no little-endian integers");
  write<uint16_t>(">u2", {1, 2});
  both_refuse("holds no little-endian integers");
  write<uint16_t>("<u2", {});
  both_refuse("holds no ids");
  std::string file = numpy_file<uint16_t>("<u2", {1, 2, 3});
  folder_.write("ids.npy", file.substr(0, file.size() - 1));
  both_refuse("has been cut short: its header says 3 ids");
  file.replace(file.find("(3,)"), 4, "(3,1)");
  folder_.write("ids.npy", file);
  both_refuse("holds no array of one dimension");
}

TEST_F(IdFileTest, a_path_that_is_not_given_is_asked_for) {
  EXPECT_THAT(message_of<ConfigError>([] { IdFile::check_is_there({}); }),
              AllOf(HasSubstr("data.path is not given"), HasSubstr("NumPy file"), HasSubstr("--data PATH")));
}

TEST_F(IdFileTest, ids_that_change_as_they_are_read_are_noticed) {
  write<uint16_t>("<u2", {1, 2, 3});
  const IdFile file = IdFile::open(path_, 100);
  flip_bit(path_, std::filesystem::file_size(path_) - 2);
  EXPECT_THROW(file.read([](std::span<const int32_t>) {}), CorruptionError);
}

TEST_F(IdFileTest, a_dataset_of_them_has_no_tokens_but_them) {
  write<uint16_t>("<u2", {5, 6, 7, 8, 9, 10, 11, 12, 13});
  const DataOptions options{
      .path = path_, .tokenizer = TokenizerKind::kIds, .vocab_size = 50'257, .sequence_length = 4};
  const auto prepare = [&](CacheUse use) {
    Dataset made = Dataset::prepare({.data = options, .cache_folder = folder_.path() / "run", .use = use});
    made.keep();
    return made;
  };
  const auto second_sample = [](const Dataset& dataset) {
    std::vector<int64_t> inputs(4), targets(4);
    dataset.training_sample(1, inputs, targets);
    EXPECT_EQ(targets.back(), 13);
    return inputs;
  };
  const Dataset dataset = prepare(CacheUse::kIfUnchanged);
  EXPECT_EQ(dataset.tokens(), 9);
  EXPECT_EQ(second_sample(dataset), (std::vector<int64_t>{9, 10, 11, 12}));
  EXPECT_EQ(load_tokenizer(options, folder_.path() / "run")->vocabulary_size(), 50'257);
  std::filesystem::remove(path_);
  EXPECT_EQ(second_sample(prepare(CacheUse::kWithoutText)), (std::vector<int64_t>{9, 10, 11, 12}));
}

TEST(IdTokenizer, reads_and_shows_numbers) {
  const auto tokenizer = make_id_tokenizer(100);
  std::vector<int32_t> ids;
  tokenizer->encode(" 12, 99\n0", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{12, 99, 0}));
  EXPECT_EQ(tokenizer->decode(ids), " 12 99 0");
  EXPECT_EQ(tokenizer->end_of_document(), std::nullopt);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{100}), std::logic_error);
  for (const char* text : {"100", "-1", "12a", "the", "99999999999"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { tokenizer->encode(text, ids); }),
                AllOf(HasSubstr(text), HasSubstr("is no id"), HasSubstr("0 to 99")));
  }
}

}  // namespace
}  // namespace sluice
