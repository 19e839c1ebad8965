#include "resolve_gid.hpp"

#include "base/failures.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/verbs/gid.hpp>

#include <cerrno>
#include <memory>
#include <new>
#include <thread>

namespace cordma::detail {

task<> resolve_gid(cordma::executor& executor, verbs::protection_domain& pd, std::uint8_t port,
                   verbs::address_vector to) {
  struct answer {
    explicit answer(cordma::executor& owner) noexcept : has_come{owner} {}
    event has_come;
    int error = 0;
  };
  // The thread's last call may run when this task has been stopped.
  const auto got = std::make_shared<answer>(executor);
  const std::jthread asks{[&executor, got, port, to, domain = pd.native_handle()] {
    ibv_ah_attr attributes{};
    attributes.port_num = port;
    attributes.is_global = 1;
    attributes.grh.dgid = to.gid;
    attributes.grh.sgid_index = std::uint8_t(to.gid_index);
    attributes.grh.hop_limit = to.hop_limit;
    ibv_ah* const way = ibv_create_ah(domain, &attributes);
    const int error = way != nullptr ? 0 : errno;
    if (way != nullptr) ibv_destroy_ah(way);
    try {
      executor.post([got, error]() noexcept {
        got->error = error;
        got->has_come.set();
      });
    } catch (const std::bad_alloc&) {
      // The deadline of the handshake ends the wait.
    }
  }};
  co_await got->has_come.wait();
  if (got->error != 0) {
    throw_errno(got->error, "ibv_create_ah",
                detail_text("no way to the peer's GID %s from gid_index %u",
                            verbs::to_string(to.gid).c_str(), to.gid_index));
  }
}

}  // namespace cordma::detail
