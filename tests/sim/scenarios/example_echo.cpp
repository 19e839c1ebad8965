#define CORDMA_EXAMPLE_WITHOUT_MAIN
#include "08_rpc_echo.cpp"

#include "examples.hpp"

namespace cordma::test {

task<> echo_server(listener& listener) { return ::serve(listener); }
task<> echo_client(runtime& rt, endpoint to, unsigned calls, unsigned depth) {
  return ::client(rt, std::move(to), calls, depth);
}

}  // namespace cordma::test
