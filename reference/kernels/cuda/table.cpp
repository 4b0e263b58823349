#include "fakequant/reference/kernels/cuda/clip.h"
#include "fakequant/reference/kernels/cuda/fake_quant.h"
#include "fakequant/reference/kernels/cuda/fake_quant_blocks.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cuda {
namespace {

constinit const fq::detail::ReferenceKernels kernels{
    .fake_quant_integer = fake_quant_integer,
    .integer_codes = integer_codes,
    .fake_quant_e4m3 = fake_quant_e4m3,
    .round_to_integers = round_to_integers,
    .smallest = smallest,
    .fake_quant_fp4 = fake_quant_fp4,
    .fake_quant_blocks = fake_quant_blocks,
    .fake_quant_nvfp4 = fake_quant_nvfp4,
    .fake_quant_rows = fake_quant_rows,
    .fake_quant_nvfp4_rows = fake_quant_nvfp4_rows,
    .mask_within = mask_within,
    .mask_between = mask_between,
    .clip = clip,
    .sum_beyond = sum_beyond,
};

}  // namespace

const fq::detail::ReferenceKernels* const reference_table = &kernels;

}  // namespace fq::cuda
