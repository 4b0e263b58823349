#include "fakequant/layers/modules/module.h"

#include <string>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/layers/modules/linear.h"

namespace fq::module_test {
namespace {

/// y = called(x) * (a weight that it reads)
class Parent : public Module {
 public:
  Parent()
      : called_(add_module("called", std::make_shared<Linear>(4, 4))),
        read_(add_module("read", std::make_shared<Linear>(4, 4))) {}
  [[nodiscard]] const Linear* read() const { return read_.get(); }

 protected:
  Variable forward(const Variable& x) override { return ops::add(called_(x), read_->weight()); }
  using Module::forward;

 private:
  Child<Linear> called_, read_;
};

class Doubled : public Module {
 public:
  [[nodiscard]] std::string type() const override { return "doubled"; }

 protected:
  Variable forward(const Variable& x) override { return ops::add(x, x); }
  using Module::forward;
};

class Wider : public Linear {
 public:
  Wider() : Linear(4, 4) {}
};

TEST(Children, ReplacementsRunInPlaceOfTheChild) {
  Parent parent;
  parent.replace("called", std::make_shared<Doubled>());
  const Tensor x = Tensor::full({4, 4}, 1.5);
  const Variable y = parent(x);
  EXPECT_TRUE(
      bitwise_equal(y.tensor(), ops::add(Tensor::full({4, 4}, 3.0), parent.read()->weight()).tensor()));
}

TEST(Children, AcceptDerivedModules) {
  Parent parent;
  const auto other = std::make_shared<Wider>();
  parent.replace("read", other);
  EXPECT_EQ(parent.read(), other.get());
  EXPECT_NO_THROW((void)parent(Tensor::zeros({4, 4})));
}

TEST(Children, RejectAnotherTypeIfTheParentRequiresIt) {
  Parent parent;
  parent.replace("read", std::make_shared<Doubled>());
  EXPECT_EQ(parent.read(), nullptr);
  try {
    (void)parent(Tensor::zeros({4, 4}));
    FAIL() << "a Doubled was read as a Linear";
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("the child 'read' is a doubled"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace fq::module_test
