#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "core/errors.h"
#include "data/literal_bytes.h"
#include "data/tokenizer.h"

namespace sluice {

namespace {

constexpr std::string_view kSpaceInside = "\xE2\x96\x81";  // U+2581: how pieces write a space
constexpr size_t kMaxSentenceBytes = 4000;                 // the trainer passes over longer ones
constexpr int64_t kSampleBlockBytes = int64_t{16} << 10;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string model) : model_(std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok()) throw CorruptionError("the tokenizer's model cannot be used: " + status.ToString());
    end_of_document_ = processor_.eos_id();
    if (end_of_document_ < 0) throw CorruptionError("the tokenizer's model has no end of document");
    std::fill(std::begin(byte_id_), std::end(byte_id_), -1);
    for (int id = 0; id < processor_.GetPieceSize(); ++id) text_of_.push_back(text_of(id));
    if (std::find(std::begin(byte_id_), std::end(byte_id_), -1) != std::end(byte_id_)) {
      throw CorruptionError("the tokenizer's model has no byte entries");
    }
  }

  TokenizerKind kind() const override { return TokenizerKind::kSentencePiece; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(text_of_.size()); }
  std::optional<int32_t> end_of_document() const override { return end_of_document_; }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> part;
    split_literals(
        text,
        [&](std::string_view literal) {
          for (const char byte : literal) ids.push_back(byte_id_[static_cast<uint8_t>(byte)]);
        },
        [&](std::string_view plain) {
          const auto status = processor_.Encode(plain, &part);
          SLUICE_CHECK(status.ok(), "a loaded model encodes: " + status.ToString());
          ids.insert(ids.end(), part.begin(), part.end());
        });
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      SLUICE_CHECK(id >= 0 && id < vocabulary_size(), "an id of the vocabulary");
      text += text_of_[static_cast<size_t>(id)];
    }
    return text;
  }

  std::string_view model() const override { return model_; }
  std::vector<VocabularyEntry> vocabulary() const override {
    std::vector<VocabularyEntry> entries;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const VocabularyEntry::Kind kind = kind_of(id);
      const bool is_named = kind == VocabularyEntry::Kind::kSpecial || kind == VocabularyEntry::Kind::kUnknown;
      entries.push_back({.kind = kind,
                         .text = is_named ? processor_.IdToPiece(id) : text_of_[static_cast<size_t>(id)],
                         .score = processor_.GetScore(id)});
    }
    return entries;
  }
  std::string describe() const override { return fmt::format("sentencepiece, {} entries", vocabulary_size()); }

 private:
  VocabularyEntry::Kind kind_of(int id) const {
    using enum VocabularyEntry::Kind;
    return processor_.IsControl(id)   ? kSpecial
           : processor_.IsUnknown(id) ? kUnknown
           : processor_.IsByte(id)    ? kByte
                                      : kText;
  }
  // What an entry stands for; fills byte_id_ on the way.
  std::string text_of(int id) {
    const std::string& piece = processor_.IdToPiece(id);
    const VocabularyEntry::Kind kind = kind_of(id);
    if (kind == VocabularyEntry::Kind::kSpecial) return {};
    if (kind == VocabularyEntry::Kind::kUnknown) return "\xEF\xBF\xBD";  // U+FFFD; encode never gives it
    if (kind == VocabularyEntry::Kind::kByte) {
      const int byte = std::stoi(piece.substr(3, 2), nullptr, 16);  // "<0x0A>"
      byte_id_[byte] = id;
      return std::string(1, static_cast<char>(byte));
    }
    std::string text;
    for (size_t at = 0; at < piece.size();) {
      const bool space = piece.compare(at, kSpaceInside.size(), kSpaceInside) == 0;
      text.push_back(space ? ' ' : piece[at]);
      at += space ? kSpaceInside.size() : 1;
    }
    return text;
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  int32_t end_of_document_ = -1;
  int32_t byte_id_[256];
  std::vector<std::string> text_of_;
};

// The lines of a sample of the text: blocks at even distances, or all of a text that is no longer.
class SampleLines final : public sentencepiece::SentenceIterator {
 public:
  SampleLines(const TextSource& text, int64_t sample_bytes) {
    const int64_t blocks = text.bytes() <= sample_bytes ? 0 : sample_bytes / kSampleBlockBytes;
    int64_t file_begin = 0, block = 0;
    for (const TextFile& file : text.files()) {
      if (blocks == 0) text.read(file, [&](std::string_view piece) { add(piece); });
      for (; block < blocks && block * text.bytes() / blocks < file_begin + file.bytes; ++block) {
        add(text.read_range(file, block * text.bytes() / blocks - file_begin, kSampleBlockBytes));
      }
      file_begin += file.bytes;
    }
  }
  bool done() const override { return next_ >= lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }
  size_t size() const { return lines_.size(); }

 private:
  void add(std::string_view text) {
    const auto plain = [&](std::string_view line) {
      while (line.size() > kMaxSentenceBytes) {
        const size_t cut = utf8_cut(line, kMaxSentenceBytes);
        lines_.emplace_back(line.substr(0, cut));
        line.remove_prefix(cut);
      }
      lines_.emplace_back(line);
    };
    split_literals(
        text, [](std::string_view) {}, plain);
  }

  std::vector<std::string> lines_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model));
}

std::string train_sentencepiece(const TextSource& text, int64_t vocab_size, int64_t sample_bytes) {
  SampleLines lines(text, sample_bytes);
  // Sums of the trainer depend on the number of its threads: it is fixed, not the machine's.
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(vocab_size)},
      {"hard_vocab_limit", "false"},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"num_threads", "4"},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"minloglevel", "2"},
  };
  std::string model;
  constexpr int64_t kLeastBytes = 64;  // the trainer ends the process where it finds no piece that is frequent enough
  const bool too_short = lines.size() == 0 || text.bytes() < kLeastBytes;
  const auto status = too_short ? sentencepiece::util::Status(sentencepiece::util::StatusCode::kInvalidArgument,
                                                              fmt::format("{} bytes of text", text.bytes()))
                                : sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (!status.ok()) {
    throw ConfigError(
        fmt::format("data.vocab_size is {}: {} gives no sentencepiece vocabulary of that size ({}); choose "
                    "another size, more text, or \"tokenizer\": \"byte\"",
                    vocab_size, text.path().string(), status.ToString()));
  }
  return model;
}

}  // namespace sluice
