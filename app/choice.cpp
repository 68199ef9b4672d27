#include "app/choice.h"

#include <CLI/CLI.hpp>

namespace sluice {

CLI::Option* add_choice(CLI::App& command, const ChoiceWords& option, const std::vector<std::string>& words,
                        const std::function<void(const std::string& word)>& take) {
  return command.add_option_function<std::string>(option.name, take, option.description)
      ->transform(CLI::IsMember(words, CLI::ignore_case));
}

}  // namespace sluice
