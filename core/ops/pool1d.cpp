#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/pool.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

Variable as_image(const Variable& x, std::string_view op) {
  FQ_CHECK(x.defined() && x.rank() == 3, op, "the input is {}: give [N, C, L]",
           x.defined() ? to_string(x.shape()) : "undefined");
  return reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2)});
}

Pool2d with_height(const Pool1d& o) {
  return {.kernel = {1, o.kernel},
          .stride = {1, o.stride},
          .padding = {0, o.padding},
          .count_include_pad = o.count_include_pad,
          .ceil_mode = o.ceil_mode,
          .dilation = {1, o.dilation}};
}

Variable as_sequence(const Variable& y) { return reshape(y, {y.dim(0), y.dim(1), y.dim(3)}); }

}  // namespace

Variable max_pool1d(const Variable& x, const Pool1d& options) {
  return as_sequence(max_pool2d(as_image(x, "max_pool1d"), with_height(options)));
}

Variable avg_pool1d(const Variable& x, const Pool1d& options) {
  return as_sequence(avg_pool2d(as_image(x, "avg_pool1d"), with_height(options)));
}

}  // namespace fq::ops
