#include "fakequant/train/sensitivity/auto_quantize.h"
#include "reader.h"

void fq::fuzz::read_plan(const std::string& path) { (void)QuantizationPlan::load(path).quant_config(); }
