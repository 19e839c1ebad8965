#include <cordma/detail/coro/frame_cache.hpp>

#include <utility>

namespace cordma::frame_cache::detail {

constinit thread_local std::array<free_list, classes> lists{};
constinit thread_local thread_state state = thread_state::fresh;

namespace {

struct at_thread_end {
  ~at_thread_end() {
    state = thread_state::ended;
    for (free_list& list : lists) {
      while (list.head != nullptr)
        ::operator delete(std::exchange(list.head, list.head->next), alignment);
    }
  }
};

}  // namespace

/// Frees the first block that a thread frees, or a block above the limit.
void give_up(void* block, std::size_t index) noexcept {
  if (state != thread_state::fresh) return ::operator delete(block, alignment);
  thread_local at_thread_end registered;
  static_cast<void>(registered);
  state = thread_state::keeping;
  deallocate(block, block_bytes_min << index);
}

}  // namespace cordma::frame_cache::detail
