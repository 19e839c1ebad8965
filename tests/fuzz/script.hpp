#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cordma::fuzz {

/// Unless `holds`, prints `what` and ends the process.
void must(bool holds, const char* what) noexcept;

/// The fuzzer's bytes, read from the front; zeros once they are used up.
class script {
 public:
  script(const std::uint8_t* bytes, std::size_t size) noexcept : at_{bytes}, end_{bytes + size} {}
  [[nodiscard]] bool done() const noexcept { return at_ == end_; }
  template <typename Number>
  Number take() noexcept {
    Number number{};
    const std::size_t size = std::min(sizeof number, std::size_t(end_ - at_));
    std::memcpy(&number, at_, size);
    at_ += size;
    return number;
  }
  std::uint8_t byte() noexcept { return take<std::uint8_t>(); }
  template <class T, std::size_t N>
  T of(const std::array<T, N>& all) noexcept {
    return all[byte() % N];
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

}  // namespace cordma::fuzz
