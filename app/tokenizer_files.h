// A run's tokenizer as files that Hugging Face's transformers reads, to lie beside exported weights.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "models/hugging_face.h"

namespace sluice {

// tokenizer.json and tokenizer_config.json, which give the same ids for the same text: but for cuts of it that are
// equally likely (33|3 and 3|33), of which rounding decides, for the name of the end of documents, which is that id in
// a text, and for what reads like the name of a byte. `longest`: tokens that the model takes at once. None for ids that
// another tokenizer made.
std::vector<NamedFile> tokenizer_files(const Tokenizer& tokenizer, int64_t longest);
// Whether the one that lies beside weights is this one, as it was exported with them.
bool is_tokenizer_of(const std::string& weights_folder, const Tokenizer& tokenizer);

}  // namespace sluice
