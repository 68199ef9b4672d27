// Hugging Face folders: what is found in them and what an export leaves there.
#include "models/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "core/errors.h"
#include "models/safetensors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

Gpt2 model_of(int64_t vocabulary) {
  Gpt2Config config;
  config.vocab_size = vocabulary, config.n_positions = 4, config.n_embd = 2, config.n_layer = 1, config.n_head = 1;
  return Gpt2(config, {.precision = Precision::kFp32});
}

// A folder of a tiny model whose values are all 0, with what a test adds to it.
class HuggingFaceFolder : public ::testing::Test {
 protected:
  static std::vector<SafetensorsEntry> entries_of(const Gpt2& model) {
    std::vector<SafetensorsEntry> entries;
    for (const WholeParameter& parameter : whole_parameters(model.spec(), model.tiles())) {
      const auto& [name, shape] = parameter.spec;
      entries.push_back({.name = name, .dtype_name = {}, .dtype = DType::kFp32, .shape = shape});
    }
    return entries;
  }
  static std::string content_of(const std::vector<SafetensorsEntry>& entries) {
    size_t bytes = 0;
    for (const SafetensorsEntry& entry : entries) {
      bytes +=
          static_cast<size_t>(std::accumulate(entry.shape.begin(), entry.shape.end(), int64_t{4}, std::multiplies<>()));
    }
    return safetensors_header(entries) + std::string(bytes, '\0');
  }
  std::string path() const { return folder_.path().string(); }
  std::string refusal(const Gpt2& model) const {
    return message_of<ConfigError>([&] { hugging_face_source(path(), model); });
  }

  TempFolder folder_;
};

TEST_F(HuggingFaceFolder, whose_index_is_none_is_refused_by_the_index) {
  const Gpt2 model = model_of(5);
  const auto refusal_with = [&](const std::string& index) {
    folder_.write("model.safetensors.index.json", index);
    return refusal(model);
  };
  EXPECT_THAT(refusal_with(R"({"weight_map": ["a.safetensors"]})"), HasSubstr("no \"weight_map\" object in it"));
  EXPECT_THAT(refusal_with("{}"), HasSubstr("no \"weight_map\" object in it"));
  EXPECT_THAT(refusal_with(R"({"weight_map": {"wte.weight": 3}})"),
              HasSubstr("tensor wte.weight is mapped to 3: a file name beside it"));
  EXPECT_THAT(refusal_with(R"({"weight_map": {"wte.weight": "../a.safetensors"}})"),
              HasSubstr("tensor wte.weight is mapped to \"../a.safetensors\": a file name beside it"));
}

TEST_F(HuggingFaceFolder, with_one_file_and_an_index_is_that_of_the_file) {
  const Gpt2 model = model_of(5);
  folder_.write("model.safetensors", content_of(entries_of(model)));
  folder_.write("model.safetensors.index.json", R"({"weight_map": {"wte.weight": "gone.safetensors"}})");
  EXPECT_NO_THROW(hugging_face_source(path(), model));
}

TEST_F(HuggingFaceFolder, with_the_masks_of_older_files_has_its_weights_alone) {
  const Gpt2 model = model_of(5);
  std::vector<SafetensorsEntry> entries = entries_of(model);
  for (const char* mask : {"transformer.h.0.attn.bias", "h.0.attn.masked_bias"}) {
    entries.push_back({.name = mask, .dtype_name = {}, .dtype = DType::kFp32, .shape = {1, 1, 4, 4}});
  }
  folder_.write("model.safetensors", content_of(entries));
  EXPECT_NO_THROW(hugging_face_source(path(), model));
}

TEST_F(HuggingFaceFolder, with_tensors_of_a_type_that_weights_do_not_have_is_refused_by_the_tensor) {
  const Gpt2 model = model_of(5);
  std::vector<SafetensorsEntry> entries = entries_of(model);
  const auto with_integers = [&](const std::string& tensor) {
    std::string content = content_of(entries);
    const size_t type = content.find("F32", content.find("\"" + tensor + "\""));
    folder_.write("model.safetensors", content.replace(type, 3, "I32"));
    return refusal(model);
  };
  EXPECT_THAT(with_integers("transformer.wpe.weight"),
              HasSubstr("tensor transformer.wpe.weight is of type I32: F32, F16 and BF16 can be read"));
  entries.push_back({.name = "lm_head.weight", .dtype_name = {}, .dtype = DType::kFp32, .shape = {5, 2}});
  EXPECT_THAT(with_integers("lm_head.weight"), HasSubstr("tensor lm_head.weight, [5, 2] of I32, is no copy of"));
  EXPECT_THAT(with_integers("transformer.wte.weight"), HasSubstr("is no copy of wte.weight, [5, 2] of I32"));
}

// Values are read a million at a time.
TEST_F(HuggingFaceFolder, is_read_to_its_end_and_a_wrong_value_named_by_its_place_in_the_tensor) {
  const Gpt2 model = model_of(600'000);
  const std::vector<SafetensorsEntry> entries = entries_of(model);
  std::string content = content_of(entries);
  folder_.write("model.safetensors", content);
  std::vector<int64_t> done;
  hugging_face_source(path(), model, [&](int64_t elements, int64_t total) {
    EXPECT_EQ(total, model.parameter_count());
    done.push_back(elements);
  });
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), model.parameter_count());

  ASSERT_EQ(entries[0].name, "transformer.wte.weight");
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(content.data() + safetensors_header(entries).size() + 4 * 1'100'000, &infinite, 4);
  folder_.write("model.safetensors", content);
  EXPECT_THAT(refusal(model), HasSubstr("tensor transformer.wte.weight: element 1100000 is inf"));
}

TEST_F(HuggingFaceFolder, has_a_tokenizer_where_one_of_its_main_files_is_there) {
  folder_.write("merges.txt", "a b");
  EXPECT_TRUE(tokenizer_in(path()).empty());
  folder_.write("vocab.json", "{}");
  folder_.write("tokenizer_config.json", "[]");
  folder_.write("README.md", "#");
  std::vector<std::string> found;
  for (const auto& [name, content] : tokenizer_in(path())) found.push_back(name + " " + content);
  EXPECT_THAT(found, ::testing::ElementsAre("vocab.json {}", "tokenizer_config.json []", "merges.txt a b"));
}

TEST_F(HuggingFaceFolder, of_an_export_has_the_tokenizers_files_and_its_end_of_document) {
  const Gpt2 model = model_of(5);
  export_hugging_face({.folder = path(),
                       .dtype = DType::kFp32,
                       .end_of_document = 3,
                       .tokenizer = {{"tokenizer.json", "{}"}, {"merges.txt", "a b"}}},
                      model, [](int, std::span<std::byte> into) { std::memset(into.data(), 0, into.size()); });
  EXPECT_NO_THROW(hugging_face_source(path(), model));
  const Gpt2Config config = read_model_section("{\"path\": \"" + path() + "\"}").config;
  EXPECT_EQ(config.bos_token_id, 3);
  EXPECT_EQ(config.eos_token_id, 3);
  EXPECT_EQ(tokenizer_in(path()).size(), 2u);
}

}  // namespace
}  // namespace sluice::testing
