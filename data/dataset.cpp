#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/bytes.h"
#include "core/checksum.h"
#include "core/errors.h"
#include "core/folders.h"
#include "data/cache_file.h"
#include "data/unigram.h"

namespace sluice {

namespace fs = std::filesystem;

fs::path tokenizer_file(const fs::path& cache_folder) { return cache_folder / "tokenizer.cache"; }
fs::path tokens_file(const fs::path& cache_folder) { return cache_folder / "tokens.cache"; }

namespace {

constexpr int kFormat = 1;  // raised when the same text and settings give other tokens than before

uint32_t settings_crc(const DataOptions& data) {
  const bool bytes = data.tokenizer == TokenizerKind::kByte;
  return crc32c(0, fmt::format("{} {} {}", kFormat, bytes ? "byte" : "sentencepiece", bytes ? 256 : data.vocab_size));
}

// The tokenizer's cache: its fingerprint is the settings', its content the text's fingerprint (4 bytes) and the model.
struct CachedTokenizer {
  uint32_t text_fingerprint = 0;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::optional<CachedTokenizer> read_tokenizer(const DataOptions& data, const fs::path& folder) {
  const std::optional<CheckedBytes> cached = read_checked(tokenizer_file(folder));
  CachedTokenizer result;
  if (!cached || cached->fingerprint != settings_crc(data) || cached->bytes.size() < sizeof(uint32_t))
    return std::nullopt;
  std::memcpy(&result.text_fingerprint, cached->bytes.data(), sizeof(uint32_t));
  result.tokenizer = data.tokenizer == TokenizerKind::kByte
                         ? make_byte_tokenizer()
                         : make_sentencepiece_tokenizer(cached->bytes.substr(sizeof(uint32_t)));
  return result;
}

// Of text and settings together: what the tokens were made from.
uint32_t tokens_fingerprint(const DataOptions& data, uint32_t text_fingerprint) {
  return crc32c(0, fmt::format("{:08x} {:08x}", settings_crc(data), text_fingerprint));
}

std::unique_ptr<Tokenizer> build_tokenizer(const PrepareOptions& options, const TextSource& text) {
  const DataOptions& data = options.data;
  if (data.tokenizer == TokenizerKind::kByte) return make_byte_tokenizer();
  say(options.log, LogLevel::kInfo,
      fmt::format("training a sentencepiece vocabulary of {} entries on {}", data.vocab_size,
                  format_bytes(std::min(text.bytes(), kSampleBytes))));
  return make_sentencepiece_tokenizer(train_sentencepiece(text, data.vocab_size));
}

std::unique_ptr<PendingFile> write_tokenizer(const PrepareOptions& options, const TextSource& text,
                                             const Tokenizer& tokenizer) {
  const uint32_t fingerprint = text.fingerprint();
  std::string content(reinterpret_cast<const char*>(&fingerprint), sizeof fingerprint);
  content += tokenizer.model();
  return write_checked(tokenizer_file(options.cache_folder), settings_crc(options.data), content);
}

std::unique_ptr<PendingFile> write_tokens(const PrepareOptions& options, const TextSource& text,
                                          const Tokenizer& tokenizer) {
  TokenWriter writer(tokens_file(options.cache_folder), tokenizer.vocabulary_size(),
                     tokens_fingerprint(options.data, text.fingerprint()));
  std::vector<int32_t> ids;
  int64_t done_bytes = 0;
  for (const TextFile& file : text.files()) {
    text.read(file, [&](std::string_view piece) {
      ids.clear();
      tokenizer.encode(piece, ids);
      writer.append(ids);
      done_bytes += static_cast<int64_t>(piece.size());
      if (options.progress) options.progress(done_bytes, text.bytes());
    });
    const int32_t end = tokenizer.end_of_document();
    writer.append({&end, 1});
  }
  return writer.finish();
}

void report_text(const Log& log, const TextSource& text) {
  const std::string skipped = text.skipped().total() > 0 ? "; left out: " + text.skipped().describe() : "";
  say(log, LogLevel::kInfo,
      fmt::format("{}: {} of text in {} files{}", text.path().string(), format_bytes(text.bytes()), text.files().size(),
                  skipped));
}

}  // namespace

Dataset Dataset::prepare(const PrepareOptions& options) {
  validate(options.data);
  make_folder(options.cache_folder, "choose another folder");
  std::optional<CachedTokenizer> cached = read_tokenizer(options.data, options.cache_folder);
  const fs::path tokens = tokens_file(options.cache_folder);
  Parts parts;
  if (options.use == CacheUse::kWithoutText && cached) {
    parts.stream = TokenStream::open(tokens, tokens_fingerprint(options.data, cached->text_fingerprint));
    if (parts.stream) {
      parts.tokenizer = std::move(cached->tokenizer);
      return Dataset(options.data, std::move(parts));
    }
  }
  const TextSource text = TextSource::open(options.data.path, options.reading);
  report_text(options.log, text);
  parts.text_bytes = text.bytes();
  if (cached && cached->text_fingerprint == text.fingerprint()) {
    parts.tokenizer = std::move(cached->tokenizer);
    parts.stream = TokenStream::open(tokens, tokens_fingerprint(options.data, text.fingerprint()));
  } else {
    parts.tokenizer = build_tokenizer(options, text);
    parts.new_tokenizer = write_tokenizer(options, text, *parts.tokenizer);
  }
  if (!parts.stream) {
    if (fs::exists(tokens)) {
      say(options.log, LogLevel::kInfo,
          tokens.string() +
              " is damaged, or was made from another text or settings or by another version: it is made anew");
    }
    parts.new_tokens = write_tokens(options, text, *parts.tokenizer);
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
