#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/trace.h"

namespace fq::copyable_variant_test {
namespace {

bool has_memory = true;

template <class T>
struct Memory : std::allocator<T> {
  Memory() = default;
  template <class U>
  explicit Memory(const Memory<U>&) {}
  template <class U>
  struct rebind {
    using other = Memory<U>;
  };
  T* allocate(std::size_t count) {
    if (!has_memory) throw std::bad_alloc();
    return std::allocator<T>::allocate(count);
  }
};

using Numbers = std::vector<int, Memory<int>>;
using Any = detail::CopyableVariant<bool, long, double, std::string, Numbers, std::vector<double>>;

TEST(CopyableVariant, IsAVariant) {
  Any a = Numbers{1, 2}, b = a, c;
  EXPECT_EQ(std::get<Numbers>(b), (Numbers{1, 2}));
  EXPECT_EQ(a, b);
  c = std::string("text");
  b = c;
  EXPECT_EQ(std::get<std::string>(b), "text");
  a = std::move(b);
  EXPECT_EQ(std::get<std::string>(a), "text");
  EXPECT_EQ(a.index(), 3u);
}

TEST(CopyableVariant, IsUnchangedAfterAFailedCopy) {
  const Any a = Numbers{1, 2};
  Any b = true;
  has_memory = false;
  EXPECT_THROW(Any{a}, std::bad_alloc);
  EXPECT_THROW(b = a, std::bad_alloc);
  EXPECT_THROW((std::vector<Any>{b, a}), std::bad_alloc);
  has_memory = true;
  EXPECT_TRUE(std::get<bool>(b));
  EXPECT_EQ(std::get<Numbers>(a).size(), 2u);
}

}  // namespace
}  // namespace fq::copyable_variant_test
