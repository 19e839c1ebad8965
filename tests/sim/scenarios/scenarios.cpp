#include "scenarios.hpp"

#include <array>

namespace cordma::test {
namespace {

constexpr std::array all{
    sim::scenario{"standard", "1,000 operations of all kinds, over a mesh of 4 hosts",
                  play_standard},
};

}  // namespace

std::span<const sim::scenario> all_scenarios() { return all; }

}  // namespace cordma::test
