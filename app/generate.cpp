#include <fmt/format.h>

#include "app/commands.h"
#include "app/sample.h"
#include "app/setup.h"
#include "data/dataset.h"

namespace sluice {

void run_generate(const GenerateCommand& command, Console& console) {
  const RunFolder folder(command.folder);
  const RunConfig config = folder.load(RunFolder::For::kItsModel);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(config.data, folder.data_cache());
  const std::vector<int32_t> prompt = prompt_ids(*tokenizer, command.prompt);
  OpenRun run = open_run(folder, command.overrides, console.log());
  const std::string text =
      sample(*run.engine, run.setup.model, *tokenizer,
             {.prompt = prompt,
              .tokens = command.tokens,
              .temperature = command.temperature,
              .seed = command.seed,
              .progress = [&](int64_t done) { console.progress(done, command.tokens, "sampling"); }});
  console.finish_progress();
  console.print(command.prompt + text);
}

}  // namespace sluice
