#pragma once

#include "group/collective_call.hpp"

#include <cordma/coro/task.hpp>
#include <cordma/group/group.hpp>

#include <cstdint>
#include <random>
#include <string>

namespace cordma::test {

using detail::collective_kind;
using detail::element_type;

/// An operation that all ranks of a group do, with data by which the result can be told. Two ranks
/// that draw it from equal numbers draw the same.
struct random_operation {
  static constexpr std::size_t longest = 300'000;  ///< bytes of a block

  /// \param near  bytes at which an algorithm, or a message, is another one.
  static random_operation draw(std::mt19937& numbers, std::size_t near);

  bool is_by_tag = false;  ///< each rank sends to the next
  collective_kind kind{};
  bool is_uneven = false;
  bool is_aliased = false;
  std::size_t bytes = 0;  ///< bytes in a block where there are blocks; else in all
  unsigned root = 0;      ///< modulo the ranks
  element_type type{};
  reduction how{};
  std::uint32_t seed = 0;

  [[nodiscard]] std::string to_string() const;
  /// \errors std::runtime_error: a wrong result, with the operation's text.
  task<> run(group& g) const;
};

}  // namespace cordma::test
