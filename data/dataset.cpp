#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/folders.h"
#include "data/cache_file.h"
#include "data/token_source.h"
#include "data/unigram.h"

namespace sluice {

namespace fs = std::filesystem;

fs::path tokenizer_file(const fs::path& cache_folder) { return cache_folder / "tokenizer.cache"; }
fs::path tokens_file(const fs::path& cache_folder) { return cache_folder / "tokens.cache"; }

namespace {

constexpr int kFormat = 1;  // raised when the same text and settings give other tokens than before

uint32_t settings_crc(const DataOptions& data) {
  const int64_t vocabulary = data.tokenizer == TokenizerKind::kByte ? 256 : data.vocab_size;
  return crc32c(0, fmt::format("{} {} {}", kFormat, name_of(data.tokenizer), vocabulary));
}

std::unique_ptr<Tokenizer> tokenizer_of(const DataOptions& data, std::string model) {
  switch (data.tokenizer) {
    case TokenizerKind::kByte:
      return make_byte_tokenizer();
    case TokenizerKind::kSentencePiece:
      return make_sentencepiece_tokenizer(std::move(model));
    case TokenizerKind::kIds:
      return make_id_tokenizer(data.vocab_size);
  }
  check_failed("tokenizer", __FILE__, __LINE__, "an unknown tokenizer");
}

// The tokenizer's cache: its fingerprint is the settings', its content the source's fingerprint (4 bytes) and the
// model.
struct CachedTokenizer {
  uint32_t source_fingerprint = 0;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::optional<CachedTokenizer> read_tokenizer(const DataOptions& data, const fs::path& folder) {
  const std::optional<CheckedBytes> cached = read_checked(tokenizer_file(folder));
  CachedTokenizer result;
  if (!cached || cached->fingerprint != settings_crc(data) || cached->bytes.size() < sizeof(uint32_t))
    return std::nullopt;
  std::memcpy(&result.source_fingerprint, cached->bytes.data(), sizeof(uint32_t));
  result.tokenizer = tokenizer_of(data, cached->bytes.substr(sizeof(uint32_t)));
  return result;
}

// Of source and settings together: what the tokens were made from.
uint32_t tokens_fingerprint(const DataOptions& data, uint32_t source_fingerprint) {
  return crc32c(0, fmt::format("{:08x} {:08x}", settings_crc(data), source_fingerprint));
}

std::unique_ptr<PendingFile> write_tokenizer(const PrepareOptions& options, const TokenSource& source,
                                             const Tokenizer& tokenizer) {
  const uint32_t fingerprint = source.fingerprint();
  std::string content(reinterpret_cast<const char*>(&fingerprint), sizeof fingerprint);
  content += tokenizer.model();
  return write_checked(tokenizer_file(options.cache_folder), settings_crc(options.data), content);
}

std::unique_ptr<PendingFile> write_tokens(const PrepareOptions& options, const TokenSource& source,
                                          const Tokenizer& tokenizer) {
  TokenWriter writer(tokens_file(options.cache_folder), tokenizer.vocabulary_size(),
                     tokens_fingerprint(options.data, source.fingerprint()));
  source.write(tokenizer, writer, options.progress);
  return writer.finish();
}

}  // namespace

Dataset Dataset::prepare(const PrepareOptions& options) {
  validate(options.data);
  make_folder(options.cache_folder, "choose another folder");
  std::optional<CachedTokenizer> cached = read_tokenizer(options.data, options.cache_folder);
  const fs::path tokens = tokens_file(options.cache_folder);
  Parts parts;
  if (options.use == CacheUse::kWithoutText && cached) {
    parts.stream = TokenStream::open(tokens, tokens_fingerprint(options.data, cached->source_fingerprint));
    if (parts.stream) {
      parts.tokenizer = std::move(cached->tokenizer);
      return Dataset(options.data, std::move(parts));
    }
  }
  const std::unique_ptr<TokenSource> source = open_source(options.data, options.reading);
  source->describe(options.log);
  parts.source_bytes = source->bytes();
  if (cached && cached->source_fingerprint == source->fingerprint()) {
    parts.tokenizer = std::move(cached->tokenizer);
    parts.stream = TokenStream::open(tokens, tokens_fingerprint(options.data, source->fingerprint()));
  } else {
    parts.tokenizer = source->make_tokenizer(options.log);
    parts.new_tokenizer = write_tokenizer(options, *source, *parts.tokenizer);
  }
  if (!parts.stream) {
    if (fs::exists(tokens)) {
      say(options.log, LogLevel::kInfo,
          tokens.string() +
              " is damaged, or was made from another text or settings or by another version: tokens are made anew, and "
              "take its place when the run begins");
    }
    parts.new_tokens = write_tokens(options, *source, *parts.tokenizer);
    parts.stream = TokenStream::open(parts.new_tokens->temporary(), std::nullopt, tokens);
  }
  if (!parts.stream)
    throw CorruptionError(tokens.string() + " is not what was just written: look at the drive's health (dmesg)");
  return Dataset(options.data, std::move(parts));
}

void Dataset::keep() {
  for (auto* made : {&parts_.new_tokenizer, &parts_.new_tokens}) {
    if (*made) (*made)->publish();
    made->reset();
  }
}

Dataset::Dataset(const DataOptions& options, Parts parts) : options_(options), parts_(std::move(parts)) {
  const int64_t total = parts_.stream->size(), length = options_.sequence_length;
  const auto held_back = static_cast<int64_t>(std::floor(static_cast<double>(total) * options_.validation_fraction));
  validation_first_ = total - held_back;
  training_samples_ = std::max<int64_t>(0, (validation_first_ - 1) / length);
  validation_samples_ = std::max<int64_t>(0, (held_back - 1) / length);
  if (training_samples_ == 0) {
    throw ConfigError(
        fmt::format("data.path: {} gives {} tokens to train on, fewer than one sample of "
                    "data.sequence_length + 1 = {}: take more text or a shorter sequence",
                    options_.path.string(), validation_first_, length + 1));
  }
}

void Dataset::sample_from(int64_t first_token, std::span<int64_t> inputs, std::span<int64_t> targets) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  SLUICE_CHECK(inputs.size() == length && targets.size() == length, "a sample has S inputs and S targets");
  std::vector<int64_t> ids(length + 1);
  parts_.stream->read(first_token, ids);
  std::copy(ids.begin(), ids.end() - 1, inputs.begin());
  std::copy(ids.begin() + 1, ids.end(), targets.begin());
}

void Dataset::training_sample(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const {
  SLUICE_CHECK(sample >= 0 && sample < training_samples_, "a training sample");
  sample_from(sample * options_.sequence_length, inputs, targets);
}

void Dataset::validation_sample(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const {
  SLUICE_CHECK(sample >= 0 && sample < validation_samples_, "a validation sample");
  sample_from(validation_first_ + sample * options_.sequence_length, inputs, targets);
}

double Dataset::validation_unigram_nats(std::span<const int64_t> samples) const {
  std::vector<int64_t> counts(static_cast<size_t>(parts_.tokenizer->vocabulary_size()));
  std::vector<int64_t> inputs(static_cast<size_t>(options_.sequence_length)), targets(inputs.size());
  for (const int64_t sample : samples) {
    validation_sample(sample, inputs, targets);
    for (const int64_t id : targets) ++counts[static_cast<size_t>(id)];
  }
  return unigram_nats(counts);
}

std::unique_ptr<Tokenizer> load_tokenizer(const DataOptions& options, const fs::path& cache_folder) {
  std::optional<CachedTokenizer> cached = read_tokenizer(options, cache_folder);
  if (!cached) {
    throw ConfigError(
        fmt::format("{} is missing, damaged or made with other settings: train again, or run `sluice train "
                    "--resume` to make it anew",
                    tokenizer_file(cache_folder).string()));
  }
  return std::move(cached->tokenizer);
}

}  // namespace sluice
