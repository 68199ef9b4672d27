#include <fmt/format.h>

#include <charconv>

#include "core/errors.h"
#include "data/tokenizer.h"

namespace sluice {

namespace {

constexpr std::string_view kBetween = " ,\t\r\n";

class IdTokenizer final : public Tokenizer {
 public:
  explicit IdTokenizer(int64_t vocabulary) : vocabulary_(vocabulary) {}
  TokenizerKind kind() const override { return TokenizerKind::kIds; }
  int64_t vocabulary_size() const override { return vocabulary_; }
  std::optional<int32_t> end_of_document() const override { return std::nullopt; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (size_t at = text.find_first_not_of(kBetween); at != text.npos; at = text.find_first_not_of(kBetween, at)) {
      const std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
      int32_t id = -1;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocabulary_) {
        throw ConfigError(
            fmt::format("\"{}\" is no id: the run is trained on ids, so give those of the prompt, 0 to {}, with blanks "
                        "between them",
                        word, vocabulary_ - 1));
      }
      ids.push_back(id);
      at += word.size();
    }
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      SLUICE_CHECK(id >= 0 && id < vocabulary_, "an id of the vocabulary");
      text += fmt::format(" {}", id);
    }
    return text;
  }
  std::string_view model() const override { return {}; }
  std::vector<VocabularyEntry> vocabulary() const override { return {}; }
  std::string describe() const override { return fmt::format("another tokenizer, {} ids", vocabulary_); }

 private:
  int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_id_tokenizer(int64_t vocabulary) { return std::make_unique<IdTokenizer>(vocabulary); }

}  // namespace sluice
