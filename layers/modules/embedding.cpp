#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/layers/modules/detail/init.h"
#include "fakequant/layers/modules/linear.h"

namespace fq {

Embedding::Embedding(std::int64_t vocabulary, std::int64_t width) {
  FQ_CHECK(vocabulary > 0 && width > 0, "embedding", "a table of {} x {}: use 1 or more", vocabulary, width);
  weight_ = add_parameter("weight", detail::init_uniform({vocabulary, width}, width));
}

Embedding::Embedding(Adopt, const Embedding& other) : weight_(other.weight_) { adopt(other); }

std::string Embedding::describe() const { return fmt::format("{} x {}", weight_.dim(0), weight_.dim(1)); }

Variable Embedding::forward(const Variable& x) { return ops::embedding(x, weight_); }

}  // namespace fq
