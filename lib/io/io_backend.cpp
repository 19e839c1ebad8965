#include "io_backend.hpp"

#include "base/environment_variable.hpp"
#include "epoll_reactor.hpp"
#include "uring_reactor.hpp"

#include <array>
#include <cerrno>

namespace cordma {
namespace {

constexpr const char* variable = "CORDMA_IO_BACKEND";

constexpr std::array<detail::named_value<io_backend>, 3> backends{
    {{"automatic", io_backend::automatic},
     {"io_uring", io_backend::io_uring},
     {"epoll", io_backend::epoll}}};

io_backend of_environment() {
  return detail::variable_choice(variable, backends, "is none of automatic, io_uring and epoll")
      .value_or(io_backend::automatic);
}

/// Returns true if no io_uring will ever do here. Memory may be there next time.
bool is_forbidden(const std::error_code& code, const executor_options& options) noexcept {
  if (code.category() != std::system_category()) return false;
  switch (code.value()) {
    case ENOSYS:
    case EPERM:
    case EACCES: return true;
    case EINVAL: return options.ring_entries != 0;  // The kernel is too old.
    default: return false;
  }
}

}  // namespace

std::unique_ptr<reactor> make_reactor(const executor_options& options) {
  const io_backend wished = options.backend ? *options.backend : of_environment();
  if (wished != io_backend::epoll) {
    try {
      return std::make_unique<uring_reactor>(options.ring_entries);
    } catch (const error& e) {
      if (wished != io_backend::automatic || !is_forbidden(e.code(), options)) throw;
    }
  }
  return std::make_unique<epoll_reactor>();
}

}  // namespace cordma
