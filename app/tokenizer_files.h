// A run's tokenizer as files that Hugging Face's transformers reads, to lie beside exported weights.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/log.h"
#include "data/tokenizer.h"
#include "models/hugging_face.h"

namespace sluice {

// tokenizer.json and tokenizer_config.json, which give the same ids for the same text: but for cuts of it that are
// equally likely (33|3 and 3|33), of which rounding decides, for the name of the end of documents, which is that id in
// a text, and for what reads like the name of a byte. `longest`: tokens that the model takes at once. None for ids that
// another tokenizer made.
std::vector<NamedFile> tokenizer_files(const Tokenizer& tokenizer, int64_t longest);
// Weights know the ids of the tokenizer that they were trained with: warns where this one is not known to be it, as it
// is where an export has put it beside them. No folder: weights of one's own, which know none.
void warn_of_other_ids(const std::string& weights_folder, const Tokenizer& tokenizer, const Log& log);

}  // namespace sluice
