#include "scenarios.hpp"

int main(int argc, char** argv) {
  return cordma::sim::run_scenarios(argc, argv, cordma::test::all_scenarios());
}
