// An option that takes one of a few words.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sluice {

struct ChoiceWords {
  const char* name = "";  // of the option, dashes included
  const char* description = "";
};
// Hands the word that was given, one of `words`, to `take`. Upper case will do; another word is refused with those that
// are allowed. (CLI11's own transformer shows values too: of small enums bytes that nobody can read.)
CLI::Option* add_choice(CLI::App& command, const ChoiceWords& option, const std::vector<std::string>& words,
                        const std::function<void(const std::string& word)>& take);

// Puts what `choices` has under the word into `into`, which outlives the command.
template <typename T, typename Into>
CLI::Option* add_choice(CLI::App& command, const ChoiceWords& option, Into& into,
                        const std::map<std::string, T>& choices) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  const auto take = [&into, choices](const std::string& word) { into = choices.at(word); };
  return add_choice(command, option, words, take);
}

}  // namespace sluice
