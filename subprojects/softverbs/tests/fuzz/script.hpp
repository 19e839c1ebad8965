#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace softverbs::fuzz {

/// The fuzzer's bytes, read from the front; zeros once they are used up.
class script {
 public:
  script(const std::uint8_t* bytes, std::size_t size) noexcept : at_{bytes}, end_{bytes + size} {}

  [[nodiscard]] bool done() const noexcept { return at_ == end_; }
  template <typename Number>
  Number take() noexcept {
    Number number{};
    const auto left = static_cast<std::size_t>(end_ - at_);
    const std::size_t size = left < sizeof number ? left : sizeof number;
    std::memcpy(&number, at_, size);
    at_ += size;
    return number;
  }
  std::uint8_t byte() noexcept { return take<std::uint8_t>(); }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

/// Prints `what` and ends the process.
[[noreturn]] inline void violated(const char* what) noexcept {
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}
/// Ends the process unless `holds`.
inline void must(bool holds, const char* what) noexcept {
  if (!holds) violated(what);
}

}  // namespace softverbs::fuzz
