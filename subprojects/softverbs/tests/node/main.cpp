#include "link/peer.hpp"
#include "run_cases.hpp"

#include <cstring>

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--peer") == 0) return softverbs::test::be_peer(argc, argv);
  return run_cases(argc, argv);
}
