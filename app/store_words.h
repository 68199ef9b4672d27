// How the store's messages name what each command can be given.
#pragma once
#include "bench/scratch_folder.h"
#include "swap/store_words.h"

namespace sluice {

inline constexpr StoreWords kRunWords{
    .folders = " (--out or sluice.nvme)",
    .io_backend = " (sluice.io_backend)",
    .earlier_step = " (train --resume --from-step goes on from it; see checkpoint verify)",
    .step_before = " (checkpoint verify)",
    .go_on = "go on from the last committed step (--resume)",
    .start_over = "start over with a new store (--overwrite)",
};
// Of a run that is read, by commands that begin none and go on with none.
inline constexpr StoreWords kReadRunWords = [] {
  StoreWords words = kRunWords;
  words.folders = "";
  words.go_on = "go on from the last committed step (train --resume)";
  words.start_over = "start over with a new store (train --overwrite)";
  return words;
}();
// Of drives that are measured, by whatever command, and of stores in scratch folders, which nobody goes on with.
inline constexpr StoreWords kDriveWords{
    .folders = " (sluice.nvme)",
    .io_backend = " (sluice.io_backend)",
    .go_on = "try again",
    .start_over = "try again",
    .users_folder = without_scratch,
};
inline constexpr StoreWords kBenchIoWords = [] {
  StoreWords words = kDriveWords;
  words.folders = " (--path)";
  words.io_backend = " (--backend)";
  return words;
}();
inline constexpr StoreWords kSweepWords{
    .folders = " (--path)",
    .io_backend = " (--backend)",
    .less_room = "; a smaller --size takes less, 32 MiB a drive at the least",
};
inline constexpr StoreWords kBenchCopyWords{.folders = " (--path)", .less_room = "; a smaller --size takes less"};

}  // namespace sluice
