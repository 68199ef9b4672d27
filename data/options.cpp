#include "data/options.h"

#include <fmt/format.h>

#include "core/errors.h"

namespace sluice {

std::string_view name_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kByte:
      return "byte";
    case TokenizerKind::kSentencePiece:
      return "sentencepiece";
    case TokenizerKind::kIds:
      return "ids";
  }
  check_failed("kind", __FILE__, __LINE__, "an unknown tokenizer");
}

int64_t least_vocabulary(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kByte:
      return 256;
    case TokenizerKind::kSentencePiece:
      return 300;
    case TokenizerKind::kIds:
      return 1;
  }
  check_failed("kind", __FILE__, __LINE__, "an unknown tokenizer");
}

void check_sentencepiece_vocabulary(int64_t entries, std::string_view said) {
  const int64_t least = least_vocabulary(TokenizerKind::kSentencePiece);
  if (entries >= least && entries <= kMaxSentencePieceVocabulary) return;
  throw ConfigError(
      fmt::format("{} {}: sentencepiece takes {} to {} entries", said, entries, least, kMaxSentencePieceVocabulary));
}

void refuse_no_path(TokenizerKind kind) {
  throw ConfigError(
      fmt::format("data.path is not given: name a {} there, or with --data PATH",
                  kind == TokenizerKind::kIds ? "NumPy file of token ids" : "file or a folder of UTF-8 text"));
}

void validate(const DataOptions& options) {
  if (options.path.empty()) refuse_no_path(options.tokenizer);
  if (options.sequence_length < 1) {
    throw ConfigError(fmt::format("data.sequence_length is {}: allowed are 1 and more", options.sequence_length));
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    throw ConfigError(
        fmt::format("data.validation_fraction is {}: allowed is 0 <= fraction < 1", options.validation_fraction));
  }
  const int64_t vocabulary = options.vocab_size, least = least_vocabulary(options.tokenizer);
  if (options.tokenizer == TokenizerKind::kByte && vocabulary != 0 && vocabulary < least) {
    throw ConfigError(fmt::format("data.vocab_size is {}: the byte tokenizer has 256 ids", vocabulary));
  }
  if (options.tokenizer == TokenizerKind::kIds && vocabulary < least) {
    throw ConfigError(fmt::format("data.vocab_size is {}: the tokenizer's number of ids is 1 or more", vocabulary));
  }
  if (options.tokenizer == TokenizerKind::kSentencePiece) {
    check_sentencepiece_vocabulary(vocabulary, "data.vocab_size is");
  }
}

}  // namespace sluice
