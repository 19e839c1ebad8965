#include "resolve_gid.hpp"

#include "base/failures.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/verbs/gid.hpp>

#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

namespace cordma::detail {
namespace {

/// Waits without a look at stops: the waiting task owns a thread, and would block in joining it.
class [[nodiscard]] patient_wait : public operation_base<patient_wait> {
 public:
  using value_type = void;
  explicit patient_wait(event& awaited) noexcept : wait_{awaited.wait()} {}
  bool start(waiter& w, const environment& env) noexcept {
    return wait_.start(w, {env.scheduler, {}});
  }
  [[nodiscard]] bool failed() const noexcept { return wait_.failed(); }
  result<void> take_result() noexcept { return wait_.take_result(); }

 private:
  event::wait_op wait_;
};

constexpr std::chrono::milliseconds memory_pause{10};

/// Returns false if there was no memory to post `call`.
bool posts(cordma::executor& executor, const auto& call) noexcept {
  try {
    executor.post(call);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

task<> resolve_gid(cordma::executor& executor, verbs::protection_domain& pd, std::uint8_t port,
                   verbs::address_vector to) {
  struct answer {
    explicit answer(cordma::executor& owner) noexcept : has_come{owner} {}
    event has_come;
    int error = 0;
  };
  // The thread's last call may run when this task has been dropped.
  const auto got = std::make_shared<answer>(executor);
  const std::jthread asks{[&executor, got, port, to, domain = pd.native_handle()] {
    ibv_ah_attr attributes{};
    attributes.port_num = port;
    attributes.is_global = 1;
    attributes.grh.dgid = to.gid;
    attributes.grh.sgid_index = std::uint8_t(to.gid_index);
    attributes.grh.hop_limit = to.hop_limit;
    ibv_ah* const handle = ibv_create_ah(domain, &attributes);
    const int error = handle != nullptr ? 0 : errno;
    if (handle != nullptr) ibv_destroy_ah(handle);
    const auto tell = [got, error]() noexcept {
      got->error = error;
      got->has_come.set();
    };
    while (!posts(executor, tell)) std::this_thread::sleep_for(memory_pause);
  }};
  co_await patient_wait{got->has_come};
  if (got->error != 0) {
    throw_errno(got->error, "ibv_create_ah",
                detail_text("no way to the peer's GID %s from gid_index %u",
                            verbs::to_string(to.gid).c_str(), to.gid_index));
  }
}

}  // namespace cordma::detail
