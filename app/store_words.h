// How the store's messages name what each command can be given.
#pragma once
#include "bench/scratch_folder.h"
#include "swap/store_words.h"

namespace sluice {

inline constexpr StoreWords kRunWords{
    .folders = " (--out or sluice.nvme)",
    .earlier_step = " (train --resume --from-step goes on from it; see checkpoint verify)",
    .step_before = " (checkpoint verify)",
    .go_on = "go on from the last committed step (--resume)",
    .start_over = "start over with a new store (--overwrite)",
};
// Of a store in scratch folders there is nothing to go on with.
inline constexpr StoreWords kScratchRunWords{
    .folders = " (sluice.nvme)", .go_on = "try again", .start_over = "try again", .users_folder = without_scratch};
inline constexpr StoreWords kBenchWords{
    .folders = " (--path)", .go_on = "try again", .start_over = "try again", .users_folder = without_scratch};
inline constexpr StoreWords kSweepWords{.folders = " (--path)",
                                        .less_room = "; a smaller --size takes less, 32 MiB a drive at the least"};

}  // namespace sluice
