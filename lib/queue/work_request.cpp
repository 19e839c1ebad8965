#include <cordma/queue/work_request.hpp>

#include <cordma/verbs/memory_region.hpp>

namespace cordma {

bind_request bind(const verbs::memory_window& window, const verbs::memory_region& region,
                  const const_local_mr_slice& local, verbs::access granted,
                  request_flags flags) noexcept {
  return {
      {local}, region.native_handle(), region.flags(), window.native_handle(), window.next_rkey(),
      granted, flags.to_verbs()};
}

}  // namespace cordma
