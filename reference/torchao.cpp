#include "fakequant/reference/torchao.h"

#include "fakequant/core/detail/check.h"

namespace fq::torchao {
namespace {

constexpr const char* kBlockSize = "torchao.get_block_size";

struct BlockOf {
  const Shape& shape;

  Shape last_axis(std::int64_t length) const {
    FQ_CHECK(!shape.empty(), kBlockSize, "the input has no axes: use PerTensor");
    Shape block(shape.size(), 1);
    block.back() = length;
    return block;
  }
  Shape operator()(PerTensor) const { return shape; }
  Shape operator()(PerAxis g) const {
    Shape block = shape;
    block[static_cast<std::size_t>(normalize_axis(g.axis, static_cast<int>(shape.size()), kBlockSize))] = 1;
    return block;
  }
  Shape operator()(PerGroup g) const { return last_axis(g.group_size); }
  Shape operator()(PerRow) const { return last_axis(shape.empty() ? 1 : shape.back()); }
  Shape operator()(PerToken) const { return (*this)(PerRow{}); }
  Shape operator()(const PerBlock& g) const { return g.block_size; }
};

}  // namespace

Shape get_block_size(const Shape& input_shape, const Granularity& granularity) {
  Shape block = std::visit(BlockOf{input_shape}, granularity);
  (void)scale_shape(input_shape, block);
  return block;
}

Shape scale_shape(const Shape& input_shape, const Shape& block_size, std::string_view function) {
  FQ_CHECK(block_size.size() == input_shape.size(), function,
           "the block {} has another rank than the input {}", to_string(block_size), to_string(input_shape));
  Shape out(input_shape.size(), 1);
  for (std::size_t a = 0; a < out.size(); ++a) {
    const std::int64_t length = block_size[a], size = input_shape[a];
    if (length == size) continue;
    FQ_CHECK(length > 0 && size % length == 0, function,
             "the block {} does not divide the input {}: choose a divisor of {} along axis {}",
             to_string(block_size), to_string(input_shape), size, a);
    out[a] = size / length;
  }
  return out;
}

}  // namespace fq::torchao
