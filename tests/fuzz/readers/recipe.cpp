#include "fakequant/cli/flags/recipe.h"

#include "fakequant/cli/command.h"
#include "reader.h"

void fq::fuzz::read_recipe(const std::string& path) {
  const cli::FlagSet flags = cli::find_command("run").flags();
  (void)cli::read_recipe(path, cli::Flags(flags, {path}));
}
