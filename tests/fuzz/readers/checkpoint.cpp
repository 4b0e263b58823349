#include "fakequant/cli/network.h"
#include "reader.h"

void fq::fuzz::read_checkpoint(const std::string& path) { (void)cli::load_network(path); }
