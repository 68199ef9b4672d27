// Tokenizers: text to ids and back, exactly. For any bytes whatever, decode(encode(text)) == text, and
// encode(a + b) == encode(a) + encode(b) where `a` ends with a newline.
//
// encode and decode are const and may be called from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/options.h"
#include "data/text_source.h"

namespace sluice {

// What an id stands for.
struct VocabularyEntry {
  enum class Kind : uint8_t { kText, kByte, kSpecial, kUnknown };
  Kind kind = Kind::kText;
  std::string text;  // kByte: one byte; kSpecial, kUnknown: its name, which is no text
  float score = 0;   // kText: a text is cut into the entries whose sum is the highest
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual TokenizerKind kind() const = 0;
  // Ids are 0 .. vocabulary_size()-1. A sentencepiece vocabulary may come out smaller than asked on a small text.
  virtual int64_t vocabulary_size() const = 0;
  // Ends every document in a token stream; decodes to nothing (the byte tokenizer: id 0, the NUL byte, which no text
  // has). Of other tokenizers' ids it is not known.
  virtual std::optional<int32_t> end_of_document() const = 0;
  // Appends.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Ids from outside the vocabulary are a programmer's error. A character may be spread over several ids.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // What make_tokenizer needs to make this tokenizer again; empty for bytes and ids.
  virtual std::string_view model() const = 0;
  // By id; empty for other tokenizers' ids.
  virtual std::vector<VocabularyEntry> vocabulary() const = 0;
  virtual std::string describe() const = 0;  // "sentencepiece, 4096 entries"
};

// For ids that another tokenizer made, 0 .. vocabulary-1: text is their numbers with blanks between them, which are not
// kept as they were. encode throws ConfigError for any other text.
std::unique_ptr<Tokenizer> make_id_tokenizer(int64_t vocabulary);
// ids 0-255.
std::unique_ptr<Tokenizer> make_byte_tokenizer();
// From a model that train_sentencepiece made. Throws CorruptionError if it cannot be used.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model);

// Trains a unigram model with byte fallback on a sample of about `sample_bytes` spread evenly over the text (all of a
// text that is no longer). The same arguments give the same model. Throws ConfigError where the text does not allow a
// vocabulary of this size.
constexpr int64_t kSampleBytes = int64_t{4} << 20;
std::string train_sentencepiece(const TextSource& text, int64_t vocab_size, int64_t sample_bytes = kSampleBytes);

}  // namespace sluice
