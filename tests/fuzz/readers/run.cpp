#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fakequant/cli/command.h"
#include "fakequant/core/error.h"
#include "fakequant/train/loop/checkpoint.h"
#include "reader.h"

namespace {

/// As generate.py began the runs of the corpus, to one epoch more.
std::vector<std::string> arguments(const std::string& path, bool adapters) {
  const std::string corpus = FAKEQUANT_SOURCE_DIR "/tests/fuzz/corpus/";
  std::istringstream words(adapters ? "--lora 1 --optimizer sgd --set optimizer.momentum=0.9"
                                    : "--ema 0.9 --set patience=3 --schedule plateau --amax learned");
  std::vector<std::string> out{corpus + "checkpoint/int8.h5",
                               "-o",
                               path,
                               "--data",
                               corpus + "dataset/plain.h5",
                               "--batch",
                               "4",
                               "--val-fraction",
                               "0.25",
                               "--epochs",
                               "2",
                               "--threads",
                               "1",
                               "--resume",
                               "--quiet"};
  out.insert(out.end(), std::istream_iterator<std::string>(words), {});
  return out;
}

}  // namespace

/// Resumes as `qat --resume` does: one epoch of three batches. A run that diverges was read.
void fq::fuzz::read_run(const std::string& path) {
  const auto call = cli::find_command("qat").call();
  const cli::Flags flags(call->set(), arguments(path, load_checkpoint(path).has_sub("adapters")));
  cli::Output output(false, cli::Telling::quiet);
  try {
    (void)cli::run_checked(*call, flags, output);
  } catch (const NumericError&) {
  }
}
