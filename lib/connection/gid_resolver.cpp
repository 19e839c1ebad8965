#include "gid_resolver.hpp"

#include "base/failures.hpp"
#include "io/host_calls.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/verbs/gid.hpp>

#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>

namespace cordma::detail {
namespace {

constexpr std::chrono::milliseconds memory_pause{10};

struct answer {
  explicit answer(cordma::executor& owner) noexcept : has_come{owner} {}
  event has_come;
  int error = 0;
};

/// Returns an errno; 0: the kernel knows the way.
int ask_kernel(ibv_pd* pd, std::uint8_t port, const verbs::address_vector& to) noexcept {
  ibv_ah_attr attributes{};
  attributes.port_num = port;
  attributes.is_global = 1;
  attributes.grh.dgid = to.gid;
  attributes.grh.sgid_index = std::uint8_t(to.gid_index);
  attributes.grh.hop_limit = to.hop_limit;
  ibv_ah* const handle = ibv_create_ah(pd, &attributes);
  if (handle == nullptr) return errno;
  ibv_destroy_ah(handle);
  return 0;
}

/// \errors the errno, unless it is 0: the kernel knows the way.
void check_route(int error, const verbs::address_vector& to) {
  if (error == 0) return;
  throw_errno(error, "ibv_create_ah",
              detail_text("no way to the peer's GID %s from gid_index %u",
                          verbs::to_string(to.gid).c_str(), to.gid_index));
}

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

task<> gid_resolver::resolve(std::uint8_t port, verbs::address_vector to) {
  if (!executor_.reactor().host().has_threads())
    co_return check_route(ask_kernel(pd_.native_handle(), port, to), to);
  const auto got = std::make_shared<answer>(executor_);
  std::list<search> begun(1);
  co_await permits_.acquire();
  const auto own = begun.begin();
  own->permit.reset(&permits_);
  const auto ask = [=, this](const std::stop_token& is_ending) {
    const int error = ask_kernel(pd_.native_handle(), port, to);
    const auto tell = [=, this]() noexcept {
      got->error = error;
      got->has_come.set();
      searches_.erase(own);  // The thread has nothing left to do.
    };
    while (!posts(executor_, tell) && !is_ending.stop_requested())
      std::this_thread::sleep_for(memory_pause);
  };
  try {
    own->thread = std::jthread{ask};
  } catch (const std::system_error& e) {
    throw_errno(
        e.code().value(), "pthread_create",
        detail_text("no thread to look for the peer's GID %s", verbs::to_string(to.gid).c_str()));
  }
  searches_.splice(searches_.end(), begun);
  co_await got->has_come.wait();
  check_route(got->error, to);
}

}  // namespace cordma::detail
