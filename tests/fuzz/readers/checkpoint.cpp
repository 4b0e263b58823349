#include "fakequant/cli/data.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/network/detail/import.h"
#include "fakequant/network/network.h"
#include "reader.h"

void fq::fuzz::read_checkpoint(const std::string& path) {
  const auto network = cli::load_network(path);
  (void)network.classes();
  (void)network.quantized();
  (void)network.task();
  (void)detail::token_table(network);
}
