// What tokens are made from: text by a tokenizer of ours, or ids that another one made.
#pragma once
#include <cstdint>
#include <memory>

#include "core/log.h"
#include "data/options.h"
#include "data/text_source.h"
#include "data/token_stream.h"
#include "data/tokenizer.h"

namespace sluice {

// Immutable.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t bytes() const = 0;
  virtual uint32_t fingerprint() const = 0;  // changes when the content does
  virtual void describe(const Log& log) const = 0;
  virtual std::unique_ptr<Tokenizer> make_tokenizer(const Log& log) const = 0;
  // Throws CorruptionError where the content has changed since opening.
  virtual void write(const Tokenizer& tokenizer, TokenWriter& writer, const Progress& progress) const = 0;
};

// Throws ConfigError where what the options name is not there, without reading it.
void check_is_there(const DataOptions& options);
// Reads all of it once. Throws what TextSource::open and IdFile::open throw.
std::unique_ptr<TokenSource> open_source(const DataOptions& options, const Progress& reading);

}  // namespace sluice
