// What the store's messages tell people to do, in the words of the command and, for who embeds the library, in its own.
#pragma once

namespace sluice {

constexpr const char* kNamesFolders = "(--out, sluice.nvme, StoreOptions::folder)";  // give another folder ...
constexpr const char* kOverQuota =
    "the user's quota on that drive is used up: have it raised, or free what counts to it";
constexpr const char* kStartOver = "start over (--overwrite, RecordStore::create)";
constexpr const char* kGoOn = "go on from the last committed step (--resume, RecordStore::open)";

}  // namespace sluice
