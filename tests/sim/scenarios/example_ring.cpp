#define CORDMA_EXAMPLE_WITHOUT_MAIN
#include "13_ring_hello.cpp"

#include "examples.hpp"

namespace cordma::test {

task<> ring_rank(runtime& rt, meeting how) { return ::go_round(rt, std::move(how)); }

}  // namespace cordma::test
