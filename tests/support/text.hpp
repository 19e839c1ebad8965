#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::test {

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto all = std::as_bytes(std::span{text});
  return {all.begin(), all.end()};
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace cordma::test
