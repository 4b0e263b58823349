#include "fakequant/cli/network.h"
#include "fakequant/cli/task.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "reader.h"

void fq::fuzz::read_checkpoint(const std::string& path) {
  const auto network = cli::load_network(path);
  (void)network.classes();
  (void)network.quantized();
  (void)cli::task_of(network);
  (void)cli::tokenizer_file_of(network);
}
