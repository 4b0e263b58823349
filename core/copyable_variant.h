#pragma once

#include <utility>
#include <variant>

namespace fq::detail {

/// A std::variant that survives a copy which throws. libstdc++ (12 and others) takes one of numbers, strings
/// and vectors for never valueless, and when a copy finds no memory calls a destructor of what was not made.
template <class... Types>
struct CopyableVariant : std::variant<Types...> {
  using Base = std::variant<Types...>;
  using Base::Base;
  using Base::operator=;

  CopyableVariant(const CopyableVariant& other) : Base(copy(other)) {}
  CopyableVariant(CopyableVariant&&) noexcept = default;
  CopyableVariant& operator=(const CopyableVariant& other) { return *this = CopyableVariant(other); }
  CopyableVariant& operator=(CopyableVariant&&) noexcept = default;
  ~CopyableVariant() = default;

 private:
  static Base copy(const Base& other) {
    return std::visit([]<class T>(const T& value) { return Base(std::in_place_type<T>, value); }, other);
  }
};

}  // namespace fq::detail
