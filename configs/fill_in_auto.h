// What Hugging Face's Trainer puts where a DeepSpeed file says "auto". A pure function.
#pragma once
#include <string>
#include <vector>

namespace sluice {

// `document` is one JSON object. Returns it with values in place of the "auto"s that the Trainer would fill in from its
// arguments (transformers 5, integrations/deepspeed.py): the arguments' defaults, each with a note of what was taken.
// Throws ConfigError where no default would be meant, or the Trainer has none, naming all such keys and what to write.
// Batch sizes, the schedule's largest rate and the engine's own keys know "auto" themselves and keep it.
std::string fill_in_auto(const std::string& document, const std::string& name, std::vector<std::string>& notes);

}  // namespace sluice
