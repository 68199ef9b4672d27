#include "core/errors.h"
#include "data/tokenizer.h"

namespace sluice {

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  TokenizerKind kind() const override { return TokenizerKind::kByte; }
  int64_t vocabulary_size() const override { return 256; }
  std::optional<int32_t> end_of_document() const override { return 0; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      SLUICE_CHECK(id >= 0 && id < 256, "an id of the byte tokenizer");
      text.push_back(static_cast<char>(id));
    }
    return text;
  }
  std::string_view model() const override { return {}; }
  std::vector<VocabularyEntry> vocabulary() const override {
    std::vector<VocabularyEntry> entries;
    for (int byte = 0; byte < 256; ++byte) {
      entries.push_back({.kind = VocabularyEntry::Kind::kByte, .text = std::string(1, static_cast<char>(byte))});
    }
    return entries;
  }
  std::string describe() const override { return "bytes, 256 ids"; }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace sluice
