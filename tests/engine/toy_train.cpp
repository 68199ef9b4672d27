// A training process of its own, to be killed: toy_train FOLDER create|resume KILL_AFTER_BYTES KILL_AT_SUPERBLOCK
// UPDATE Trains to the end and prints both digests and the bytes of store traffic.
#include <fmt/format.h>

#include <string>

#include "engine/engine.h"
#include "tests/engine/kill_run.h"
#include "tests/fakes/faulty_queue.h"

int main(int count, char** arguments) {
  using namespace sluice;
  using namespace sluice::testing;
  if (count != 6) return 2;
  const std::string mode = arguments[2];
  auto faults = std::make_shared<Faults>();
  faults->kill_after_bytes = std::stoll(arguments[3]);
  faults->kill_at_superblock = std::stoll(arguments[4]);
  EngineOptions options = kill_run_options(arguments[1], arguments[5]);
  options.open = mode == "resume" ? OpenMode::kResume : OpenMode::kCreate;
  options.store.make_queue = faulty_queue_factory(faults);
  const ModelSpec model = kill_run_model(arguments[5]);
  Engine engine(model, options, toy_source());
  const RunRecord record = train_engine(engine, model, kill_run_reference(arguments[5]));
  fmt::print("{:08x} {:08x} {} {}\n", record.weights_crc32c, record.state_crc32c,
             faults->read_bytes + faults->written_bytes, faults->superblock_writes);
  return 0;
}
