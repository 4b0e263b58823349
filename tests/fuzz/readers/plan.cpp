#include "fakequant/train/sensitivity/plan.h"

#include "reader.h"

void fq::fuzz::read_plan(const std::string& path) { (void)QuantizationPlan::load(path).quant_config(); }
