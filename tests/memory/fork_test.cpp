#include "../../lib/memory/jemalloc.hpp"
#include "support/allocations.hpp"
#include "support/skip.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <semaphore>
#include <thread>

namespace {

/// More than jemalloc maps for itself at once, and than one part of its tree is for.
constexpr std::size_t far_bytes = std::size_t{2} << 30;

/// Memory that reaches into parts of the address space which jemalloc has not seen.
class far_memory {
 public:
  far_memory() {
    for (void*& one : all_)
      one = cordma::jemalloc::mallocx(far_bytes, MALLOCX_ARENA(0) | MALLOCX_TCACHE_NONE);
  }
  far_memory(const far_memory&) = delete;
  far_memory& operator=(const far_memory&) = delete;
  ~far_memory() {
    for (void* const one : all_)
      if (one != nullptr) cordma::jemalloc::dallocx(one, MALLOCX_TCACHE_NONE);
  }
  [[nodiscard]] bool is_there() const noexcept { return all_.back() != nullptr; }

 private:
  std::array<void*, 8> all_{};
};

std::binary_semaphore is_mapping{0};
std::binary_semaphore forked{0};
bool stood = false;

void stand_still(std::size_t size_bytes) {
  if (size_bytes >= far_bytes) return;
  support::call_before_mmap(nullptr);
  stood = true;
  is_mapping.release();
  forked.acquire();
}

}  // namespace

TEST_CASE("a child of fork allocates, though a thread of its parent was making room in the tree",
          "[memory][fork][private]") {
  if (!support::counts_allocations()) CORDMA_SKIP("a sanitizer's mmap is not ours");
  std::thread holder{[] {
    support::call_before_mmap(&stand_still);
    const far_memory memory;
    if (!stood) is_mapping.release();
  }};
  is_mapping.acquire();
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr unsigned seconds_max = 20;
    ::alarm(seconds_max);
    ::_exit(far_memory{}.is_there() ? 0 : 1);
  }
  forked.release();
  holder.join();
  CHECK(stood);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
