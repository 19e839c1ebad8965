#include "raw_loopback.hpp"

namespace bench {
namespace {

using namespace cordma;

constexpr std::size_t buffer_bytes = 64 * 1024;
constexpr verbs::queue_pair_capabilities both_capabilities{.send_wr_max = raw_loopback::depth,
                                                           .recv_wr_max = raw_loopback::depth};
// Two queue pairs, two directions, and what a device rounds up.
constexpr unsigned cq_depth = 8 * raw_loopback::depth;

}  // namespace

raw_loopback::raw_loopback()
    : cordma::test::loopback{{.cq = {.depth = cq_depth, .mode = completion_mode::busy},
                              .capabilities = both_capabilities}},
      local{memory(buffer_bytes)},
      remote{memory(buffer_bytes)},
      raw{ctx, port, pd, both_capabilities} {}

}  // namespace bench
