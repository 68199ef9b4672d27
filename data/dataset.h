// A text made ready to train on: tokenizer and tokens, cached in a folder beside the run.
//
// Every document is followed by the tokenizer's end_of_document. The last validation_fraction of the tokens is the
// validation part. In each part, sample i takes tokens [i*S, i*S + S]: S inputs and S targets, shifted by one.
//
// Immutable; const members may be called from any thread. Memory: the tokens are memory-mapped, all else is bounded.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/log.h"
#include "data/options.h"
#include "data/text_source.h"
#include "data/token_stream.h"
#include "data/tokenizer.h"

namespace sluice {

enum class CacheUse {
  kIfUnchanged,  // read the text; rebuild what was made from another text or with other settings, or is damaged
  kWithoutText,  // a whole cache of these settings is the data (resumed runs); the text is looked at only without one
};

struct PrepareOptions {
  DataOptions data = {};
  std::filesystem::path cache_folder = {};  // created if missing; holds tokenizer.cache and tokens.cache
  CacheUse use = CacheUse::kIfUnchanged;
  Progress progress = nullptr;  // of tokenization
  Log log = nullptr;
};

class Dataset {
 public:
  // Throws ConfigError (options, text, too little text for one sample), IoError.
  static Dataset prepare(const PrepareOptions& options);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const DataOptions& options() const { return options_; }
  int64_t tokens() const { return stream_.size(); }
  int64_t text_bytes() const { return text_bytes_; }  // 0 where the cache was taken without the text
  int64_t mapped_bytes() const { return stream_.mapped_bytes(); }
  // Of text and settings: runs with equal fingerprints train on the same tokens.
  uint32_t fingerprint() const { return stream_.fingerprint(); }
  int64_t training_samples() const { return training_samples_; }
  int64_t validation_samples() const { return validation_samples_; }

  // Fills S inputs and S targets of one sample.
  void training_sample(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const;
  void validation_sample(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const;
  // Entropy in nats per token of the unigram distribution of these validation samples' targets: the least loss of any
  // model that sees no context, on just these tokens.
  double validation_unigram_nats(std::span<const int64_t> samples) const;

 private:
  Dataset(const DataOptions& options, std::unique_ptr<Tokenizer> tokenizer, TokenStream stream, int64_t text_bytes);
  void sample_from(int64_t first_token, std::span<int64_t> inputs, std::span<int64_t> targets) const;

  DataOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenStream stream_;
  int64_t text_bytes_ = 0, validation_first_ = 0, training_samples_ = 0, validation_samples_ = 0;
};

// The tokenizer alone, for `generate`: from the cache that prepare() left. Throws ConfigError when there is none.
std::unique_ptr<Tokenizer> load_tokenizer(const DataOptions& options, const std::filesystem::path& cache_folder);

}  // namespace sluice
