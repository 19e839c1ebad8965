#pragma once

#include <cordma/group/group.hpp>
#include <cordma/runtime/runtime.hpp>

namespace cordma::test {

// The programs of examples, without their `main`. Each is a file, because they have equal names.

task<> echo_server(listener& listener);
task<> echo_client(runtime& rt, endpoint to, unsigned calls, unsigned depth);
task<> key_value_server(runtime& rt, listener& listener);
task<> key_value_client(runtime& rt, endpoint to);
task<> ring_rank(runtime& rt, meeting how);

}  // namespace cordma::test
