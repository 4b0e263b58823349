#include <nlohmann/json.hpp>

#include "fakequant/core/io/state_dict.h"
#include "reader.h"

void fq::fuzz::read_scales(const std::string& path) { (void)load_state(path, "scales").attribute("scales"); }
