#include "data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/bytes.h"
#include "data/id_file.h"

namespace sluice {

namespace {

class Text final : public TokenSource {
 public:
  Text(const DataOptions& options, const Progress& reading)
      : options_(options), text_(TextSource::open(options.path, reading)) {}
  int64_t bytes() const override { return text_.bytes(); }
  uint32_t fingerprint() const override { return text_.fingerprint(); }

  void describe(const Log& log) const override {
    const std::string skipped = text_.skipped().total() > 0 ? "; left out: " + text_.skipped().describe() : "";
    say(log, LogLevel::kInfo,
        fmt::format("{}: {} of text in {} files{}", text_.path().string(), format_bytes(text_.bytes()),
                    text_.files().size(), skipped));
  }

  std::unique_ptr<Tokenizer> make_tokenizer(const Log& log) const override {
    if (options_.tokenizer == TokenizerKind::kByte) return make_byte_tokenizer();
    say(log, LogLevel::kInfo,
        fmt::format("training a sentencepiece vocabulary of {} entries on {}", options_.vocab_size,
                    format_bytes(std::min(text_.bytes(), kSampleBytes))));
    return make_sentencepiece_tokenizer(train_sentencepiece(text_, options_.vocab_size));
  }

  void write(const Tokenizer& tokenizer, TokenWriter& writer, const Progress& progress) const override {
    const int32_t end = tokenizer.end_of_document().value();
    std::vector<int32_t> ids;
    int64_t done_bytes = 0;
    for (const TextFile& file : text_.files()) {
      text_.read(file, [&](std::string_view piece) {
        ids.clear();
        tokenizer.encode(piece, ids);
        writer.append(ids);
        done_bytes += static_cast<int64_t>(piece.size());
        if (progress) progress(done_bytes, text_.bytes());
      });
      writer.append({&end, 1});
    }
  }

 private:
  DataOptions options_;
  TextSource text_;
};

class Ids final : public TokenSource {
 public:
  Ids(const DataOptions& options, const Progress& reading)
      : options_(options), file_(IdFile::open(options.path, options.vocab_size, reading)) {}
  int64_t bytes() const override { return file_.bytes(); }
  uint32_t fingerprint() const override { return file_.fingerprint(); }
  void describe(const Log& log) const override {
    say(log, LogLevel::kInfo, fmt::format("{}: {} ids of another tokenizer", options_.path.string(), file_.count()));
  }
  std::unique_ptr<Tokenizer> make_tokenizer(const Log&) const override {
    return make_id_tokenizer(options_.vocab_size);
  }
  void write(const Tokenizer&, TokenWriter& writer, const Progress& progress) const override {
    file_.read([&](std::span<const int32_t> ids) { writer.append(ids); }, progress);
  }

 private:
  DataOptions options_;
  IdFile file_;
};

}  // namespace

void check_is_there(const DataOptions& options) {
  if (options.tokenizer == TokenizerKind::kIds) return IdFile::check_is_there(options.path);
  TextSource::check_is_there(options.path);
}

std::unique_ptr<TokenSource> open_source(const DataOptions& options, const Progress& reading) {
  if (options.tokenizer == TokenizerKind::kIds) return std::make_unique<Ids>(options, reading);
  return std::make_unique<Text>(options, reading);
}

}  // namespace sluice
