#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/errors.h"
#include "models/hugging_face.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {
namespace {

std::string refusal_of(const std::string& section) {
  return message_or<ConfigError>("nothing was refused", [&] { read_model_section(section); });
}

TEST(ModelSection, takes_the_names_and_defaults_of_hugging_face) {
  const Gpt2Config plain = read_model_section(R"({"type": "gpt2"})").config;
  EXPECT_EQ(plain.vocab_size, 50257);
  EXPECT_EQ(plain.inner(), 3072);
  EXPECT_TRUE(plain.tie_word_embeddings);
  const Gpt2Config given = read_model_section(R"({"type": "gpt2", "vocab_size": 331, "n_positions": 40, "n_embd": 72,
      "n_layer": 5, "n_head": 3, "n_inner": 100, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-6,
      "initializer_range": 0.1, "tie_word_embeddings": false, "resid_pdrop": 0, "embd_pdrop": 0.0, "attn_pdrop": 0,
      "scale_attn_weights": false, "bos_token_id": 3, "eos_token_id": [4, 5]})")
                               .config;
  EXPECT_EQ(given.n_embd, 72);
  EXPECT_EQ(given.inner(), 100);
  EXPECT_FALSE(given.tie_word_embeddings);
  EXPECT_FALSE(given.scale_attn_weights);
  EXPECT_EQ(given.eos_token_id, 4);
}

TEST(ModelSection, takes_a_whole_number_however_it_is_written) {
  const ModelSection section = read_model_section(
      R"({"type": "gpt2", "n_layer": 3.0, "n_embd": 1.2e2, "n_inner": 6e1, "tiling": {"linear": 2.0}})");
  EXPECT_EQ(section.config.n_layer, 3);
  EXPECT_EQ(section.config.n_embd, 120);
  EXPECT_EQ(section.config.n_inner, 60);
  EXPECT_EQ(section.config.tiling.linear, 2);
}

TEST(ModelSection, written_out_reads_back_the_same) {
  const ModelSection section =
      read_model_section(R"({"type": "gpt2", "n_embd": 60, "n_head": 3, "initializer_range": 0.1, "n_inner": 7})");
  const std::string text = model_section_text(section);
  EXPECT_EQ(model_section_text(read_model_section(text)), text);
  EXPECT_EQ(read_model_section(text).config.initializer_range, 0.1);
}

TEST(ModelSection, keeps_its_tiling_and_an_exported_config_has_none) {
  const ModelSection section = read_model_section(R"({"type": "gpt2", "tiling": {"linear": 4, "embedding": 8}})");
  EXPECT_EQ(section.config.tiling, (Gpt2Tiling{4, 8}));
  EXPECT_EQ(read_model_section(model_section_text(section)).config.tiling, section.config.tiling);
  EXPECT_EQ(config_json_text(section.config, DType::kFp32).find("tiling"), std::string::npos);
  const ModelSection rows_alone = read_model_section(R"({"type": "gpt2", "tiling": {"embedding": 3}})");
  EXPECT_EQ(rows_alone.config.tiling, (Gpt2Tiling{1, 3}));
  EXPECT_EQ(read_model_section(model_section_text(rows_alone)).config.tiling, rows_alone.config.tiling);
  // More than heads and positions.
  EXPECT_EQ(read_model_section(R"({"type": "gpt2", "tiling": {"linear": 13, "embedding": 1025}})").config.tiling,
            (Gpt2Tiling{13, 1025}));
  for (const char* whole :
       {R"({"type": "gpt2"})", R"({"type": "gpt2", "tiling": {"linear": 1}})", R"({"type": "gpt2", "tiling": null})"}) {
    EXPECT_EQ(model_section_text(read_model_section(whole)).find("tiling"), std::string::npos);
  }
}

TEST(ModelSection, passes_over_what_a_config_json_has_beside_the_shape_and_says_so) {
  const ModelSection section = read_model_section(
      R"({"type": "gpt2", "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 3, "use_cache": true})");
  EXPECT_EQ(section.config.n_layer, 3);
  EXPECT_EQ(section.without_effect, (std::vector<std::string>{"model_type", "architectures", "use_cache"}));
  EXPECT_EQ(model_section_text(section), model_section_text(read_model_section(R"({"type": "gpt2", "n_layer": 3})")));
}

TEST(ModelSection, takes_pruned_heads_that_name_none) {
  for (const char* none : {R"({"type": "gpt2", "pruned_heads": {}})", R"({"type": "gpt2", "pruned_heads": null})"})
    EXPECT_EQ(refusal_of(none), "nothing was refused");
}

