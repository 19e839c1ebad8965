#define CATCH_CONFIG_RUNNER
#include "link/peer.hpp"

#include <catch2/catch.hpp>

#include <cstring>

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--peer") == 0) return softverbs::test::be_peer(argc, argv);
  return Catch::Session().run(argc, argv);
}
