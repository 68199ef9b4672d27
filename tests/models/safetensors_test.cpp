// Good and damaged safetensors files, and folders whose tensors are not the model's.
#include "models/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/errors.h"
#include "models/hugging_face.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/stalled_writes.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

TEST(Safetensors, written_header_reads_back) {
  const std::vector<SafetensorsEntry> entries = {
      {.name = "b", .dtype_name = {}, .dtype = DType::kFp32, .shape = {2, 3}},
      {.name = "a", .dtype_name = {}, .dtype = DType::kBf16, .shape = {5}}};
  const std::string header = safetensors_header(entries);
  EXPECT_EQ(header.size() % 8, 0u);
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 0.5f);
  const std::string data = std::string(reinterpret_cast<const char*>(values.data()), 24) +
                           std::string("\x80\x3f\x00\xc0\x00\x00\x00\x00\x00\x00", 10);
  const TempFolder folder;
  const SafetensorsFile file(folder.write("x.safetensors", header + data));
  ASSERT_EQ(file.entries().size(), 2u);
  std::vector<float> read(4);
  file.read(*file.find("b"), 2, read);
  EXPECT_EQ(read, (std::vector<float>{2.5f, 3.5f, 4.5f, 5.5f}));
  std::vector<float> halves(2);
  file.read(*file.find("a"), 0, halves);
  EXPECT_EQ(halves, (std::vector<float>{1.0f, -2.0f}));
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, long_half_precision_tensors_read_whole_from_any_element) {
  constexpr int64_t kElements = 200'000;
  const std::vector<SafetensorsEntry> entries = {
      {.name = "x", .dtype_name = {}, .dtype = DType::kBf16, .shape = {kElements}}};
  std::string content = safetensors_header(entries);
  for (int64_t i = 0; i < kElements; ++i) {
    const uint16_t half = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(i % 256)) >> 16);
    content.append(reinterpret_cast<const char*>(&half), 2);
  }
  const TempFolder folder;
  const SafetensorsFile file(folder.write("x.safetensors", content));
  std::vector<float> read(kElements - 3);
  file.read(file.entries()[0], 3, read);
  for (int64_t i = 0; i < kElements - 3; ++i)
    ASSERT_EQ(read[static_cast<size_t>(i)], static_cast<float>((i + 3) % 256)) << i;
}

TEST(Safetensors, damaged_files_are_refused_by_name) {
  const TempFolder folder;
  const std::string good = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::pair<std::string, std::string> cases[] = {
      {"", "it has 0 bytes"},
      {file_of(good, "1234567"), "tensor x lies at bytes 0 to 8 of 7"},
      {file_of(good, "12345678").substr(0, 20), "its header would have"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + good, "its header would have"},
      {file_of("{\"x\": ", "12345678"), "its header is no JSON object"},
      {file_of("[1]", "12345678"), "its header is no JSON object"},
      {file_of(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"),
       "tensor x of shape [3] and type F32 has 8 bytes"},
      {file_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}})", "12345678"),
       "tensor x of shape"},
      {file_of(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "12345678"), "tensor x of shape"},
      {file_of(R"({"x":{"dtype":"F32","shape":[2]}})", "12345678"), "tensor x: "},
      {file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "12345678"),
       "tensor x lies at bytes 8 to 0"},
      {file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", "12345678"),
       "tensor x: data_offsets is [0,8,8]"},
      {file_of(R"({"x":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", "12345678"), "tensor x: "},
      {file_of(good + std::string("\0garbage", 8), "12345678"), "its header is no JSON object"},
      {file_of(good, "").substr(0, good.size() + 4), "its header would have"},
      {file_of(R"({"x":{"dtype":"F32","shape":[0],"data_offsets":[0]}})", ""), "tensor x: data_offsets is [0]"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "12345678"), "tensor x of shape [1]"},
      {file_of(R"({"x":{"dtype":"I64","shape":[2],"data_offsets":[0,8]}})", "12345678"), "tensor x of shape [2]"},
      // Whose product is right, as one of 64 bits.
      {file_of(R"({"x":{"dtype":"F32","shape":[-2,-1],"data_offsets":[0,8]}})", "12345678"),
       "tensor x of shape [-2, -1]"},
      {file_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
       "tensor x of shape [4294967296, 4294967296]"},
      {file_of(good, "123456789"), "its tensors have 8 bytes, behind the header are 9"},
      {file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("y":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
               "12345678"),
       "tensor y begins at byte 0 of the data, where the one before it ends at 8"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"),
       "tensor x begins at byte 4 of the data, where the one before it ends at 0"},
  };
  for (const auto& [content, message] : cases) {
    const std::string path = folder.write("x.safetensors", content);
    const std::string error = message_or<ConfigError>("nothing was thrown", [&] { SafetensorsFile file(path); });
    EXPECT_NE(error.find(path + ": not a whole safetensors file: " + message), std::string::npos) << error;
  }
  EXPECT_NE(message_of<ConfigError>([] { SafetensorsFile file("/nowhere/x"); }).find("/nowhere/x cannot be opened"),
            std::string::npos);
}

