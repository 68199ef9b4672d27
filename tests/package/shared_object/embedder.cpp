// What an extension of another program is: a shared object that holds the package's libraries.
#include <memory>

#include "cpu_adam/update_team.h"
#include "swap/record_store.h"

int threads_and_stores(const char* folder) {
  const auto topology = sluice::make_topology();
  const auto team = sluice::make_update_team(*topology, 1);
  return team->threads() + (sluice::RecordStore::identify(folder) ? 1 : 0);
}
