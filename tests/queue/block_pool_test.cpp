#include "queue/block_pool.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>

using cordma::block_pool;

namespace {

/// Memory that fails once.
class failing_memory final : public std::pmr::memory_resource {
 public:
  explicit failing_memory(unsigned sound) : sound_{sound} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (sound_-- == 0) throw std::bad_alloc{};
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
  unsigned sound_;
};

}  // namespace

TEST_CASE("a pool gives blocks after an allocation that failed", "[queue]") {
  for (unsigned sound = 0; sound < 3; ++sound) {
    failing_memory memory{sound};
    std::pmr::memory_resource* const before = std::pmr::set_default_resource(&memory);
    {
      block_pool pool;
      unsigned failed = 0, made = 0;
      while (made < 100) {
        try {
          static_cast<void>(pool.allocate(512, 64));
          ++made;
        } catch (const std::bad_alloc&) {
          ++failed;
        }
      }
      CHECK(failed == 1);
    }
    std::pmr::set_default_resource(before);
  }
}

TEST_CASE("a block that came back to its pool is given next", "[queue]") {
  block_pool pool;
  void* const first = pool.allocate(512, 64);
  void* const second = pool.allocate(512, 64);
  CHECK(first != second);
  pool.deallocate(second, 512, 64);
  pool.deallocate(first, 512, 64);
  CHECK(pool.allocate(512, 64) == first);
  CHECK(pool.allocate(512, 64) == second);
}
