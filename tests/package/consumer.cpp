#include <iostream>

#include "fakequant/fakequant.h"

int main() {
  const auto x = fq::Tensor::from<float>({0.5F, -1.0F, 0.126F, 2.0F});
  const auto grid = fq::Grid::from_amax(fq::IntFormat{.bits = 8}, fq::Granularity::per_tensor(),
                                        fq::Tensor::scalar(1.27), "x");
  const auto y = fq::dequantize(fq::quantize(x, grid));
  std::cout << y << '\n';
#ifdef CONSUMER_HAS_RANKS
  if (fq::has_mpi()) std::cout << fq::mpi_library() << '\n';  // throws where its module is not found
#endif
  return fq::bitwise_equal(y, fq::Tensor::from<float>({0.5F, -1.0F, 0.13F, 1.27F})) ? 0 : 1;
}
