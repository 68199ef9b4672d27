// Which keys of a file are known, and what becomes of DeepSpeed's that the engine has no use for.
#pragma once
#include <string>
#include <vector>

namespace sluice {

// `document` is one JSON object. Returns a line for each reason why keys of DeepSpeed's are not needed, which names
// them. Throws ConfigError for a key that is not known (naming the nearest that is), and for those of DeepSpeed's that
// ask for what is not there (naming all of them).
std::vector<std::string> check_keys(const std::string& document, const std::string& name);

}  // namespace sluice
