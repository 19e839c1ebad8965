#include "qp/queue_memory.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

using namespace softverbs;

namespace {

/// Filled with a byte of its own.
class block {
 public:
  block(std::size_t bytes, unsigned number)
      : bytes_{static_cast<std::byte*>(allocate_queue(bytes)), bytes},
        is_{static_cast<std::byte>(number)} {
    std::fill(bytes_.begin(), bytes_.end(), is_);
  }
  [[nodiscard]] const void* address() const { return bytes_.data(); }
  [[nodiscard]] bool is_whole() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [this](std::byte b) { return b == is_; });
  }
  void give_back() { free_queue(bytes_.data(), bytes_.size()); }

 private:
  std::span<std::byte> bytes_;
  std::byte is_;
};

}  // namespace

TEST_CASE("blocks of any size lie apart from each other, on cache lines of their own", "[qp]") {
  const std::size_t sizes[]{1, 64, 100, 30'000, 300'000};
  std::vector<block> all{{3 << 20, 1}};
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < 200; ++i) all.emplace_back(sizes[i % std::size(sizes)], i);
    for (const block& one : all) {
      CHECK(reinterpret_cast<std::uintptr_t>(one.address()) % 64 == 0);
      CHECK(one.is_whole());
    }
    // Every third goes, and others take their places.
    for (std::size_t i = 0; i < all.size(); i += 3) all[i].give_back();
    for (std::size_t i = 0, n = 0; i < all.size(); ++i)
      if (i % 3 != 0) all[n++] = all[i];
    all.resize(all.size() - (all.size() + 2) / 3, all[0]);
  }
  for (block& one : all) one.give_back();
}
