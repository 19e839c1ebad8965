#pragma once

#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/verbs/protection_domain.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>

namespace cordma::detail {

/// Has the kernel find the ways to peers on RoCE: their queue pairs then find them at once. The
/// kernel asks the network, for a second or so if nobody answers, and cannot be stopped. Each
/// search therefore has a thread of its own, which goes on when its task is stopped or destroyed.
/// Only the destructor waits for it. On a host without threads (`host_calls`) the search is made at
/// once. \thread the executor's.
class gid_resolver {
 public:
  /// Limit of the searches at once, abandoned ones included.
  static constexpr std::size_t searches_max = 64;

  /// The executor and the domain must outlive the resolver.
  gid_resolver(cordma::executor& executor, verbs::protection_domain& pd) noexcept
      : executor_{executor}, pd_{pd} {}
  gid_resolver(gid_resolver&&) = delete;

  /// Waits until the kernel knows the way, and before that for a permit to search.
  /// \errors the errno of ibv_create_ah(3): nobody has the address; EAGAIN: no thread can be made.
  task<> resolve(std::uint8_t port, verbs::address_vector to);
  [[nodiscard]] std::size_t searches() const noexcept { return searches_.size(); }

 private:
  struct releaser {
    void operator()(semaphore* permits) const noexcept { permits->release(); }
  };
  struct search {
    std::unique_ptr<semaphore, releaser> permit;
    std::jthread thread;  // Declared last, and so joined before the permit is released.
  };

  cordma::executor& executor_;
  verbs::protection_domain& pd_;
  semaphore permits_{searches_max};
  std::list<search> searches_;
};

}  // namespace cordma::detail
