#define CORDMA_EXAMPLE_WITHOUT_MAIN
#include "09_key_value.cpp"

#include "examples.hpp"

namespace cordma::test {

task<> key_value_server(runtime& rt, listener& listener) { return ::serve(rt, listener); }
task<> key_value_client(runtime& rt, endpoint to) { return ::client(rt, std::move(to)); }

}  // namespace cordma::test
