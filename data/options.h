// What a configuration says about data.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace sluice {

enum class TokenizerKind { kByte, kSentencePiece, kIds };  // kIds: another one made them
enum class Shuffle { kNo, kYes };

struct DataOptions {
  std::filesystem::path path = {};  // a file or a folder of UTF-8 text; kIds: a NumPy file of ids
  TokenizerKind tokenizer = TokenizerKind::kByte;
  // Entries of the sentencepiece vocabulary; the byte tokenizer has 256 ids and takes 0 or anything from 256 up; kIds:
  // all ids are below it.
  int64_t vocab_size = 0;
  int64_t sequence_length = 0;  // S: a sample has S inputs and S targets
  Shuffle shuffle = Shuffle::kYes;
  double validation_fraction = 0;  // of the tokens, the last part; 0 <= f < 1
};

constexpr int64_t kMaxSentencePieceVocabulary = 1000000;
// "byte", "sentencepiece", "ids"
std::string_view name_of(TokenizerKind kind);
int64_t least_vocabulary(TokenizerKind kind);
// Throws ConfigError where SentencePiece takes no such vocabulary; `said` tells whose it is: "data.vocab_size is".
void check_sentencepiece_vocabulary(int64_t entries, std::string_view said);

// Throws ConfigError that no data is named, and how it is.
[[noreturn]] void refuse_no_path(TokenizerKind kind);
// Throws ConfigError naming the key, its value and what is allowed. Looks at no file.
void validate(const DataOptions& options);

}  // namespace sluice
