#pragma once

/// The embedding layer.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Rows of a table [vocabulary, width]: ids [..] (i32 or i64, or whole floats) -> [.., width].
class Embedding : public Module {
 public:
  Embedding(std::int64_t vocabulary, std::int64_t width);
  [[nodiscard]] std::string type() const override { return "embedding"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_;
};

}  // namespace fq