TEST(ModelSection, is_refused_with_key_value_and_what_is_allowed) {
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "model must be a JSON object, as {\"type\": \"gpt2\", ...}"},
      {"{}", "model.type is missing: {\"type\": \"gpt2\", ...}, or {\"path\": \"FOLDER\"} of a Hugging Face folder"},
      {R"({"type": "llama"})", "model.type is \"llama\": \"gpt2\" is what there is"},
      {R"({"type": "gpt2", "n_emb": 384})",
       "unknown key \"model.n_emb\" (value 384); did you mean \"model.n_embd\"? Allowed in model: type, path, "
       "vocab_size"},
      {R"({"type": "gpt2", "transformers": "5"})",
       "unknown key \"model.transformers\" (value \"5\"). Allowed in model: type, path, vocab_size"},
      {R"({"type": "gpt2", "n_embd": "wide"})", "model.n_embd is \"wide\": allowed is a positive integer"},
      {R"({"type": "gpt2", "n_layer": 0})", "model.n_layer is 0: a positive integer, 16384 at the most"},
      {R"({"type": "gpt2", "layer_norm_epsilon": 1e39})",
       "model.layer_norm_epsilon is 1e+39: allowed is a number above 0 that fp32 holds"},
      {R"({"type": "gpt2", "layer_norm_epsilon": 1e-300})",
       "model.layer_norm_epsilon is 1e-300: a number above 0, 1.2e-38 at the least as in fp32"},
      {R"({"type": "gpt2", "n_inner": [100, 7]})", "model.n_inner is [100,7]: allowed is a positive integer or null"},
      {R"({"type": "gpt2", "n_inner": 0})", "model.n_inner is 0: allowed is a positive integer or null (4 x n_embd)"},
      {R"({"type": "gpt2", "vocab_size": 1000000000000})",
       "model.vocab_size is 1000000000000: a positive integer, 67108864"},
      {R"({"type": "gpt2", "n_head": 7})", "model.n_head is 7: it must divide model.n_embd, 768"},
      {R"({"type": "gpt2", "activation_function": "relu"})", "model.activation_function is \"relu\": \"gelu_new\""},
      {R"({"type": "gpt2", "attn_pdrop": 0.1})",
       "model.attn_pdrop is 0.1: dropout is not there yet, only 0 is allowed; train without it with --set "
       "model.attn_pdrop=0"},
      {R"({"type": "gpt2", "reorder_and_upcast_attn": true})",
       "model.reorder_and_upcast_attn is true: allowed is false"},
      {R"({"type": "gpt2", "pruned_heads": {"0": [1]}})",
       "model.pruned_heads is {\"0\":[1]}: allowed is {} or null, a model with all of its heads; another value in a "
       "file is overridden with --set model.pruned_heads=..."},
      {R"({"type": "gpt2", "tiling": 4})", "model.tiling is 4: allowed is {\"linear\": tiles, \"embedding\": tiles}"},
      {R"({"type": "gpt2", "tiling": {"heads": 4}})", "model.tiling is {\"heads\":4}: allowed is {\"linear\": tiles"},
      {R"({"type": "gpt2", "tiling": {"linear": 2.5}})", "model.tiling is {\"linear\":2.5}: allowed is"},
      {R"({"type": "gpt2", "tiling": {"linear": 0}})", "model.tiling.linear is 0: 1 (whole) to 3072, model.n_inner"},
      {R"({"type": "gpt2", "n_inner": 5, "tiling": {"linear": 6}})",
       "model.tiling.linear is 6: 1 (whole) to 5, model.n_inner: the MLP is cut between its hidden features"},
      {R"({"type": "gpt2", "vocab_size": 9, "tiling": {"embedding": 10}})",
       "model.tiling.embedding is 10: 1 (whole) to 9, model.vocab_size: the embedding is cut between its rows"},
      {R"({"type": "gpt2", "n_embd": 9223372036854775808})",
       "model.n_embd is 9223372036854775808: allowed is a positive integer"},
      {R"({"type": "gpt2", "n_inner": 18446744073709551615})", "model.n_inner is 18446744073709551615: "},
      {R"({"type": "gpt2", "tiling": {"linear": 18446744073709551615}})", "model.tiling is "},
      {R"({"type": "gpt2", "add_cross_attention": null})", "model.add_cross_attention is null: allowed is false"},
      {R"({"type": "gpt2", "model_type": "llama"})", "unknown key \"model.model_type\" (value \"llama\")"},
      {R"({"path": ""})", "model.path is \"\": a Hugging Face folder"},
      {R"({"path": 3})", "model.path is 3: a Hugging Face folder"},
      {R"({"path": "/nowhere"})", "model.path: there is no /nowhere/config.json"},
  };
  for (const auto& [section, message] : cases) {
    EXPECT_EQ(refusal_of(section).substr(0, message.size()), message) << section;
  }
}

