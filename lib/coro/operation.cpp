#include <cordma/coro/operation.hpp>

namespace cordma::detail {

// Out of the header, where it would make the compiler lay out a result in each file.
result<environment> environment_op::take_result() noexcept { return environment_; }

}  // namespace cordma::detail
