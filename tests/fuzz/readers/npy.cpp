#include "fakequant/train/data/detail/npy.h"

#include "reader.h"

void fq::fuzz::read_npy(const std::string& path) { (void)detail::read_npy(path); }