constexpr const char* kSavedConfig = R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50,
    "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": null, "resid_pdrop": 0.1, "embd_pdrop": 0.1,
    "attn_pdrop": 0.1, "summary_first_dropout": 0.1, "use_cache": true, "transformers_version": "5.0.0"})";

TEST(ModelSection, of_a_folder_refuses_dropout_and_the_named_override_mends_it) {
  const TempFolder folder;
  folder.write("config.json", kSavedConfig);
  const std::string path = folder.path().string();
  EXPECT_EQ(
      refusal_of("{\"path\": \"" + path + "\"}"),
      "model.resid_pdrop is 0.1, model.embd_pdrop is 0.1, model.attn_pdrop is 0.1: dropout is not there yet, only 0 "
      "is allowed; train without it with --set model.resid_pdrop=0 --set model.embd_pdrop=0 --set "
      "model.attn_pdrop=0");
  const ModelSection section =
      read_model_section("{\"path\": \"" + path + R"(", "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})");
  EXPECT_EQ(section.config.vocab_size, 50);
  EXPECT_EQ(section.folder, path);
  EXPECT_EQ(read_model_section(model_section_text(section)).folder, path);
}

TEST(ModelSection, of_a_folder_refuses_keys_that_may_change_the_forward) {
  const TempFolder folder;
  const std::string section = "{\"path\": \"" + folder.path().string() + "\"}";
  folder.write("config.json", R"({"model_type": "gpt2", "rotary_pct": 0.5})");
  EXPECT_NE(refusal_of(section).find("key \"rotary_pct\" (value 0.5) is not known, and may change the forward"),
            std::string::npos);
  folder.write("config.json", R"({"model_type": "gpt2", "add_cross_attention": true})");
  EXPECT_NE(refusal_of(section).find("add_cross_attention is true: allowed is false"), std::string::npos);
  folder.write("config.json", R"({"model_type": "gpt2", "tiling": {"linear": 2}})");
  EXPECT_NE(refusal_of(section).find("key \"tiling\" (value {\"linear\":2}) is not known"), std::string::npos);
  folder.write("config.json", R"({"n_layer": 2})");
  EXPECT_NE(refusal_of(section).find("model_type is missing: \"gpt2\" is what there is"), std::string::npos);
  folder.write("config.json", R"({"model_type": "llama"})");
  EXPECT_NE(refusal_of(section).find("model_type is \"llama\": \"gpt2\" is what there is"), std::string::npos);
  folder.write("config.json", R"({"model_type": "gpt2",)");
  EXPECT_NE(refusal_of(section).find("config.json is not JSON"), std::string::npos);
}

TEST(ModelSection, overrides_what_a_folder_has_and_could_not_be_taken) {
  const TempFolder folder;
  folder.write("config.json", R"({"model_type": "gpt2", "reorder_and_upcast_attn": true, "n_inner": 0})");
  EXPECT_EQ(
      refusal_of("{\"path\": \"" + folder.path().string() + R"(", "reorder_and_upcast_attn": false, "n_inner": null})"),
      "nothing was refused");
}

TEST(ExportedConfig, names_the_type_of_its_tensors) {
  const auto says = [](DType dtype, const std::string& name) {
    return config_json_text({}, dtype).find("\"torch_dtype\": \"" + name + "\"") != std::string::npos;
  };
  EXPECT_TRUE(says(DType::kFp32, "float32"));
  EXPECT_TRUE(says(DType::kFp16, "float16"));
  EXPECT_TRUE(says(DType::kBf16, "bfloat16"));
}

TEST(ExportedConfig, is_known_again_until_another_program_has_saved_the_model) {
  const std::string text = config_json_text({}, DType::kFp32);
  EXPECT_TRUE(is_export(text));
  EXPECT_FALSE(is_export("{\"transformers_version\": \"5.0.0\", " + text.substr(1)));
  EXPECT_FALSE(is_export(R"({"model_type": "gpt2", "exported_by": "another"})"));
  EXPECT_FALSE(is_export(R"({"model_type": "gpt2"})"));
  EXPECT_FALSE(is_export("no JSON"));
}

}  // namespace
}  // namespace sluice::testing
