#pragma once

#include <cordma/verbs/access.hpp>

namespace cordma::test {

/// The access of a peer that may do everything, for tests of one-sided operations.
inline constexpr verbs::access all_access =
    verbs::access::local_write | verbs::access::remote_read | verbs::access::remote_write |
    verbs::access::remote_atomic;

}  // namespace cordma::test
