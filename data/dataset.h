// A text, or ids that another tokenizer made of one, ready to train on: tokenizer and tokens, cached in a folder beside
// the run.
//
// Every document of a text is followed by the tokenizer's end_of_document. The last validation_fraction of the tokens
// is the validation part. In each part, sample i takes tokens [i*S, i*S + S]: S inputs and S targets, shifted by one.
//
// Immutable; const members may be called from any thread. Memory: the tokens stay in their file, of which a thousandth
// is kept (TokenStream); all else is bounded.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/log.h"
#include "data/cache_file.h"
#include "data/options.h"
#include "data/text_source.h"
#include "data/token_stream.h"
#include "data/tokenizer.h"

namespace sluice {

std::filesystem::path tokenizer_file(const std::filesystem::path& cache_folder);
std::filesystem::path tokens_file(const std::filesystem::path& cache_folder);

enum class CacheUse {
  kIfUnchanged,  // read the text; rebuild what was made from another text or with other settings, or is damaged
  kWithoutText,  // a whole cache of these settings is the data (resumed runs); the text is looked at only without one
};

struct PrepareOptions {
  DataOptions data = {};
  std::filesystem::path cache_folder = {};  // created if missing; holds the two files above
  CacheUse use = CacheUse::kIfUnchanged;
  Progress reading = nullptr;   // of the text, to know it
  Progress progress = nullptr;  // of tokenization
  Log log = nullptr;
};

class Dataset {
 public:
  // What has to be made anew stays in temporary files until keep(): a command that is refused later on leaves the
  // caches of the run that is there. Throws ConfigError (options, text, too little text for one sample), IoError,
  // CorruptionError (the drive does not keep what was just written).
  static Dataset prepare(const PrepareOptions& options);
  // Puts what was made anew in place of the folder's caches. Throws IoError.
  void keep();

  const Tokenizer& tokenizer() const { return *parts_.tokenizer; }
  const DataOptions& options() const { return options_; }
  int64_t tokens() const { return parts_.stream->size(); }
  int64_t source_bytes() const { return parts_.source_bytes; }  // 0 where the cache was taken without the source
  // Of text and settings: runs with equal fingerprints train on the same tokens.
  uint32_t fingerprint() const { return parts_.stream->fingerprint(); }
  int64_t training_samples() const { return training_samples_; }
  int64_t validation_samples() const { return validation_samples_; }

  // Fills S inputs and S targets of one sample. Throws what TokenStream::read throws, as all that reads tokens does.
  void training_sample(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const;
  void validation_sample(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const;
  // Entropy in nats per token of the unigram distribution of these validation samples' targets: the least loss of any
  // model that sees no context, on just these tokens.
  double validation_unigram_nats(std::span<const int64_t> samples) const;

 private:
  struct Parts {
    std::unique_ptr<Tokenizer> tokenizer;
    std::optional<TokenStream> stream;
    std::unique_ptr<PendingFile> new_tokenizer, new_tokens;  // null: the cache's was taken
    int64_t source_bytes = 0;
  };
  Dataset(const DataOptions& options, Parts parts);
  void sample_from(int64_t first_token, std::span<int64_t> inputs, std::span<int64_t> targets) const;

  DataOptions options_;
  Parts parts_;
  int64_t validation_first_ = 0, training_samples_ = 0, validation_samples_ = 0;
};

// The tokenizer alone, for `generate`: from the cache that prepare() left. Throws ConfigError when there is none.
std::unique_ptr<Tokenizer> load_tokenizer(const DataOptions& options, const std::filesystem::path& cache_folder);

}  // namespace sluice
