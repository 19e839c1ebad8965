#include "io_backend.hpp"

#include "base/failures.hpp"
#include "epoll_reactor.hpp"
#include "uring_reactor.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace cordma {
namespace {

constexpr const char* variable = "CORDMA_IO_BACKEND";

struct named_backend {
  std::string_view name;
  io_backend backend;
};
constexpr std::array<named_backend, 3> backends{{{"automatic", io_backend::automatic},
                                                 {"io_uring", io_backend::io_uring},
                                                 {"epoll", io_backend::epoll}}};

io_backend of_environment() {
  const char* const text = ::secure_getenv(variable);
  if (text == nullptr) return io_backend::automatic;
  for (const named_backend& one : backends)
    if (one.name == text) return one.backend;
  detail::throw_errno(
      EINVAL, variable,
      detail::detail_text("'%.60s' is none of automatic, io_uring and epoll", text));
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
