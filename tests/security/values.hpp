#pragma once

#include <cordma/security/credentials.hpp>

#include <cstddef>
#include <string_view>
#include <vector>

namespace cordma::test {

inline std::vector<std::byte> secret_of(unsigned char filled, std::size_t size = 32) {
  return std::vector<std::byte>(size, std::byte{filled});
}

inline credentials blue(unsigned char filled = 1) {
  return credentials::psk({"blue", secret_of(filled)});
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes;
  for (const char c : text) bytes.push_back(std::byte(c));
  return bytes;
}

inline std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 + i / 256);
  return bytes;
}

}  // namespace cordma::test