TEST(Safetensors, a_header_is_padded_to_eight_bytes_whatever_its_length) {
  for (size_t length = 1; length <= 8; ++length) {
    const std::vector<SafetensorsEntry> entries = {
        {.name = std::string(length, 'x'), .dtype_name = {}, .dtype = DType::kFp32, .shape = {1}}};
    EXPECT_EQ(safetensors_header(entries).size() % 8, 0u) << length;
  }
}

TEST(Safetensors, a_tensor_without_elements_shares_its_place_with_the_next) {
  const TempFolder folder;
  const SafetensorsFile file(
      folder.write("x.safetensors", file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                            R"("none":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}})",
                                            "12345678")));
  EXPECT_EQ(file.entries().size(), 2u);
}

TEST(Safetensors, elements_outside_a_tensor_are_not_read) {
  const TempFolder folder;
  const SafetensorsFile file(
      folder.write("x.safetensors", file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                            R"("y":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                                            "1234567812345678")));
  std::vector<float> two(2);
  EXPECT_NO_THROW(file.read(*file.find("x"), 0, two));
  EXPECT_THROW(file.read(*file.find("x"), 1, two), std::logic_error);
  EXPECT_THROW(file.read(*file.find("y"), -1, two), std::logic_error);
}

TEST(Safetensors, a_pipe_is_refused_and_not_waited_for) {
  const TempFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message_of<ConfigError>([&] { SafetensorsFile file(pipe); }),
            pipe + ": not a whole safetensors file: it is no regular file");
}

TEST(Safetensors, a_file_that_shrinks_while_it_is_read_is_an_error) {
  const TempFolder folder;
  const std::string path =
      folder.write("x.safetensors", file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  const SafetensorsFile file(path);
  const auto cut = std::filesystem::file_size(path) - 4;
  std::filesystem::resize_file(path, cut);
  std::vector<float> read(2);
  EXPECT_EQ(message_of<IoError>([&] { file.read(file.entries()[0], 0, read); }),
            "read of " + path + " failed (4 bytes at offset " + std::to_string(cut) +
                "): the file ends there: it has become shorter since it was opened; bring back the whole file, then "
                "start again");
}

TEST(Safetensors, an_export_whose_file_takes_no_byte_says_so_and_leaves_no_file) {
  if (!StalledWrites::reason().empty()) GTEST_SKIP() << StalledWrites::reason();
  const Gpt2 model(read_model_section(
                       R"({"type": "gpt2", "vocab_size": 5, "n_positions": 4, "n_embd": 2, "n_layer": 1, "n_head": 1})")
                       .config,
                   {.precision = Precision::kFp32});
  const TempFolder folder;
  errno = ENOENT;  // somebody else's, of a call before
  std::string message;
  {
    const StalledWrites stalled;
    message = message_of<IoError>([&] {
      export_hugging_face({.folder = folder.path().string(), .dtype = DType::kFp32}, model, [](auto&&...) {});
    });
  }
  EXPECT_EQ(message.find("write of " + folder.path().string() + "/model.safetensors failed"), 0u) << message;
  EXPECT_NE(
      message.find("at offset 0): the file system took no byte of it and gave no error; make room on this file system"),
      std::string::npos)
      << message;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A folder that holds a whole tiny model, but for one change.
class WrongFolder : public ::testing::Test {
 protected:
  static constexpr const char* kSection =
      R"({"type": "gpt2", "vocab_size": 5, "n_positions": 4, "n_embd": 2, "n_layer": 1, "n_head": 1})";
  WrongFolder() : model_(read_model_section(kSection).config, {.precision = Precision::kFp32}) {
    for (const PartitionSpec& partition : model_.spec().partitions) {
      for (const ParameterSpec& parameter : partition.parameters) {
        entries_.push_back({.name = parameter.name, .dtype_name = {}, .dtype = DType::kFp32, .shape = parameter.shape});
      }
    }
  }
  std::string refusal() const {
    int64_t bytes = 0;
    for (const SafetensorsEntry& entry : entries_) {
      bytes += std::accumulate(entry.shape.begin(), entry.shape.end(), int64_t{4}, std::multiplies<>());
    }
    std::string data(static_cast<size_t>(bytes), '\0');
    std::memcpy(data.data() + 4 * 3, &fourth_, 4);
    folder_.write("model.safetensors", safetensors_header(entries_) + data);
    return message_or<ConfigError>("nothing was thrown", [&] { hugging_face_source(folder_.path().string(), model_); });
  }
  TempFolder folder_;
  Gpt2 model_;
  float fourth_ = 0;  // of the first tensor
  std::vector<SafetensorsEntry> entries_;
};

TEST_F(WrongFolder, without_a_change_is_right) { EXPECT_EQ(refusal(), "nothing was thrown"); }

TEST_F(WrongFolder, missing_tensors_are_named) {
  entries_.pop_back();
  EXPECT_NE(refusal().find("tensor transformer.ln_f.bias is missing"), std::string::npos) << refusal();
}
TEST_F(WrongFolder, unexpected_tensors_are_named) {
  entries_.push_back({.name = "transformer.h.1.ln_1.weight", .dtype_name = {}, .dtype = DType::kFp32, .shape = {2}});
  EXPECT_NE(refusal().find("tensor transformer.h.1.ln_1.weight is none of the model's"), std::string::npos)
      << refusal();
}
TEST_F(WrongFolder, misshapen_tensors_are_named_with_both_shapes) {
  entries_[0].shape = {6, 2};
  EXPECT_NE(refusal().find("tensor transformer.wte.weight has the shape [6, 2], the model wants [5, 2]"),
            std::string::npos)
      << refusal();
}
TEST_F(WrongFolder, a_tensor_under_both_of_its_names_is_there_twice) {
  entries_.push_back({.name = "wte.weight", .dtype_name = {}, .dtype = DType::kFp32, .shape = {5, 2}});
  EXPECT_NE(refusal().find("is there twice"), std::string::npos) << refusal();
}
TEST_F(WrongFolder, a_tied_head_is_a_copy_of_the_embedding_or_refused) {
  entries_.push_back({.name = "lm_head.weight", .dtype_name = {}, .dtype = DType::kFp32, .shape = {5, 2}});
  EXPECT_EQ(refusal(), "nothing was thrown");
  fourth_ = 1;
  EXPECT_NE(refusal().find("tensor lm_head.weight is not the same as wte.weight"), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("--set model.tie_word_embeddings=false"), std::string::npos) << refusal();
  fourth_ = 0;
  entries_.back().shape = {5, 3};
  EXPECT_NE(refusal().find("tensor lm_head.weight, [5, 3] of fp32, is no copy of wte.weight, [5, 2] of fp32"),
            std::string::npos)
      << refusal();
  entries_.erase(entries_.begin());
  EXPECT_NE(refusal().find("tensor transformer.wte.weight is missing"), std::string::npos) << refusal();
}
TEST_F(WrongFolder, values_that_the_precision_does_not_hold_are_named) {
  const auto is_refused = [&](float value, Precision precision) {
    model_ = Gpt2(model_.config(), {.precision = precision});
    fourth_ = value;
    const std::string words = "model.safetensors: tensor transformer.wte.weight: element 3 is ", text = refusal();
    EXPECT_TRUE(text.find(words) != std::string::npos || text == "nothing was thrown") << text;
    return text != "nothing was thrown";
  };
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    EXPECT_TRUE(is_refused(std::numeric_limits<float>::quiet_NaN(), precision));
    EXPECT_TRUE(is_refused(-std::numeric_limits<float>::infinity(), precision));
    EXPECT_FALSE(is_refused(-65504, precision));
  }
  EXPECT_TRUE(is_refused(65520, Precision::kFp16));
  EXPECT_FALSE(is_refused(std::nextafter(65520.0f, 0.0f), Precision::kFp16));
  EXPECT_TRUE(is_refused(3.4e38f, Precision::kBf16));
  EXPECT_FALSE(is_refused(3.39e38f, Precision::kBf16));
  EXPECT_FALSE(is_refused(3.4e38f, Precision::kFp32));
}
TEST_F(WrongFolder, a_value_that_another_precision_holds_is_told_from_one_that_none_does) {
  const auto says = [&](float value, Precision precision, const std::string& words) {
    model_ = Gpt2(model_.config(), {.precision = precision});
    fourth_ = value;
    EXPECT_TRUE(refusal().ends_with("element 3 is " + words)) << refusal();
  };
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    says(std::numeric_limits<float>::quiet_NaN(), precision, "nan, no number: bring back the file that was saved");
    says(-std::numeric_limits<float>::infinity(), precision,
         "-inf, no finite number: bring back the file that was saved");
  }
  says(70000, Precision::kFp16, "70000, too large for fp16: train in bf16 or fp32");
  says(3.4e38f, Precision::kFp16, "3.4e+38, too large for fp16: train in fp32");
  says(3.4e38f, Precision::kBf16, "3.4e+38, too large for bf16: train in fp32");
}
TEST_F(WrongFolder, without_files_says_what_it_looked_for) {
  const TempFolder empty;
  EXPECT_NE(message_of<ConfigError>([&] {
              hugging_face_source(empty.path().string(), model_);
            }).find("has neither model.safetensors nor model.safetensors.index.json"),
            std::string::npos);
}
TEST_F(WrongFolder, an_index_without_its_shard_names_the_shard) {
  const TempFolder sharded;
  sharded.write("model.safetensors.index.json", R"({"weight_map": {"wte.weight": "model-1.safetensors"}})");
  EXPECT_NE(message_of<ConfigError>([&] {
              hugging_face_source(sharded.path().string(), model_);
            }).find("model-1.safetensors cannot be opened"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
