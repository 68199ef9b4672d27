// Errors of files in scratch folders, in the words of a command that has neither a store nor a run.
#pragma once
#include <string_view>
#include <utility>

#include "core/errors.h"

namespace sluice {

// Throws the error; where it is of a file in a scratch folder (bench/scratch_folder.h), with the folder that this lies
// in for a path and with advice that speaks of `option`, which names it: "--path".
[[noreturn]] void rethrow_in_scratch_words(const IoError& error, std::string_view option);

template <typename Work>
auto in_scratch_words(std::string_view option, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const IoError& error) {
    rethrow_in_scratch_words(error, option);
  }
}

}  // namespace sluice
